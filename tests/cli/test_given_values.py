"""Values that are empty, paths that begin with `~`, and a user without a home: one answer everywhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.files import lines
from tests.support.gateway import RunningGateway
from tyrum_gateway.cli.commands import run
from tyrum_gateway.config import quickstart_path

HOMELESS = """\
import os, pwd, sys
from tyrum_gateway.cli.main import main
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
os.environ.pop("HOME", None) if HOME is None else os.environ.update(HOME=HOME)
"""
"""A user who is in no database of users, with this HOME."""
WHOAMI = """\
os.geteuid = lambda: 4242  # root has a default of its own
sys.argv[1:] = ["whoami"]
main()
"""
SERVE = """\
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
sys.argv[1:1] = ["serve"]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["whoami", "--state-dir", ""], "--state-dir"),
        (["serve", "--state-dir="], "--state-dir"),
        (["serve", "--config", ""], "--config"),
        (["config", "validate", ""], "FILE"),
        (["policy", "explain", "{}", "--bundle", ""], "--bundle"),
        (["chat", "hello", "--conversation", ""], "--conversation"),
        (["approvals", "deny", "appr_x", "--reason", ""], "--reason"),
        (["runs", "list", "--address", ""], "--address"),
        (["audit", "export", "--file", ""], "--file"),
        (["proto", "export", ""], "DIR"),
        (["whoami", "--token-file", ""], "--token-file"),
    ],
)
def test_an_empty_value_is_refused(
    arguments: list[str],
    place: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unset variable in a script is no value: nothing is made where the command was called."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert place in error
    assert "must not be empty" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--state-dir", "~/x"],
        ["serve", "--config=~/x.yaml"],
        ["config", "validate", "~/x.yaml"],
        ["proto", "export", "~ada/x"],
        ["whoami", "--address", "unix:~/x.sock"],
        ["audit", "export", "--file", "~/x"],
        ["whoami", "--token-file", "~/token"],
    ],
)
def test_a_home_is_not_guessed(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A `~` that no shell has resolved is refused, and no directory of that name is made."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert "`~` is not resolved here: write the whole path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("TYRUM_STATE_DIR", ["whoami"]),
        ("TYRUM_CONFIG", ["config", "validate"]),
        ("TYRUM_CONFIG", ["serve", "--state-dir", "state"]),
        ("TYRUM_TOKEN_FILE", ["whoami", "--state-dir", "state", "--address", "127.0.0.1:1"]),
    ],
)
def test_variables_keep_the_same_rule(
    variable: str,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable's `~` is refused as an option's is, with the variable's name; an empty one is not set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "~/x")
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {variable}: `~` is not resolved here")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(variable, "")
    assert run(["config", "validate"]) == 0


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("workspace: workspaces/default", "workspace: ~/work", "agents.default.workspace"),
        ("provider: local", "provider: local\n      path: [~/bin]", "profiles.isolation.default.path[0]"),
        ("version: 1", "version: 1\naudit: {heads: ~/heads}", "audit.heads"),
        ("version: 1", "version: 1\nsecrets: {KEY: '${file:~/key}'}", "secrets.KEY"),
        ("version: 1", "version: 1\nlisten: {unix: ~/x.sock}", "listen.unix"),
    ],
)
def test_paths_of_the_configuration_keep_the_same_rule(tmp_path: Path, old: str, new: str, path: str) -> None:
    """`workspace: ~/work` is not a directory called `~` below the state."""
    text = quickstart_path().read_text(encoding="utf-8").replace(old, new, 1)
    found = lines(tmp_path, text)
    assert any(path in line and "`~` is not resolved here" in line for line in found), found


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_a_user_without_a_home_is_told_what_to_name(tmp_path: Path, home: str | None) -> None:
    """No entry in the database of users and no HOME of use: one line and a hint, never a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", f"HOME = {home!r}\n{HOMELESS}{WHOAMI}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].endswith("has no home directory to keep state in")
    assert done.stderr.splitlines()[1].startswith(
        "hint: name a directory: --state-dir DIR or TYRUM_STATE_DIR"
    )


def test_a_gateway_serves_without_a_home_and_without_stderr(tmp_path: Path) -> None:
    """With a state directory no home is needed; a stderr that takes nothing ends no start."""
    launcher = (sys.executable, "-c", f"HOME = None\n{HOMELESS}{SERVE}")
    gateway = RunningGateway(tmp_path / "state", launcher=launcher)
    gateway.start()
    assert gateway.stop() == 0
    assert gateway.log.splitlines()[-1] == "Talk to it: tyrum chat"


def test_what_stderr_does_not_take_is_lost() -> None:
    """A message for people never ends a command, also not at its exit."""
    code = (
        "import os, sys\nfrom tyrum_gateway.cli import streams\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\nstreams.prepare()\n"
        "from tyrum_gateway.cli.output import note\nnote('warning: lost')\nprint('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
