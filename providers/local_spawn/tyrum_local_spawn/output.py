"""Reading one stream of one run, live or ended, as an unbroken sequence of pieces.

Invariant: without gaps each piece begins where the one before ended; a gap is stated by the piece behind it;
the end of an ended stream is stated once, on the last piece.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tyrum_local_spawn.failures import Invalid
from tyrum_local_spawn.ids import ProcessId
from tyrum_local_spawn.register import Register


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """Bytes of a stream; offsets count from the first byte the command wrote."""

    offset: int
    data: bytes
    dropped_before: int
    eof: bool


async def read_output(
    register: Register, process_id: ProcessId, stream: int, offset: int, *, follow: bool
) -> AsyncGenerator[OutputPiece, None]:
    """Yield a stream's retained bytes from `offset` on; `follow` waits for more until the stream has ended.

    Without `follow`, a running process yields what there was when the reading began.

    Raises:
        Invalid: the offset lies beyond the bytes so far.
        Failure: the process is unknown, or records are damaged.
    """
    run = await register.find(process_id)
    position = offset
    until: int | None = None
    while True:
        chunk = await register.read(run, stream, position, wait=follow and until is not None)
        live = chunk is not None
        if chunk is None:
            if run.end is None:
                await register.find(process_id)  # raises: its record is damaged or gone
                return
            chunk = await register.read_ended(run, stream, position)
        if until is None:
            if offset > chunk.total:
                raise Invalid("`offset` lies beyond the bytes so far", {"field": "offset"})
            until = chunk.total
        position = chunk.offset + len(chunk.data)
        ended = not live and position >= chunk.total
        if chunk.data or chunk.dropped_before or ended:
            yield OutputPiece(chunk.offset, chunk.data, chunk.dropped_before, ended)
        if ended or (live and not follow and position >= until):
            return
