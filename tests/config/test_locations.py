"""Where a gateway looks for its directories and its file."""

from pathlib import Path

import pytest

from tyrum_gateway.config import quickstart_path
from tyrum_gateway.config.locations import locate


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TYRUM_STATE_DIR", "TYRUM_CONFIG", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_flag_wins_over_the_environment_and_that_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of flag, variable and default the first that says something decides."""
    assert locate().config_file == quickstart_path()
    monkeypatch.setenv("TYRUM_STATE_DIR", "/from/variable")
    monkeypatch.setenv("TYRUM_CONFIG", "variable.yaml")
    assert (locate().state_dir, locate().config_file) == (Path("/from/variable"), Path("variable.yaml"))
    chosen = locate(state_dir=Path("/from/flag"), config_file=Path("flag.yaml"))
    assert (chosen.state_dir, chosen.config_file) == (Path("/from/flag"), Path("flag.yaml"))


@pytest.mark.parametrize(
    ("uid", "session", "state", "runtime"),
    [
        (0, "/run/user/0", "/var/lib/tyrum", "/run/tyrum"),
        (1000, "/run/user/1000", "/home/ada/.local/state/tyrum", "/run/user/1000/tyrum"),
        (1000, "", "/home/ada/.local/state/tyrum", "/tmp/tyrum-1000"),
    ],
)
def test_defaults_depend_on_the_user(
    monkeypatch: pytest.MonkeyPatch, uid: int, session: str, state: str, runtime: str
) -> None:
    """Root has system directories; anybody else their own, with or without a login session."""
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_RUNTIME_DIR", session)
    assert (locate().state_dir, locate().runtime_dir) == (Path(state), Path(runtime))


def test_two_gateways_do_not_share_sockets() -> None:
    """Gateways of one user with different state directories have different, short runtime directories."""
    first, second = locate(state_dir=Path("/a")).runtime_dir, locate(state_dir=Path("/b" * 500)).runtime_dir
    assert first != second
    assert max(len(str(first)), len(str(second))) < 64


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as a service file may leave it, does not name the current directory."""
    monkeypatch.setenv("TYRUM_STATE_DIR", "")
    assert locate().state_dir.is_absolute()
    assert locate().state_dir != Path.cwd()
