"""Which file configures the gateway."""

from pathlib import Path

import pytest

from tyrum_gateway.config import config_file, quickstart_path


def test_a_flag_wins_over_the_environment_and_that_over_the_quickstart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of flag, variable and default the first that says something decides."""
    monkeypatch.delenv("TYRUM_CONFIG", raising=False)
    assert config_file() == quickstart_path()
    monkeypatch.setenv("TYRUM_CONFIG", "variable.yaml")
    assert config_file() == Path("variable.yaml")
    assert config_file(Path("flag.yaml")) == Path("flag.yaml")


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as a service file may leave it, names no file."""
    monkeypatch.setenv("TYRUM_CONFIG", "")
    assert config_file() == quickstart_path()
