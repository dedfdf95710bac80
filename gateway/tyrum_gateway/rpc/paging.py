"""Reading what one page shows.

Invariant: entries are read in batches, and no further batch once those that were read fill a message: a page
of large ones costs one batch of them, not as many as were asked for.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tyrum_gateway.rpc.convert import MAX_PAGE

FIRST = 32
"""Entries of the first batch; as long as they are small, each batch is twice the one before."""

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
