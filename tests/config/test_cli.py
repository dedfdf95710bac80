"""`tyrum config` as an operator runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.config.files import MINIMAL, write
from tyrum_gateway.cli.config import config_app

CANARY = "CANARY-hunter2"


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Run a subcommand and return exit code, standard output and standard error."""
    result = CliRunner(env=environment).invoke(config_app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_quickstart_is_valid() -> None:
    """Without a file the packaged quickstart is checked, and it passes."""
    code, out, _ = run("validate")
    assert code == 0
    assert out.endswith("quickstart.yaml: valid\n")


def test_problems_exit_with_three(tmp_path: Path) -> None:
    """A bad file is told line by line on standard output, counted on standard error, exit code 3."""
    path = write(tmp_path, MINIMAL + "limit: {}\n")
    assert run("validate", path) == (
        3,
        f"{path}:8:1: limit: unknown key; did you mean `limits`?\n",
        "error: 1 problem\n",
    )


def test_problems_as_json(tmp_path: Path) -> None:
    """With `--output json` the same problems are one JSON document."""
    path = write(tmp_path, MINIMAL + "limit: {}\n")
    code, out, err = run("validate", path, "--output", "json")
    assert (code, err) == (3, "")
    (problem,) = json.loads(out)["problems"]
    assert set(problem) == {"file", "line", "column", "path", "code", "message"}


def test_schema_is_json() -> None:
    """`schema` prints a JSON Schema of the format."""
    code, out, _ = run("schema")
    assert code == 0
    assert json.loads(out)["properties"]["version"]


def test_show_tells_values_and_origins(tmp_path: Path) -> None:
    """`show` lists every key in force with the side that decided it."""
    code, out, _ = run("show", write(tmp_path, MINIMAL + "approvals: {expiry: 1h}\n"))
    assert code == 0
    assert 'approvals.expiry = "1h"  (file)' in out
    assert 'limits.step_time = "5m"  (default)' in out


@pytest.mark.parametrize("output", ["text", "json"])
def test_show_hides_secrets(tmp_path: Path, output: str) -> None:
    """A secret is `***` in either form, and its value is nowhere."""
    path = write(tmp_path, MINIMAL + "secrets: {TOKEN: '${env:TOKEN}'}\n")
    code, out, err = run("show", path, "--output", output, TOKEN=CANARY)
    assert code == 0
    assert "secrets.TOKEN" in out
    assert "***" in out
    assert CANARY not in out + err


def test_show_refuses_a_bad_file(tmp_path: Path) -> None:
    """`show` of an invalid file shows its problems and exits with 3, never half a configuration."""
    code, out, _ = run("show", write(tmp_path, "version: 1\n"))
    assert code == 3
    assert "models: required key is missing" in out
