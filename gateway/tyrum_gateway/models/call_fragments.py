"""Tool calls that arrive in pieces: collected within bounds, and taken only whole.

Invariant: a call leaves here only when its arguments are one JSON object of whole characters; nothing is
guessed or repaired.
"""

import json
from typing import NoReturn

from tyrum_gateway.app.step_bounds import MAX_CALL_BYTES, MAX_CALLS
from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import CallRequest
from tyrum_gateway.models.failures import Ending, StreamEnded
from tyrum_gateway.models.halves import has_half, joined
from tyrum_gateway.models.tool_names import ToolNames


class Fragments:
    """One call so far."""

    __slots__ = ("_closing", "_looked_at", "_object", "arguments", "identity", "names")

    def __init__(self, identity: str) -> None:
        self.identity = identity
        """The server's id; only tells calls of one stream apart."""
        self.names: list[str] = []
        """The name, in parts, or again as far as it is known."""
        self.arguments: list[str] = []
        self._closing = _Closing()
        self._looked_at = 0
        self._object: bool | None = None

    @property
    def text(self) -> str:
        """The arguments so far."""
        return joined("".join(self.arguments))

    def name(self, given: ToolNames) -> str:
        """Return the name: the parts together, or the one among them that was given out."""
        whole = "".join(self.names)
        return whole if given.knows(whole) else next(filter(given.knows, self.names), whole)

    def is_object(self) -> bool:
        """Tell whether the arguments begin with one whole JSON object, which nothing can continue.

        Some servers make this a question about every piece: each is looked at once, whatever their number.
        """
        new, self._looked_at = self.arguments[self._looked_at :], len(self.arguments)
        if self._object is None and any(self._closing.within(piece) for piece in new):
            self._object = parse_object(self.text) is not None
        return bool(self._object)


class _Closing:
    """Finds the bracket that closes the first one of a JSON text."""

    __slots__ = ("_depth", "_escaped", "_quoted")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def within(self, piece: str) -> bool:
        """Tell whether it is in the next piece."""
        for letter in piece:
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = letter == "\\", letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "]}":
                self._depth -= 1
                if self._depth == 0:
                    return True
        return False


class Calls:
    """The calls of one step."""

    def __init__(self) -> None:
        self._calls: list[Fragments] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, identity: str = "") -> Fragments:
        """Begin a call.

        Raises:
            ModelUnavailable: The step has as many calls as are taken.
        """
        if len(self._calls) >= MAX_CALLS:
            raise ModelUnavailable(f"the model made more than {MAX_CALLS} calls in one step", retryable=False)
        call = Fragments(identity)
        self._calls.append(call)
        return call

    def extend(self, call: Fragments, *, name: str = "", arguments: str = "") -> None:
        """Add what came of a call.

        Raises:
            ModelUnavailable: The calls are larger than what is taken.
        """
        # Some servers repeat the name with every piece.
        names = [name] if name and name not in call.names[:1] else []
        self._size += sum(len(part.encode(errors="replace")) for part in names)
        self._size += len(arguments.encode(errors="replace"))
        if self._size > MAX_CALL_BYTES:
            raise ModelUnavailable(
                f"the calls of one step have more than {MAX_CALL_BYTES} bytes", retryable=False
            )
        call.names += names
        if arguments:
            call.arguments.append(arguments)

    def complete(self, names: ToolNames) -> tuple[CallRequest, ...]:
        """Return the calls, in order.

        Half a character is no text: what stood in its place would be an argument that nobody chose.

        Raises:
            StreamEnded: One has no name, or its arguments are no JSON object.
        """
        found = []
        for call in self._calls:
            arguments = call.text
            if not arguments.strip():
                arguments = "{}"
            name = call.name(names)
            if not name.strip():
                raise StreamEnded(Ending.NAMELESS)
            if has_half(arguments) or parse_object(arguments) is None:
                raise StreamEnded(Ending.MALFORMED)
            found.append(CallRequest(names.tool_of(name), arguments))
        return tuple(found)


def parse_object(text: str) -> dict[str, object] | None:
    """Read a JSON object; None for anything else, whatever is wrong with it."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
