"""A configuration file that does not exist is named, with where to begin."""

from pathlib import Path

import pytest

from tyrum_gateway.cli.commands import run
from tyrum_gateway.config import quickstart_path


def test_a_configuration_that_does_not_exist_is_named_with_where_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands end with 3 and say which file to copy, and that TYRUM_CONFIG names the missing one."""
    config = tmp_path / "none.yaml"
    monkeypatch.setenv("TYRUM_CONFIG", str(config))
    assert run(["serve", "--state-dir", str(tmp_path / "state")]) == 3
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: `{config}` does not exist"
    assert hint.endswith(f"cp {quickstart_path()} {config}; TYRUM_CONFIG names it")
    monkeypatch.delenv("TYRUM_CONFIG")
    for command in ("validate", "show"):
        assert run(["config", command, str(config)]) == 3
        assert capsys.readouterr().err.endswith(f"cp {quickstart_path()} {config}\n")
