"""The spool alone, against writes of every size."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_local_spawn.supervision.record import EVIDENCE_BYTES
from tyrum_local_spawn.supervision.spool import MIN_SPOOL_BYTES, Layout, Spool, read_piece


@settings(
    database=None,
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    cap=st.just(MIN_SPOOL_BYTES),
    sizes=st.lists(st.integers(1, 3 * MIN_SPOOL_BYTES // 2), max_size=6),
    asked=st.integers(0, 4 * MIN_SPOOL_BYTES),
)
def test_a_spool_gives_back_what_it_took(
    tmp_path_factory: pytest.TempPathFactory, cap: int, sizes: list[int], asked: int
) -> None:
    """Whatever sizes writes have, every held byte reads back exactly and every other counts as dropped."""
    fd = os.open(tmp_path_factory.mktemp("spool"), os.O_DIRECTORY)
    try:
        spool = Spool(fd, "stdout", cap)
        written = b""
        for number, size in enumerate(sizes):
            data = bytes([number + 1]) * (size - 1) + b"\0"
            spool.append(memoryview(data))
            written += data
        offset = min(asked, len(written))
        position, dropped = offset, 0
        while position < len(written):
            piece = spool.read(position, 100_000)
            assert piece.offset == position + piece.dropped_before
            assert piece.data == written[piece.offset : piece.offset + len(piece.data)]
            dropped += piece.dropped_before
            position = piece.offset + len(piece.data)
        end = spool.end()
        assert end.sha256 == hashlib.sha256(written).hexdigest()
        assert end.head + end.tail == written[:EVIDENCE_BYTES] + written[EVIDENCE_BYTES:][-EVIDENCE_BYTES:]
        assert end.dropped_bytes == max(0, len(written) - cap)
        assert dropped <= end.dropped_bytes
        if offset == 0:
            assert dropped == end.dropped_bytes
    finally:
        os.close(fd)


def test_a_missing_spool_is_dropped_bytes() -> None:
    """Without its file a spool yields no byte and states them all as dropped."""
    piece = read_piece(None, Layout(MIN_SPOOL_BYTES, 500), 500, 100, 1000)
    assert (piece.offset, piece.data, piece.dropped_before) == (500, b"", 400)


def test_a_failing_disk_costs_the_spool_only(tmp_path: Path) -> None:
    """When the spool cannot be written, counting, hashing and evidence go on, and the loss is stated."""
    fd = os.open(tmp_path, os.O_DIRECTORY)
    try:
        (tmp_path / "stdout").mkdir()  # nothing can be created under this name
        spool = Spool(fd, "stdout", MIN_SPOOL_BYTES)
        spool.append(memoryview(b"x" * 1000))
        end = spool.end()
        assert (end.total_bytes, end.dropped_bytes, end.head) == (1000, 1000, b"x" * 1000)
        piece = spool.read(0, 100)
        assert (piece.offset, piece.data, piece.dropped_before) == (1000, b"", 1000)
    finally:
        os.close(fd)
