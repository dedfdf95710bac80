"""How much one model step may say; what is more ends the turn.

Invariant: whatever a model emits, every event of its step fits into a client message, and the memory that a
step takes is bounded. Without that one step could make a conversation unreadable for good.
"""

from collections.abc import Sequence

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import CallRequest

MAX_TEXT_BYTES = 1024 * 1024
"""Text of a step in UTF-8 bytes."""
MAX_CALLS = 64
"""Tool calls of a step."""
MAX_CALL_BYTES = 1024 * 1024
"""Tool names and arguments of all calls of a step in UTF-8 bytes."""


class StepText:
    """Collects the text of one step, within its bound."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._closed = False

    def close(self) -> None:
        """Take nothing more: the attempt is over, whether or not its model knows."""
        self._closed = True

    def add(self, text: str) -> None:
        """Append text.

        Raises:
            ModelUnavailable: The step says more than `MAX_TEXT_BYTES`, and what came before is kept; or the
                attempt is over.
        """
        if self._closed:
            raise ModelUnavailable("the attempt is over", retryable=False)
        self._size += len(text.encode())
        if self._size > MAX_TEXT_BYTES:
            raise ModelUnavailable(
                f"the model said more than {MAX_TEXT_BYTES} bytes in one step", retryable=False
            )
        self._parts.append(text)

    def __str__(self) -> str:
        return "".join(self._parts)


def require_few(calls: Sequence[CallRequest]) -> None:
    """Check the calls of a step before any of them is looked at.

    Raises:
        ModelUnavailable: They are too many or too large.
    """
    if len(calls) > MAX_CALLS:
        raise ModelUnavailable(
            f"the model made {len(calls)} calls in one step, at most {MAX_CALLS} are taken", retryable=False
        )
    size = sum(len(call.tool.encode()) + len(call.arguments.encode()) for call in calls)
    if size > MAX_CALL_BYTES:
        raise ModelUnavailable(
            f"the calls of one step have {size} bytes, at most {MAX_CALL_BYTES} are taken", retryable=False
        )
