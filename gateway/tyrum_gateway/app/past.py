"""What a turn under way remembers: the past is read once, because earlier turns are final."""

from dataclasses import replace

from tyrum_gateway.domain.ports import Store, Window
from tyrum_gateway.domain.prompt import WINDOW
from tyrum_gateway.domain.turn import Turn


class Past:
    """The windows of one turn's attempts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._first: Window | None = None

    async def window(self, turn: Turn) -> Window:
        """Read what the turn's next prompt is built from."""
        if self._first is None:
            self._first = await self._store.window(turn, WINDOW)
            return self._first
        own = (await self._store.window(turn, 0)).own
        return replace(self._first, own=own)
