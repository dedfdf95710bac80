"""`tyrum config` as an operator runs it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.files import MINIMAL, QUICKSTART, write
from tyrum_gateway.cli.commands import run as run_command
from tyrum_gateway.config import load_settings

CANARY = "CANARY-hunter2"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `tyrum config …` and return exit code, standard output and standard error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = run_command(["config", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_quickstart_is_valid(run: Run) -> None:
    """Without a file the packaged quickstart is checked, and it passes."""
    code, out, _ = run("validate")
    assert code == 0
    assert out.endswith("quickstart.yaml: valid\n")


def test_problems_exit_with_three(run: Run, tmp_path: Path) -> None:
    """A bad file is told line by line on standard output, counted on standard error, exit code 3."""
    path = write(tmp_path, MINIMAL + "limit: {}\n")
    assert run("validate", path) == (
        3,
        f"{path}:8:1: limit: unknown key; did you mean `limits`?\n",
        "error: 1 problem in the configuration\n",
    )


def test_a_place_of_heads_that_does_not_exist_is_a_problem(run: Run, tmp_path: Path) -> None:
    """What the gateway would refuse to start with is found before: its directory has to be there."""
    for directory, expected in [(tmp_path / "gone", 3), (tmp_path, 0)]:
        path = write(tmp_path, f"{MINIMAL}audit:\n  heads: {directory}/heads.jsonl\n")
        code, out, _ = run("validate", path)
        assert code == expected
        assert ("9:3: audit.heads: the directory of this file does not exist" in out) == bool(code)
    state = tmp_path / "state"
    path = write(tmp_path, f"{MINIMAL}audit:\n  heads: {state}/audit/heads.jsonl\n")
    assert load_settings(path, environment={}, state_dir=state).audit_heads  # the start makes that one


def test_problems_as_json(run: Run, tmp_path: Path) -> None:
    """With `--output json` the same problems are one JSON document."""
    path = write(tmp_path, MINIMAL + "limit: {}\n")
    code, out, err = run("validate", path, "--output", "json")
    assert (code, err) == (3, "error: 1 problem in the configuration\n")
    (problem,) = json.loads(out)["problems"]
    assert set(problem) == {"file", "line", "column", "path", "code", "message"}


def test_schema_is_json(run: Run) -> None:
    """`schema` prints a JSON Schema of the format."""
    code, out, _ = run("schema")
    assert code == 0
    assert json.loads(out)["properties"]["version"]


def test_show_tells_values_and_origins(run: Run, tmp_path: Path) -> None:
    """`show` lists every key in force with the side that decided it."""
    code, out, _ = run("show", write(tmp_path, MINIMAL + "approvals: {expiry: 1h}\n"))
    assert code == 0
    assert 'approvals.expiry = "1h"  (file)' in out
    assert 'limits.step_time = "5m"  (default)' in out


@pytest.mark.parametrize("output", ["text", "json", "jsonl"])
def test_show_hides_secrets(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """A secret is `***` in either form, and its value is nowhere."""
    path = write(tmp_path, MINIMAL + "secrets: {TOKEN: '${env:TOKEN}'}\n")
    monkeypatch.setenv("TOKEN", CANARY)
    code, out, err = run("show", path, "--output", output)
    assert code == 0
    assert "secrets.TOKEN" in out
    assert "***" in out
    assert CANARY not in out + err


def test_show_refuses_a_bad_file(run: Run, tmp_path: Path) -> None:
    """`show` of an invalid file shows its problems and exits with 3, never half a configuration."""
    code, out, _ = run("show", write(tmp_path, "version: 1\n"))
    assert code == 3
    assert "models: required key is missing" in out


def test_probe_admits_the_quickstart(run: Run) -> None:
    """`--probe` starts the quickstart's provider, sees it admitted, and stops it again."""
    code, out, err = run("validate", "--probe", "--output", "json")
    assert (code, err) == (0, "")
    (provider,) = json.loads(out)["providers"]
    assert (provider["name"], provider["admitted"], provider["reason"]) == ("local", True, "")


def test_probe_names_the_refusal(run: Run, tmp_path: Path) -> None:
    """A provider that `--probe` finds not admitted, and a model whose server does not answer, are problems at
    their keys, with the reason; exit code 6.
    """
    model = "  main: {kind: openai, model: m, api_key: K, base_url: 'http://127.0.0.1:9/v1'}"
    key = tmp_path / "key"
    key.write_text("sk-1234567")
    text = QUICKSTART.replace("models:\n", f"models:\n{model}\n", 1) + f"secrets: {{K: '${{file:{key}}}'}}\n"
    path = write(tmp_path, text.replace("[tyrum-provider-local-spawn]", "[/bin/false]"))
    lines = text.splitlines()
    code, out, err = run("validate", path, "--probe")
    assert (code, err) == (6, "error: not admitted: local; models do not answer: main\n")
    provider, asked = out.splitlines()
    assert provider.startswith(
        f"{path}:{lines.index('  local:') + 1}:3: providers.local: refused at listen: "
    )
    assert asked.startswith(
        f"{path}:{lines.index(model) + 1}:3: models.main: the server of the model `main` "
    )
    assert "`127.0.0.1:9` refuses connections" in asked


def test_probe_finds_a_setting_the_provider_does_not_know(run: Run, tmp_path: Path) -> None:
    """The provider's own settings are checked against the schema that it declares."""
    path = write(
        tmp_path, QUICKSTART.replace("run_as: gateway_user", "run_as: gateway_user\n      run_az: x")
    )
    code, out, _ = run("validate", path, "--probe", "--output", "json")
    assert code == 6
    result = json.loads(out)
    assert [problem["code"] for problem in result["problems"]] == ["not_admitted"]
    assert "run_az" in result["problems"][0]["message"]
    assert result["providers"][0]["admitted"] is False


def test_probe_names_the_profile_that_can_run_nothing(run: Run, tmp_path: Path) -> None:
    """A profile that requires what its provider does not prove is a problem at that key; exit code 6."""
    text = QUICKSTART.replace(
        "provider: local", "provider: local\n      required_claims: [net.none, fs.read]"
    )
    path = write(tmp_path, text)
    line = text.splitlines().index("      required_claims: [net.none, fs.read]") + 1
    code, out, err = run("validate", path, "--probe")
    assert (code, err) == (6, "error: required claims are not proved: default\n")
    assert out == (
        f"{path}:{line}:7: profiles.isolation.default.required_claims: profile `default` requires net.none, "
        "fs.read; provider `local` does not prove them: process.run is not offered\n"
    )


def test_probe_does_not_start_what_a_bad_file_names(run: Run, tmp_path: Path) -> None:
    """A file with a problem starts nothing."""
    marker = tmp_path / "started"
    text = QUICKSTART.replace("[tyrum-provider-local-spawn]", f"[/bin/touch, {marker}]")
    code, _, _ = run("validate", write(tmp_path, text + "limit: {}\n"), "--probe")
    assert code == 3
    assert not marker.exists()
