"""Tool calls that arrive in pieces: collected within bounds, and taken only whole.

Invariant: a call leaves here only when its arguments are one JSON object; nothing is guessed or repaired.
"""

import json
from typing import NoReturn

from tyrum_gateway.app.step_bounds import MAX_CALL_BYTES, MAX_CALLS
from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import CallRequest
from tyrum_gateway.models.tool_names import ToolNames


class Fragments:
    """One call so far."""

    __slots__ = ("arguments", "identity", "name")

    def __init__(self, identity: str) -> None:
        self.identity = identity
        """The server's id; only tells calls of one stream apart."""
        self.name = ""
        self.arguments: list[str] = []

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.arguments)


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
        self._size += len(name.encode(errors="replace")) + len(arguments.encode(errors="replace"))
        if self._size > MAX_CALL_BYTES:
            raise ModelUnavailable(
                f"the calls of one step have more than {MAX_CALL_BYTES} bytes", retryable=False
            )
        call.name += name
        if arguments:
            call.arguments.append(arguments)

    def complete(self, names: ToolNames) -> tuple[CallRequest, ...] | None:
        """Return the calls, in order; None when one has no name or its arguments are no JSON object."""
        found = []
        for call in self._calls:
            arguments = call.text
            if not arguments.strip():
                arguments = "{}"
            if not call.name or parse_object(arguments) is None:
                return None
            found.append(CallRequest(names.tool_of(call.name), arguments))
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
