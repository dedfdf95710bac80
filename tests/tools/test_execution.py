"""`process.run` against the provider that really runs commands."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import Bench, bench, script
from tests.tools.providers import running, spawner
from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.ids import BindingId, EntityId, OperationId, PrincipalId, ProcessId
from tyrum_gateway.domain.process import EndCause
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.tool import Execution, Prepared, ToolResult
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


def fresh(kind: type[EntityId]) -> Any:
    """Make an id."""
    return kind.build(0, os.urandom(10))


def execution(candidate: Candidate | None) -> Execution:
    """Make the committed names of one execution."""
    return Execution(fresh(OperationId), fresh(ProcessId), fresh(BindingId), candidate, fresh(PrincipalId))


async def run(place: Bench, arguments: Mapping[str, Any]) -> ToolResult:
    """Prepare and execute a call."""
    prepared = await place.prepare(**arguments)
    names = execution(prepared.candidate)
    result = await place.tool.execute(prepared, names)
    await place.tool.release(names)
    return result


async def exists(path: Path) -> None:
    """Wait until a command has written a file."""
    async with asyncio.timeout(30):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - a file has no event
            await asyncio.sleep(0.01)


@pytest.fixture
def real(spawning: ProviderHost, tmp_path: Path) -> Bench:
    """A tool whose calls really run."""
    return bench(spawning, tmp_path)


async def test_command_gets_exactly_what_was_prepared(real: Bench) -> None:
    """Arguments, environment, directory and standard input arrive as they were shown, and nothing more."""
    (real.workspace / "sub").mkdir()
    script(
        real.programs / "probe",
        '#!/bin/sh\nprintf "%s|" "$0" "$@"; echo; pwd\n'
        "env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= | sort; cat\n",
    )
    result = await run(
        real,
        {"argv": ["probe", "a b", "", "*"], "cwd": "sub", "env": {"A": "1 2"}, "stdin": "in\nput"},
    )
    assert result.state is CallState.SUCCEEDED
    assert result.process is not None
    assert result.process.stdout.head.decode().split("\n")[1:] == [
        f"{real.identity.path}/sub",
        "A=1 2",
        f"HOME={real.identity.path}",
        "LANG=C.UTF-8",
        f"PATH={real.programs}:/usr/local/bin:/usr/bin:/bin",
        "in",
        "put",
    ]
    assert result.process.stdout.head.decode().split("\n")[0].endswith("|a b||*|")


async def test_outcomes_are_told_apart(real: Bench) -> None:
    """An exit code, a signal, the time limit and the output limit are different facts, for the model too."""
    exited = await run(real, {"shell": "echo out; echo err >&2; exit 3"})
    assert (exited.state, exited.content.split("\n")[1:]) == (
        CallState.SUCCEEDED,
        ["stdout, 4 bytes:", "out", "stderr, 4 bytes:", "err"],
    )
    assert exited.content.startswith("exit code 3 after ")
    killed = await run(real, {"shell": "kill -KILL $$"})
    assert (killed.state, killed.content[:18]) == (CallState.SUCCEEDED, "ended by signal 9 ")
    late = await run(real, {"argv": ["sleep", "30"], "timeout_ms": 100})
    assert (late.state, late.content[:26]) == (CallState.FAILED, "stopped at its time limit ")
    loud = await run(real, {"argv": ["yes"]})
    assert (loud.state, loud.content[:28]) == (CallState.FAILED, "stopped at its output limit ")
    assert loud.process is not None
    assert loud.process.cause is EndCause.OUTPUT_LIMIT
    assert len(loud.content) < 22 * 1024


async def test_start_that_fails_is_proof_that_nothing_ran(real: Bench) -> None:
    """A file that the system cannot execute fails the call, and the model is told that it did not run."""
    script(real.programs / "garbage", "no format at all")
    result = await run(real, {"argv": ["garbage"]})
    assert result.state is CallState.FAILED
    assert result.content.startswith("not executed")


@pytest.mark.parametrize("changed", ["program", "operand", "workspace"])
async def test_what_changed_since_it_was_shown_does_not_run(real: Bench, changed: str) -> None:
    """A program, file or workspace that is not what was decided on does not run: the call is asked again."""
    tool = script(real.programs / "tool", '#!/bin/sh\necho ran > "$HOME/ran"\n')
    file = real.workspace / "file"
    file.write_text("old", encoding="utf-8")
    prepared = await real.prepare(argv=["tool", "file"])
    match changed:
        case "program":
            script(tool, '#!/bin/sh\necho bad > "$HOME/ran"\n')
        case "operand":
            file.write_text("new", encoding="utf-8")
        case _:
            real.workspace.rename(real.workspace.parent / "old")
            real.workspace.mkdir()
    result = await real.tool.execute(prepared, execution(prepared.candidate))
    assert result.subject_changed
    assert not list(real.workspace.parent.glob("*/ran"))


async def test_secrets_reach_the_command_alone(spawning: ProviderHost, tmp_path: Path) -> None:
    """A named secret is in the command's environment, and in nothing that the kernel keeps or tells."""
    place = bench(spawning, tmp_path, secrets={"TOKEN": "s3cr3t-value"})
    prepared = await place.shell('echo "$TOKEN" | tee kept; echo "$TOKEN" >&2', secrets=["TOKEN"])
    result = await place.tool.execute(prepared, execution(prepared.candidate))
    assert (place.workspace / "kept").read_text(encoding="utf-8") == "s3cr3t-value\n"
    assert "s3cr3t-value" not in repr(result)
    assert "s3cr3t-value" not in prepared.subject.json + prepared.subject.summary
    assert result.content.count("***") == 2
    without = await place.shell('test -z "${TOKEN-}"')
    assert (await place.tool.execute(without, execution(without.candidate))).content.startswith("exit code 0")


async def test_a_secret_that_one_call_kept_is_masked_when_another_prints_it(
    spawning: ProviderHost, tmp_path: Path
) -> None:
    """A command without secrets that reads what one with a secret wrote does not tell it to the model."""
    place = bench(spawning, tmp_path, secrets={"TOKEN": "s3cr3t-value"})
    kept = await run(place, {"shell": 'echo "$TOKEN" > kept', "secrets": ["TOKEN"]})
    assert kept.state is CallState.SUCCEEDED
    printed = await run(place, {"argv": ["cat", "kept"]})
    assert "s3cr3t-value" not in repr(printed)
    assert "***" in printed.content


async def test_secret_that_cannot_be_had_fails_before_anything_runs(
    spawning: ProviderHost, tmp_path: Path
) -> None:
    """Without the secret the command is not started."""
    place = bench(spawning, tmp_path, known_secrets=frozenset({"TOKEN"}))
    result = await run(place, {"shell": "touch ran", "secrets": ["TOKEN"]})
    assert (result.state, result.content) == (
        CallState.FAILED,
        "not executed: secret `TOKEN` cannot be had",
    )
    assert not (place.workspace / "ran").exists()


async def test_what_goes_on_in_the_background_is_ended_and_said(real: Bench) -> None:
    """`sleep 60 &` ends with its shell: the first line of the result says so, and so does the tool itself."""
    result = await run(real, {"shell": "sleep 60 & echo started"})
    first, *rest = result.content.split("\n")
    assert first.startswith("exit code 0 after ")
    assert first.endswith("; what it had left running in the background was ended with it")
    assert rest == ["stdout, 8 bytes:", "started"]
    assert "Nothing runs on in the background" in real.tool.schema.description
    assert "background" not in (await run(real, {"shell": "sleep 0 & wait"})).content


async def test_stop_ends_the_command(real: Bench) -> None:
    """Stopping a call ends its whole tree, and the waiting call learns it as a fact."""
    prepared = await real.shell("touch began; sleep 60 & sleep 60")
    names = execution(prepared.candidate)
    call = asyncio.ensure_future(real.tool.execute(prepared, names))
    await exists(real.workspace / "began")
    await real.tool.stop(names)
    result = await call
    assert (result.state, result.content[:10]) == (CallState.FAILED, "cancelled ")


async def test_stop_before_the_start_seals_the_operation(real: Bench) -> None:
    """A start that arrives after its call was stopped is refused for good."""
    prepared = await real.shell("touch ran")
    names = execution(prepared.candidate)
    await real.tool.stop(names)
    result = await real.tool.execute(prepared, names)
    assert result.state is CallState.FAILED
    assert result.content.startswith("not executed")
    assert not (real.workspace / "ran").exists()


async def test_release_of_a_stopped_call_waits_for_its_end(real: Bench) -> None:
    """Releasing right after stopping leaves no record behind."""
    prepared = await real.shell("trap 'sleep 0.1; exit' TERM; touch began; sleep 60 & wait")
    names = execution(prepared.candidate)
    call = asyncio.ensure_future(real.tool.execute(prepared, names))
    await exists(real.workspace / "began")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await real.tool.stop(names)
    await real.tool.release(names)
    assert "the operation began, and its record was released" in (await real.tool.settle(names)).content


async def test_settle_finds_the_end_and_never_runs_again(spawning: ProviderHost, tmp_path: Path) -> None:
    """A call that a crash left behind is settled from the journal by a new tool; the command runs once."""
    place = bench(spawning, tmp_path)
    prepared = await place.shell("echo x >> count; sleep 0.3; echo done")
    names = execution(prepared.candidate)
    call = asyncio.ensure_future(place.tool.execute(prepared, names))
    await exists(place.workspace / "count")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    successor = bench(spawning, tmp_path / "successor").tool
    result = await successor.settle(names)
    assert result.state is CallState.SUCCEEDED
    assert "done" in result.content
    assert (place.workspace / "count").read_text(encoding="utf-8") == "x\n"


async def test_settle_of_a_call_that_never_began_seals_it(real: Bench) -> None:
    """What the journal does not know never ran and never will."""
    prepared = await real.shell("touch ran")
    names = execution(prepared.candidate)
    settled = await real.tool.settle(names)
    assert (settled.state, settled.content) == (CallState.FAILED, "not executed: the command did not run")
    assert (await real.tool.execute(prepared, names)).state is CallState.FAILED
    assert not (real.workspace / "ran").exists()


async def test_settle_elsewhere_is_refused(real: Bench) -> None:
    """An operation bound to another provider is not asked about here: its outcome stays unknown."""
    prepared = await real.prepare(argv=["true"])
    assert prepared.candidate is not None
    values = {name: getattr(prepared.candidate, name) for name in Candidate.__dataclass_fields__}
    foreign = execution(Candidate(**{**values, "provider_id": "dev.tyrum.elsewhere"}))
    result = await real.tool.settle(foreign)
    assert result.state is CallState.OUTCOME_UNKNOWN
    assert "dev.tyrum.elsewhere" in result.content


async def test_death_of_the_provider_is_settled_by_the_journal_of_the_next(tmp_path: Path) -> None:
    """A call whose provider was killed was told as unknown although its end was on record."""
    async with running(spawner()) as host:
        place = bench(host, tmp_path)
        prepared = await place.shell("echo $$ > began; sleep 60")
        names = execution(prepared.candidate)
        call = asyncio.ensure_future(place.tool.execute(prepared, names))
        await exists(place.workspace / "began")
        pid = host.status("chosen").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        result = await asyncio.wait_for(call, 30)
        assert result.process is not None
        assert (result.state, result.process.cause) == (CallState.FAILED, EndCause.PROVIDER_GONE)
        assert host.status("chosen").generation > 1

    assert not place.tool.available()
    refused = await place.tool.execute(prepared, execution(prepared.candidate))
    assert (refused.state, refused.content[:12]) == (CallState.FAILED, "not executed")
    assert (await place.tool.settle(names)).state is CallState.OUTCOME_UNKNOWN


async def test_start_at_the_concurrency_limit_waits_its_turn(tmp_path: Path) -> None:
    """A provider that is full delays calls, in order and under the same ids; none fails or runs twice."""
    async with running(spawner(max_concurrent=1)) as host:
        place = bench(host, tmp_path)
        first = asyncio.ensure_future(run(place, {"shell": "echo a >> log; touch began; sleep 0.3"}))
        await exists(place.workspace / "began")
        line = asyncio.ensure_future(run(place, {"shell": "echo b >> log; sleep 0.1"}))
        async with asyncio.timeout(30):
            while not place.waiting():  # noqa: ASYNC110 - a line has no event
                await asyncio.sleep(0.01)
        third = await run(place, {"shell": "echo c >> log"})
        assert {(await first).state, (await line).state, third.state} == {CallState.SUCCEEDED}
        assert (place.workspace / "log").read_text(encoding="utf-8") == "a\nb\nc\n"


async def test_prepared_for_another_provider_is_asked_again(spawning: ProviderHost, tmp_path: Path) -> None:
    """A boundary other than the one that was shown does not run the call."""
    place = bench(spawning, tmp_path)
    prepared = await place.shell("touch ran")
    assert prepared.candidate is not None
    values = {name: getattr(prepared.candidate, name) for name in Candidate.__dataclass_fields__}
    weaker = Candidate(**{**values, "claims": ("net.none=PROVED",)})
    shown = Prepared(prepared.tool, prepared.target, prepared.about, weaker, prepared.run)
    result = await place.tool.execute(shown, execution(weaker))
    assert result.subject_changed
    assert not (place.workspace / "ran").exists()


async def test_subject_is_json_that_any_reader_can_check(real: Bench) -> None:
    """The canonical subject parses, and names program and boundary."""
    subject = json.loads((await real.prepare(argv=["true"])).subject.json)
    assert subject["boundary"]["provider_id"] == "tyrum.isolation.local-spawn"
    assert subject["program"]["path"].endswith("/true")
