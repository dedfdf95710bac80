"""The shipped service unit starts this gateway, gives it the time it needs and keeps what it must."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.command_line import problems_of
from tests.support.gateway import TYRUM, RunningGateway
from tyrum_gateway.bootstrap.serve import DRAIN_SECONDS, GRACE_SECONDS
from tyrum_gateway.cli.failure import ExitCode
from tyrum_provider_host.ending import KILL_WAIT
from tyrum_provider_host.spec import TimeBounds

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_ENTRY = re.compile(r"(\w+)=(.*)")


def parse(text: str) -> Mapping[str, Sequence[str]]:
    """Read the values of every key of a unit in their order; a line that is neither fails."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            entry = _ENTRY.fullmatch(line)
            assert entry, f"not a line of a unit: {line}"
            found.setdefault(f"{section}.{entry[1]}", []).append(entry[2])
    return found


@pytest.fixture
def unit() -> Mapping[str, Sequence[str]]:
    """The shipped unit."""
    return parse((DEPLOY / "tyrum.service").read_text(encoding="utf-8"))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path is short enough for sockets, as /run is."""
    with tempfile.TemporaryDirectory(prefix="tyrum-", dir="/tmp") as directory:
        yield Path(directory)


def one(unit: Mapping[str, Sequence[str]], key: str) -> str:
    """Return the value of a key that stands in the unit once."""
    (value,) = unit[f"Service.{key}"]
    return value


def test_the_unit_starts_an_installed_command_with_options_it_has(unit: Mapping[str, Sequence[str]]) -> None:
    """ExecStart is the absolute path of a console script with a command and options that exist."""
    program, *arguments = one(unit, "ExecStart").split()
    assert program.startswith("/")
    assert Path(program).name == TYRUM.name
    assert TYRUM.exists()
    assert problems_of(arguments) == []


def test_a_stop_waits_longer_than_draining_may_take(unit: Mapping[str, Sequence[str]]) -> None:
    """Systemd kills nobody who is still within the bounds that gateway and host give themselves."""
    bounds = TimeBounds()
    providers = bounds.drain + bounds.shutdown_ack + bounds.shutdown_grace + bounds.term_grace + KILL_WAIT
    seconds = re.fullmatch(r"(\d+)s", one(unit, "TimeoutStopSec"))
    assert seconds
    assert int(seconds[1]) > DRAIN_SECONDS + GRACE_SECONDS + providers


def test_a_stop_signals_the_gateway_alone(unit: Mapping[str, Sequence[str]]) -> None:
    """What may outlive the gateway is not killed with it, and has an owner that stays."""
    assert one(unit, "KillMode") == "process"
    assert one(unit, "Type") == "exec"
    assert "Service.DynamicUser" not in unit
    user = one(unit, "User")
    declared = (DEPLOY / "tyrum.sysusers.conf").read_text(encoding="utf-8")
    assert re.search(rf"^u {user} ", declared, re.MULTILINE)


def test_the_unit_does_not_restart_what_stays_wrong(unit: Mapping[str, Sequence[str]]) -> None:
    """The exit codes that the unit gives up on are those of usage and configuration."""
    given_up = {int(code) for code in one(unit, "RestartPreventExitStatus").split()}
    assert given_up == {ExitCode.USAGE, ExitCode.CONFIG_INVALID}


def test_a_disk_that_was_full_for_long_keeps_no_gateway_down(unit: Mapping[str, Sequence[str]]) -> None:
    """Nothing but usage and configuration is given up on, and a command without memory ends alone."""
    assert unit["Unit.StartLimitIntervalSec"] == ["0"]
    assert one(unit, "Restart") == "on-failure"
    assert one(unit, "OOMPolicy") == "continue"


def test_nothing_that_providers_need_is_taken(unit: Mapping[str, Sequence[str]]) -> None:
    """No directive that the README names as left out has come back, and sockets of all families are there."""
    (left_out,) = re.findall(
        r"Left out because(.*?)\n- \*\*", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names = re.findall(r"`(\w+)=`", left_out)
    assert len(names) > 3
    assert [name for name in names if f"Service.{name}" in unit] == []
    assert {"AF_UNIX", "AF_INET", "AF_INET6"} <= set(one(unit, "RestrictAddressFamilies").split())


@pytest.mark.slow
def test_the_gateway_serves_in_the_environment_of_the_unit(
    unit: Mapping[str, Sequence[str]], short_path: Path
) -> None:
    """With the modes, umask and variables of the unit, and no others, it serves; SIGTERM ends it with 0."""
    state, runtime = short_path / "lib", short_path / "run"
    for base, kind in ((state, "State"), (runtime, "Runtime")):
        base.mkdir()
        (base / one(unit, f"{kind}Directory")).mkdir(mode=int(one(unit, f"{kind}DirectoryMode"), 8))
    variables = dict(
        line.replace("%S", str(state)).replace("%t", str(runtime)).split("=", 1)
        for line in unit["Service.Environment"]
    )
    _, command, *arguments = one(unit, "ExecStart").split()
    assert arguments[0] == "--config"
    # What RunningGateway adds to the command are further arguments of sh, which ignores them.
    installed = DEPLOY.parent / "examples/quickstart.yaml"
    gateway = RunningGateway(
        Path(variables["TYRUM_STATE_DIR"]),
        launcher=(
            "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items()),
            "sh", "-c", f'umask {one(unit, "UMask")}; exec "$0" {command} {arguments[0]} "$1"',
            str(TYRUM), str(installed),
        ),
    )  # fmt: skip
    try:
        gateway.start()
        if os.geteuid() != 0:  # root's sockets are in /run/tyrum, whatever the environment says
            assert gateway.address.startswith(f"unix:{variables['XDG_RUNTIME_DIR']}/")
        status = subprocess.run(
            [str(TYRUM), "providers", "list"],
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert status.returncode == 0, status.stderr
        assert "admitted" in status.stdout.lower()
    finally:
        code = gateway.stop()
    assert code == ExitCode.OK
