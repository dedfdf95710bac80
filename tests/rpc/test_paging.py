"""What a page is read from: all that it shows, and hardly more."""

from collections.abc import Sequence

import pytest

from tyrum_gateway.rpc import paging
from tyrum_gateway.rpc.paging import enough

ENTRIES = range(1, 400)


@pytest.mark.parametrize("most", [1, 31, 32, 33, 200, 399, 400, 1000])
async def test_small_entries_are_all_read_in_order(most: int) -> None:
    """Whatever a page may have, it gets: as many as it may show, or all."""
    reads: list[int] = []

    async def read(last: int | None, limit: int) -> Sequence[int]:
        reads.append(limit)
        return ENTRIES[last or 0 :][:limit]

    assert await enough(read, lambda _: 1, most) == list(ENTRIES[:most])
    assert len(reads) <= 5, "and in few reads"


async def test_of_large_entries_no_more_are_read_than_a_page_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred approvals of 2 MB, read at once for a page of two, took more memory than all else."""
    monkeypatch.setattr(paging, "FIRST", 2)
    read_so_far = 0

    async def read(last: int | None, limit: int) -> Sequence[int]:
        nonlocal read_so_far
        read_so_far += limit
        return ENTRIES[last or 0 :][:limit]

    assert await enough(read, lambda _: 2_000_000, 200) == [1, 2]
    assert read_so_far == 2
