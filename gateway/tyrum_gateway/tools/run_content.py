"""What the model is told of a run: outcome first, then bounded output, as plain text.

Output is data. Bytes that are no text are replaced, control characters are escaped, and what is left out is
counted, so that a model never takes a part for the whole.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import assert_never

from tyrum_gateway.domain.process import EndCause, ProcessResult, StreamEvidence
from tyrum_gateway.tools.visible import code

SHOWN_BYTES = 10 * 1024
"""Of each stream, at the beginning and at the end."""

_SHORTEST = 4
"""Bytes of the shortest value that is replaced."""
_SHORTEST_LINE = 12
"""Bytes of the shortest line of a value that is replaced by itself."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def describe(result: ProcessResult) -> str:
    """Write the outcome line and both streams."""
    parts = [outcome(result)]
    parts += _stream("stdout", result.stdout)
    parts += _stream("stderr", result.stderr)
    return "\n".join(parts)


def outcome(result: ProcessResult) -> str:
    """Say in one line how the run ended."""
    took = f"after {result.duration // timedelta(milliseconds=1)} ms"
    if result.descendants_killed:
        took += "; what it had left running in the background was ended with it"
    match result.cause:
        case EndCause.EXITED:
            return f"exit code {result.exit_code} {took}"
        case EndCause.SIGNALED:
            return f"ended by signal {result.signal} {took}"
        case EndCause.WALL_TIME:
            return f"stopped at its time limit {took}"
        case EndCause.OUTPUT_LIMIT:
            return f"stopped at its output limit {took}"
        case EndCause.CANCELLED:
            return f"cancelled {took}"
        case EndCause.PROVIDER_GONE:
            return f"stopped {took}, because the provider that ran it ended"
        case EndCause.START_FAILED:
            return "not executed: the start failed"
        case EndCause.LOST:
            return "outcome unknown: the run began and its end was not seen"
        case _:
            assert_never(result.cause)


def redact(result: ProcessResult, secrets: Sequence[str]) -> ProcessResult:
    """Replace secret values, and their longer lines, in the kept output by `***`.

    Totals and digests stay those of the command.

    Values below four bytes are left, because replacing them would garble everything else.
    """
    parts = {value.encode() for value in secrets if len(value.encode()) >= _SHORTEST}
    lines = {line for value in parts for line in value.splitlines() if len(line) >= _SHORTEST_LINE}
    values = sorted(parts | lines, key=len, reverse=True)
    if not values:
        return result
    pattern = re.compile(b"|".join(re.escape(value) for value in values))
    return ProcessResult(
        cause=result.cause,
        exit_code=result.exit_code,
        signal=result.signal,
        duration=result.duration,
        stdout=_redacted(result.stdout, pattern, values),
        stderr=_redacted(result.stderr, pattern, values),
        descendants_killed=result.descendants_killed,
    )


def _redacted(stream: StreamEvidence, pattern: re.Pattern[bytes], values: Sequence[bytes]) -> StreamEvidence:
    head = _without_beginning(pattern.sub(b"***", stream.head), values)
    tail = _without_end(pattern.sub(b"***", stream.tail), values)
    if len(stream.head) + len(stream.tail) == stream.total_bytes:
        # Contiguous: a value may lie across the seam.
        whole = pattern.sub(b"***", stream.head + stream.tail)
        head, tail = whole[: len(stream.head)], whole[len(stream.head) :]
    return StreamEvidence(stream.total_bytes, stream.sha256, head, tail)


def _without_beginning(head: bytes, values: Sequence[bytes]) -> bytes:
    """Mask what may be the beginning of a value, cut off where the kept head ends."""
    cut = max((_common(head, value, end=False) for value in values), default=0)
    return head[:-cut] + b"***" if cut else head


def _without_end(tail: bytes, values: Sequence[bytes]) -> bytes:
    """Mask what may be the end of a value, cut off where the kept tail begins."""
    cut = max((_common(tail, value, end=True) for value in values), default=0)
    return b"***" + tail[cut:] if cut else tail


def _common(kept: bytes, value: bytes, *, end: bool) -> int:
    """Count the bytes, four or more, of a value's end (or beginning) at the beginning (or end) of a part."""
    for size in range(min(len(value) - 1, len(kept)), _SHORTEST - 1, -1):
        if kept.startswith(value[-size:]) if end else kept.endswith(value[:size]):
            return size
    return 0


def _stream(name: str, stream: StreamEvidence) -> list[str]:
    if not stream.total_bytes:
        return []
    kept = stream.head + stream.tail
    if len(kept) <= 2 * SHOWN_BYTES and stream.total_bytes <= 2 * SHOWN_BYTES:
        return [f"{name}, {stream.total_bytes} bytes:", _text(kept)]
    head, tail = stream.head[:SHOWN_BYTES], kept[-SHOWN_BYTES:]
    left_out = stream.total_bytes - len(head) - len(tail)
    return [
        f"{name}, {stream.total_bytes} bytes, the beginning and the end:",
        _text(head),
        f"[… {left_out} bytes left out …]",
        _text(tail),
    ]


def _text(data: bytes) -> str:
    text = data.decode(errors="replace").removesuffix("\n")
    return _CONTROL.sub(lambda found: code(found[0]), text)
