"""What stdout does not take, and what stdin or the command line hold that is no text."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import TYRUM, RunningGateway, client_environment
from tyrum_gateway.bootstrap.serve import Serving
from tyrum_gateway.cli.chat import LONGEST_MESSAGE, piped
from tyrum_gateway.cli.commands import run
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.serve import greet
from tyrum_gateway.cli.streams import guarded

ESCAPING = "from tyrum_gateway.cli import streams; streams.prepare(); print('sn\\u2603w')"
INTERRUPTED = """
import sys
from tyrum_gateway.cli.main import main

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == "tyrum_gateway.cli.commands":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interruption())
main()
"""


def ran(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program without a terminal."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=client_environment(Path("/nonexistent")) | environment,
        timeout=60,
        check=False,
    )


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let stdout be a full disk."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with guarded(descriptor) as stream, contextlib.redirect_stdout(stream):
        yield
    os.close(descriptor)


def test_bytes_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument or a piped message that is not UTF-8 is a usage error that shows the bytes."""
    assert run(["chat", os.fsdecode(b"caf\xe9")]) == 2
    assert capsys.readouterr().err == "error: `caf\\xe9` is not valid UTF-8\n"
    sent = subprocess.run(
        [str(TYRUM), "chat", "-"],
        input=b"caf\xe9",
        capture_output=True,
        env=client_environment(Path("/nonexistent")),
        timeout=60,
        check=False,
    )
    assert (sent.returncode, sent.stderr) == (2, b"error: the message on stdin is not valid UTF-8\n")


def test_a_piped_message_without_end_is_refused() -> None:
    """Of stdin no more is read than a message may have: `chat -` holds no gigabytes."""
    with Path("/dev/zero").open("rb") as endless:
        sent = subprocess.run(
            [str(TYRUM), "chat", "-"],
            stdin=endless,
            capture_output=True,
            env=client_environment(Path("/nonexistent")),
            timeout=60,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
        )
    assert (sent.returncode, sent.stderr) == (
        2,
        b"error: the message on stdin is longer than 256 KiB; it was not sent\n",
    )


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (b"x" * LONGEST_MESSAGE + b"\n", True),
        (b"\r\n" * (LONGEST_MESSAGE - 1) + b"x", True),
        (b"x" * (LONGEST_MESSAGE + 1), False),
        ("é".encode() * LONGEST_MESSAGE, False),
    ],
)
def test_the_limit_is_that_of_the_message(
    text: bytes, taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A message of 256 KiB is read whole, however its lines end; one byte more is refused."""
    (tmp_path / "message").write_bytes(text)
    with (tmp_path / "message").open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        if taken:
            assert len(piped().strip().encode()) <= LONGEST_MESSAGE
        else:
            with pytest.raises(Failure, match="longer than 256 KiB"):
                piped()


def test_lines_of_a_piped_message_end_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A message from a file of another system has line feeds alone."""
    (tmp_path / "message").write_bytes("é\r\nb\rc".encode())
    with (tmp_path / "message").open(encoding="latin-1") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert piped() == "é\nb\nc"


@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "stdout is closed")]
)
def test_a_stdout_that_takes_nothing_is_an_error(redirection: str, why: str) -> None:
    """A full or closed stdout ends a command with 1 and one line that says why."""
    told = ran(["sh", "-c", f"exec tyrum version {redirection}"])
    assert (told.returncode, told.stderr) == (1, f"error: cannot write the output: {why}\n")


def test_a_stdout_that_does_not_block_gets_all_of_it() -> None:
    """A slow reader, whose pipe somebody set not to block, is waited for."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text = "0123456789abcdef" * 20_000

    def write() -> None:
        with guarded(writing) as stream:
            stream.write(text)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, encoding="utf-8") as reader:
        assert reader.read() == text
    writer.join()


def test_characters_that_stdout_lacks_are_escaped() -> None:
    """Text outside the encoding of stdout is written as an escape."""
    told = ran([sys.executable, "-c", ESCAPING], PYTHONIOENCODING="latin-1")
    assert (told.stdout, told.stderr) == ("sn\\u2603w\n", "")


def test_a_token_that_could_not_be_shown_is_named(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Who issued a token that stdout did not take learns that it exists, and how to revoke it."""
    place = ["--state-dir", str(gateway.state_dir)]
    capsys.readouterr()
    with full_disk():
        assert run(["principals", "tokens", "issue", "operator", "--label", "lost", *place]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith("of `operator` was made, but stdout did not take it: No space left on device")
    assert hint.startswith("hint: tyrum principals tokens revoke tok_")
    assert run(hint.removeprefix("hint: tyrum ").split()) == 0
    saved = ["--save", str(tmp_path / "saved"), "--output", "json"]
    with full_disk():
        assert run(["principals", "tokens", "issue", "operator", "--label", "kept", *saved, *place]) == 1
    assert capsys.readouterr().err.endswith(f"hint: it is in `{tmp_path / 'saved'}`\n")


def test_a_gateway_serves_where_nobody_reads_its_greeting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A greeting that stdout does not take is a warning; it does not end the gateway."""
    with full_disk():
        greet(Serving(["unix:/x"], {}, []), tmp_path, "quickstart")
    assert capsys.readouterr().err.startswith("warning: stdout does not take where the gateway serves")


def test_ctrl_c_while_a_command_is_imported_ends_it_like_later() -> None:
    """An interruption before the command line is read exits with 130 and without a traceback."""
    told = ran([sys.executable, "-c", INTERRUPTED])
    assert (told.returncode, told.stderr) == (130, "")
