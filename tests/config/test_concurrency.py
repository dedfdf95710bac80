"""A profile that may be given more than its provider runs at once is told of."""

import os
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tyrum_gateway.config import check_file
from tyrum_gateway.config.concurrency import concurrency_warnings

QUICKSTART = (ROOT / "examples/quickstart.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("config", "turns", "declared", "limit"),
    [
        ("", 64, {"local": 256}, None),
        ("max_concurrent: 8", 64, None, 8),
        ("max_concurrent: 8", 8, {"local": 256}, None),
        ("", 64, {"local": 4}, 4),
    ],
)
def test_more_turns_than_places_are_a_warning(
    tmp_path: Path, config: str, turns: int, declared: dict[str, int] | None, limit: int | None
) -> None:
    """Nothing said that starts would fail, or wait, for want of places at the provider."""
    path = tmp_path / "tyrum.yaml"
    given = f"run_as: gateway_user\n      {config}" if config else "run_as: gateway_user"
    assert QUICKSTART.count("run_as: gateway_user") == 1
    text = QUICKSTART.replace("run_as: gateway_user", given)
    path.write_text(f"{text}\nlimits:\n  concurrent_turns: {turns}\n", encoding="utf-8")
    found = concurrency_warnings(check_file(path, environment=os.environ), declared)
    assert [problem.path for problem in found] == [("profiles", "isolation", "default", "provider")] * bool(
        limit
    )
    assert all(f"at most {limit} commands" in problem.message for problem in found)
