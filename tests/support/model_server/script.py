"""What the scripted model server plays: neutral steps, with their faults and expectations."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain, zip_longest

from tests.support.model_server.request import Request


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the server tells."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; the server's id is made of scenario, step and position."""

    name: str
    arguments: str
    """Sent as it is, also when it is no JSON."""


class Ending(Enum):
    """How a step ends when nothing goes wrong on the way."""

    PROPER = auto()
    """As the step's content demands: at the end of the text, or with calls."""
    LENGTH = auto()
    REFUSAL = auto()
    OVERFLOW = auto()
    """At the end of the model's context."""
    PAUSE = auto()
    """Anthropic's `pause_turn`; Chat Completions have no such end and say nothing that is known."""


class Goodbye(Enum):
    """How the server ends a connection early."""

    CLEAN = auto()
    """As after a whole answer; only the protocol's own end is missing."""
    CLOSED = auto()
    """In the middle of the answer's transfer."""
    RESET = auto()
    """By a TCP reset."""


class Quirk(Enum):
    """How compatible servers tell calls apart; only Chat Completions have these."""

    NONE = auto()
    NO_IDS = auto()
    """By index only."""
    ONE_INDEX = auto()
    """By id only: every index is 0."""
    NO_INDEX = auto()
    """By id only: there is no index."""
    WHOLE = auto()
    """Each call whole, with the index 0 and no id."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No stream, but a status."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    """Empty: an error in the form of the protocol."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends."""

    after: int | None
    """Pieces of text and calls that come before; None: everything but the protocol's end."""
    goodbye: Goodbye = Goodbye.CLEAN


@dataclass(frozen=True, slots=True)
class Midway:
    """An error within the stream."""

    after: int
    """Pieces that come before."""
    kind: str = "overloaded_error"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An event that is none of the protocol."""

    after: int
    data: bytes = b"<html>gateway timeout</html>"


Fault = Refuse | Cut | Midway | Garbage
"""What goes wrong instead of a step's end."""


@dataclass(frozen=True, slots=True)
class Expect:
    """What must hold of a request; what does not is a failure of the test."""

    contains: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Looked for in everything that the request's body holds."""
    system: tuple[str, ...] = ()
    """Parts of the system text."""
    result: tuple[str, ...] = ()
    """Parts of the newest tool result."""
    tools: frozenset[str] | None = None
    """Exactly these names."""
    check: Callable[[Request], None] | None = None
    """Anything else; raises AssertionError."""

    def problems(self, request: Request) -> Iterator[str]:
        """Say what does not hold."""
        text = request.text
        yield from (f"`{part}` is not in the request" for part in self.contains if part not in text)
        yield from (f"`{part}` is in the request" for part in self.absent if part in text)
        yield from (
            f"`{part}` is not in the system text" for part in self.system if part not in request.system
        )
        newest = request.results[-1] if request.results else ""
        yield from (f"`{part}` is not in the newest result" for part in self.result if part not in newest)
        if self.tools is not None and self.tools != request.tools:
            yield f"the tools are {sorted(request.tools)}, not {sorted(self.tools)}"
        if self.check is not None:
            try:
                self.check(request)
            except AssertionError as error:
                yield f"check: {error}"


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model."""

    text: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    fragments: int = 1
    """Pieces in which the arguments of each call come."""
    interleaved: bool = False
    """Whether the pieces of several calls alternate."""
    ending: Ending = Ending.PROPER
    usage: Usage | None = Usage(11, 7)
    """None: the server tells none."""
    quirk: Quirk = Quirk.NONE
    pings: int = 0
    """Keep-alive signs before each piece."""
    drip: int | None = None
    """Bytes sent at a time, in segments of their own; None: each event at once."""
    barrier: str = ""
    """After the text the step waits until `release` is called with this name."""
    fault: Fault | None = None
    expect: Expect = Expect()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a call; the first one opens it."""

    position: int
    call: Call
    fragment: str
    first: bool


Piece = TextPiece | CallPiece


def pieces(step: Step) -> list[Piece]:
    """List what a step is sent as, in order."""
    calls = [list(_fragments(step, position, call)) for position, call in enumerate(step.calls)]
    woven = (
        [piece for row in zip_longest(*calls) for piece in row if piece is not None]
        if step.interleaved
        else list(chain.from_iterable(calls))
    )
    return [*(TextPiece(text) for text in step.text), *woven]


def _fragments(step: Step, position: int, call: Call) -> Iterator[CallPiece]:
    size = max(1, -(-len(call.arguments) // step.fragments))
    parts = [call.arguments[start : start + size] for start in range(0, len(call.arguments), size)] or [""]
    for number, part in enumerate(parts):
        yield CallPiece(position, call, part, first=number == 0)
