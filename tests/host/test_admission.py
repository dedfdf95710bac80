"""A good provider is admitted, sees nothing it should not, and disturbs nothing."""

import asyncio
import errno
import os
import re
import shutil
import signal
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.support import (
    DOUBLES,
    FAST,
    PYTHON,
    Place,
    arguments_of,
    environment_of,
    eventually,
    own,
    processes_mentioning,
    spec,
)
from tyrum_provider_host import (
    ExitNotice,
    HostSetupError,
    Lifecycle,
    ProviderHost,
    ProviderStatus,
    ProviderUnavailable,
    RestartPolicy,
    Secret,
    Stage,
    StateName,
    StateValue,
    packaged_contracts,
    proof,
)
from tyrum_provider_host.artifact import measure
from tyrum_provider_host.launch import spawn
from tyrum_provider_host.logs import DRAIN_PAUSE, LogRing

SETTLE = 30.0
CANARY = "canary-3f9a1c77b2"


def admitted(host: ProviderHost, name: str) -> ProviderStatus:
    """Return the status of a provider that must be admitted."""
    status = host.status(name)
    assert status.lifecycle is Lifecycle.ADMITTED, status.reason
    return status


async def test_admits_through_every_stage(place: Place) -> None:
    """A conforming provider passes all stages in their order, has the states, and can be leased."""
    async with ProviderHost(
        [spec("good")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        assert await host.wait_settled(SETTLE)
        status = admitted(host, "good")
        assert [item.stage for item in status.stages] == list(Stage)
        assert {state.name: state.value for state in status.states} == {
            StateName.INSTALLED: StateValue.TRUE,
            StateName.CONFIGURED: StateValue.TRUE,
            StateName.READY: StateValue.TRUE,
            StateName.HEALTHY: StateValue.TRUE,
            StateName.CAPABLE: StateValue.TRUE,
            StateName.DEGRADED: StateValue.FALSE,
        }
        assert "provisional: no conformance evidence yet" in {state.reason for state in status.states}
        assert status.posture is not None
        assert status.posture.run_uid == os.geteuid()
        lease = host.lease("good")
        ours = next(item for item in packaged_contracts() if item.kind == "isolation")
        assert (lease.contract, lease.contract_digest) == ("isolation 1.0", ours.digest)
        assert lease.artifact_digest == measure(spec("good").command).digest
        assert lease.provider_id == "dev.tyrum.conformance.good"
        assert re.fullmatch(r"inst_[0-9a-hjkmnp-tv-z]{26}", lease.instance_id)
        assert status.admission_seconds is not None
        assert lease.generation == 1


async def test_waits_for_what_a_predecessor_still_holds(place: Place) -> None:
    """A provider that cannot yet, and says so, is asked again: within a start, and with later starts."""
    away = place.state.parent / "away"
    host = ProviderHost(
        [own("busy_at_first", str(away.parent), name="busy")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=RestartPolicy(initial_delay=0.1, max_delay=0.1, crash_limit=1000),
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        pid = admitted(host, "busy").pid
        assert pid is not None
        away.touch()
        os.kill(pid, signal.SIGKILL)
        assert await host.wait_until(
            lambda host: (
                host.status("busy").lifecycle is Lifecycle.BACKING_OFF
                and "refused at posture" in host.status("busy").reason
            ),
            SETTLE,
        )
        away.unlink()
        assert await host.wait_until(lambda host: host.status("busy").lifecycle is Lifecycle.ADMITTED, SETTLE)


async def test_a_process_that_cannot_be_observed_is_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no descriptor is left to watch a started process with, it does not go on unwatched."""

    def exhausted(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(OSError, match="open files"):
        spawn(
            ("/bin/sleep", "3600"),
            environment={"MARK": str(place.state)},
            token_line=b"",
            ring=LogRing(),
        )
    assert processes_mentioning(str(place.state)) == []


async def test_stop_leaves_nothing(place: Place) -> None:
    """After stop there is no process, no instance directory and no lease; the state directory remains."""
    notices: list[ExitNotice] = []
    host = ProviderHost(
        [spec("good"), own("slow_calls", name="other")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        on_exit=notices.append,
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        admitted(host, "other")
        assert len(place.instances()) == 2
    assert processes_mentioning(str(place.runtime)) == []
    assert place.instances() == []
    assert {(notice.name, notice.expected, notice.exit.code) for notice in notices} == {
        ("good", True, 0),
        ("other", True, 0),
    }
    assert host.status("good").lifecycle is Lifecycle.STOPPED
    with pytest.raises(ProviderUnavailable, match="stopped"):
        host.lease("good")
    directory = place.state / "providers" / "good"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_stop_ends_a_provider_that_ignores_it(place: Place) -> None:
    """A provider that ignores Shutdown and SIGTERM is ended by SIGKILL within the bounds."""
    bounds = replace(FAST, shutdown_grace=0.2, shutdown_ack=0.5, term_grace=0.2)
    async with ProviderHost(
        [spec("ignores_stop")], state_dir=place.state, runtime_dir=place.runtime, bounds=bounds
    ) as host:
        assert await host.wait_settled(SETTLE)
        admitted(host, "ignores-stop")
        async with asyncio.timeout(SETTLE):
            await host.stop()
    assert processes_mentioning(str(place.runtime)) == []


async def test_stop_during_admission_leaves_nothing(place: Place) -> None:
    """Stopping while a provider starts ends it at once."""
    async with ProviderHost(
        [spec("never_listens")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        await eventually(lambda: host.status("never-listens").pid)
    assert processes_mentioning(str(place.runtime)) == []
    assert place.instances() == []


async def test_environment_holds_documented_names_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider gets the documented names and the allowed ones, and nothing else."""
    monkeypatch.setenv("DATABASE_URL", CANARY)
    allowed = spec("good", command=("/bin/sleep", "60"), environment={"HTTPS_PROXY": "http://proxy:3128"})
    async with ProviderHost([allowed], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        await eventually(lambda: host.status("good").pid)
        pid = host.status("good").pid
        assert pid is not None
        found = environment_of(pid)
        socket = found["TYRUM_PROVIDER_SOCKET"]
        assert set(found) == {
            "GRPC_ENABLE_FORK_SUPPORT",
            "HTTPS_PROXY",
            "LANG",
            "PATH",
            "TMPDIR",
            "TYRUM_PROVIDER_CONTROL_VERSIONS",
            "TYRUM_PROVIDER_INSTANCE_ID",
            "TYRUM_PROVIDER_RUNTIME_DIR",
            "TYRUM_PROVIDER_SOCKET",
            "TYRUM_PROVIDER_STATE_DIR",
        }
        assert len(os.fsencode(socket)) <= 100
        assert stat.S_IMODE(Path(socket).parent.stat().st_mode) == 0o700
        assert CANARY not in str(found)


async def test_secrets_stay_where_they_are_projected(place: Place) -> None:
    """A projected secret, even a printed one, appears in no argument, environment, log or status."""
    leaking = spec("leaks_secret_to_log", secrets={"api_key": lambda: Secret(CANARY)})
    async with ProviderHost([leaking], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        status = admitted(host, "leaks-secret-to-log")
        await eventually(lambda: any("DEBUG" in line for line in host.status("leaks-secret-to-log").log))
        status = host.status("leaks-secret-to-log")
        assert any("api_key=***" in line for line in status.log)
        assert CANARY not in repr(status)
        assert status.pid is not None
        assert CANARY not in str(environment_of(status.pid)) + arguments_of(status.pid)
        assert repr(leaking.secrets["api_key"]).find(CANARY) == -1


async def test_token_stays_secret(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token and bearer are in no argument, environment or log, even when the provider prints its input."""
    token = bytes(range(32))
    monkeypatch.setattr(proof, "new_token", lambda: token)
    secrets = (proof.encode(token), proof.bearer(token))
    specs = [own("prints_token", name="printing"), spec("good")]
    async with ProviderHost(specs, state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        pid = admitted(host, "good").pid
        assert pid is not None
        printing = host.status("printing")
        assert printing.lifecycle is Lifecycle.REJECTED
        assert "stderr: my token is ***" in printing.log
        for secret in secrets:
            shown = str(environment_of(pid)) + arguments_of(pid) + repr(host.statuses())
            assert secret not in shown


async def test_noise_disturbs_nothing(place: Place) -> None:
    """A provider that floods its output is admitted, stays healthy and leaves a bounded log."""
    async with ProviderHost(
        [spec("noisy")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        assert await host.wait_settled(SETTLE)
        admitted(host, "noisy")
        await eventually(lambda: host.status("noisy").log[-1].endswith("bytes of output dropped]"))
        status = admitted(host, "noisy")
        assert sum(map(len, status.log)) < 200 * 8300
        assert not any("\x1b" in line for line in status.log)


async def test_a_flood_of_output_leaves_the_host_responsive(place: Place) -> None:
    """A process that writes lines as fast as it can is read one pipe buffer a pause, however fast it is."""
    flooding = spec("good", name="flood", command=("/usr/bin/yes",), start_timeout=600.0)
    async with ProviderHost(
        [flooding], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:

        def dropped() -> int:
            log = host.status("flood").log
            found = re.fullmatch(r"\[(\d+) bytes of output dropped\]", log[-1]) if log else None
            return int(found[1]) if found else 0

        await eventually(dropped)
        before, since = dropped(), asyncio.get_running_loop().time()
        await eventually(lambda: dropped() > before + 40 * 64 * 1024)
        # A busy machine only makes it slower; without the pauses it would be over at once.
        assert asyncio.get_running_loop().time() - since > 20 * DRAIN_PAUSE


async def test_admits_concurrently(place: Place) -> None:
    """A provider that does not get on with its start does not delay the others."""
    specs = [spec("never_listens", start_timeout=600.0), spec("good"), spec("good", name="second")]
    async with ProviderHost(specs, state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_until(
            lambda host: (
                host.status("second").lifecycle is Lifecycle.ADMITTED
                and host.status("good").lifecycle is Lifecycle.ADMITTED
            ),
            SETTLE,
        )
        assert host.status("never-listens").lifecycle is Lifecycle.STARTING
        assert not await host.wait_settled(0.0)


async def test_runtime_directory_must_be_private(place: Place) -> None:
    """A runtime directory that others may write to is refused with its mode."""
    place.runtime.mkdir(parents=True)
    place.runtime.chmod(0o777)
    host = ProviderHost([spec("good")], state_dir=place.state, runtime_dir=place.runtime)
    with pytest.raises(HostSetupError, match="mode 0777"):
        await host.start()


async def test_socket_path_is_checked_before_the_start(place: Place) -> None:
    """A runtime directory that makes socket paths too long refuses the provider before it is started."""
    long = place.runtime / ("d" * 90)
    async with ProviderHost([spec("good")], state_dir=place.state, runtime_dir=long, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        status = host.status("good")
        assert status.lifecycle is Lifecycle.REJECTED
        assert "bytes, at most 100" in status.reason
        assert status.pid is None


async def test_settings_of_any_admitted_size_arrive(place: Place) -> None:
    """A configuration far larger than what fits into a call's metadata reaches the provider whole."""
    large = own("large_settings", name="large", config={"text": "x" * 60_000})
    async with ProviderHost([large], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        admitted(host, "large")


async def test_an_artifact_replaced_while_it_starts_is_refused(place: Place) -> None:
    """What was measured is not what lies there now: the instance is refused, whatever it proved."""
    place.state.mkdir(parents=True)
    program = place.state / "provider.py"
    shutil.copy(DOUBLES / "replaces_itself.py", program)
    replaced = spec("good", command=(PYTHON, str(program)))
    async with ProviderHost(
        [replaced], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        await eventually(lambda: host.status("good").reason)
        status = host.status("good")
        assert f"{program} was replaced while the provider started" in status.reason
        assert status.lifecycle is not Lifecycle.ADMITTED
        with pytest.raises(ProviderUnavailable):
            host.lease("good")


async def test_a_program_for_another_machine_is_named(place: Place) -> None:
    """A program that the system cannot execute is refused with its architecture, mode and owner."""
    machine = 183 if os.uname().machine == "x86_64" else 62
    place.state.mkdir(parents=True)
    program = place.state / "provider"
    program.write_bytes(
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + machine.to_bytes(2, "little") + bytes(44)
    )
    program.chmod(0o700)
    foreign = spec("good", command=(str(program),))
    async with ProviderHost([foreign], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        status = host.status("good")
        assert status.lifecycle is Lifecycle.REJECTED
        assert f"mode 0700, owner uid {os.geteuid()}, ELF for" in status.reason
        assert f"host is {os.uname().machine}" in status.reason
        assert "operator: " in status.reason
