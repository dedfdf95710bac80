"""Reading what one page shows.

Invariant: however large entries are, hardly more of them are in memory than fit into a message.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tyrum_gateway.rpc.convert import MAX_PAGE

FIRST = 32
"""Entries that are read first; as long as they are small, twice as many follow each time."""

_Item = TypeVar("_Item")


async def enough(
    read: Callable[[_Item | None, int], Awaitable[Sequence[_Item]]], size: Callable[[_Item], int], most: int
) -> list[_Item]:
    """Read entries for a page.

    Args:
        read: Reads entries after one, from the beginning on after None, at most as many as the number says.
        size: Tells about how many bytes an entry has.
        most: Entries at most: one more than the page may have tells whether another page follows.
    """
    found: list[_Item] = []
    held, step = 0, FIRST
    while len(found) < most and held <= MAX_PAGE:
        limit = min(most - len(found), step)
        some = await read(found[-1] if found else None, limit)
        found += some
        if len(some) < limit:
            break
        held, step = held + sum(map(size, some)), 2 * step
    return found
