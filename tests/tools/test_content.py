"""What the model is told of a run is bounded, readable, and honest about what is left out."""

import hashlib
from datetime import timedelta

import pytest

from tyrum_gateway.domain.process import EndCause, ProcessResult, StreamEvidence
from tyrum_gateway.tools.run_content import SHOWN_BYTES, describe, outcome, redact
from tyrum_gateway.tools.visible import is_plain, quoted

KEPT = 128 * 1024


def evidence(data: bytes) -> StreamEvidence:
    """Keep of a stream what the kernel keeps."""
    head, rest = data[:KEPT], data[KEPT:]
    return StreamEvidence(len(data), hashlib.sha256(data).hexdigest(), head, rest[-KEPT:])


def result(stdout: bytes = b"", stderr: bytes = b"", cause: EndCause = EndCause.EXITED) -> ProcessResult:
    """Make a result."""
    code = 0 if cause is EndCause.EXITED else None
    signal = 9 if cause is EndCause.SIGNALED else None
    return ProcessResult(cause, code, signal, timedelta(milliseconds=12), evidence(stdout), evidence(stderr))


def test_short_output_is_shown_whole() -> None:
    """The outcome comes first, then each stream that has output, with its size."""
    assert describe(result(b"a\nb\n", b"c")) == (
        "exit code 0 after 12 ms\nstdout, 4 bytes:\na\nb\nstderr, 1 bytes:\nc"
    )
    assert describe(result()) == "exit code 0 after 12 ms"


@pytest.mark.parametrize(
    "size", [2 * SHOWN_BYTES, 2 * SHOWN_BYTES + 1, KEPT + 5, 2 * KEPT, 2 * KEPT + 1, 1 << 20]
)
def test_long_output_names_what_is_left_out(size: int) -> None:
    """Of long output the model gets 10 KiB at each end, and the exact number of bytes between."""
    data = bytes(97 + position % 23 for position in range(size))
    text = describe(result(data))
    if size <= 2 * SHOWN_BYTES:
        assert text.endswith(data.decode())
        return
    assert f"[… {size - 2 * SHOWN_BYTES} bytes left out …]" in text
    assert f"\n{data[:SHOWN_BYTES].decode()}\n[…" in text
    assert text.endswith(f"…]\n{data[-SHOWN_BYTES:].decode()}")


def test_output_is_text_without_tricks() -> None:
    """Bytes that are no text are replaced, control and direction characters are escaped."""
    text = describe(result("\x1b[31mred\r\a\tx\n\u202e\u2028é\x85".encode() + b"\xff"))
    assert text.endswith("\\x1b[31mred\\x0d\\x07\tx\n\\u202e\\u2028é\\x85\ufffd")


def test_every_cause_has_words() -> None:
    """Each way of ending reads differently, and failed starts say that nothing ran."""
    words = {cause: outcome(result(cause=cause)) for cause in EndCause}
    assert len(set(words.values())) == len(EndCause)
    assert words[EndCause.START_FAILED].startswith("not executed")
    assert words[EndCause.SIGNALED].startswith("ended by signal 9")


def test_redaction_keeps_totals_and_digests() -> None:
    """Secret values leave the kept output, across its seam too; size and digest stay the command's."""
    data = b"x" * (KEPT - 4) + b"s3cr3t-value" + b"y" * 10
    before = result(data, b"s3cr3t-value-longer abc")
    after = redact(before, ["s3cr3t-value", "s3cr3t-value-longer", "abc"])
    assert b"s3cr3t" not in after.stdout.head + after.stdout.tail
    assert after.stderr.head == b"*** abc"
    assert (after.stdout.total_bytes, after.stdout.sha256) == (
        before.stdout.total_bytes,
        before.stdout.sha256,
    )
    assert redact(before, []) is before


def test_redaction_covers_a_value_cut_off_at_the_edge_of_what_is_kept() -> None:
    """Where bytes were left out between head and tail, the part of a value on either side is masked too."""
    before = result(b"x" * (KEPT - 11) + b"s3cr3t-value" + b"y" * KEPT + b"s3cr3t-value" + b"z" * (KEPT - 11))
    after = redact(before, ["s3cr3t-value", "another"]).stdout
    assert after.head == b"x" * (KEPT - 11) + b"***"
    assert after.tail == b"***" + b"z" * (KEPT - 11)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("a b", "'a b'"),
        ("a\\x1b", "'a\\x1b'"),
        ("a\x1b", "$'a\\x1b'"),
        ("a\u3164", "$'a\\u3164'"),
        ("a\ufe0f", "$'a\\ufe0f'"),
        ("a\U000e0101", "$'a\\U000e0101'"),
        ("a\\\x1b'", "$'a\\\\\\x1b\\''"),
        ("\u00a0", "$'\\xa0'"),
        ("\U000e0041", "$'\\U000e0041'"),
    ],
)
def test_quoting_is_unambiguous(text: str, shown: str) -> None:
    """Hidden characters are escaped, and a literal backslash never looks like an escape."""
    assert quoted(text) == shown
    assert is_plain(quoted(text))
