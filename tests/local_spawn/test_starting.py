"""A start happens at most once, as decided, or not at all and for a registered reason."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf import duration_pb2

from tests.local_spawn.driver import (
    DEADLINE,
    Provider,
    context,
    info_of,
    limits,
    new_id,
    reason_of,
    refused,
    seconds,
    until,
)
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.provider.v1 import binding_pb2
from tyrum_local_spawn.supervision.spawner import IDLE_SUPERVISORS

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_equal_request_returns_the_same_process(provider: Provider) -> None:
    """Repeated and simultaneous equal requests run the command once, while it runs and after it ended."""
    count = provider.workspace / new_id("count")
    gate = provider.workspace / new_id("gate")
    spec = provider.shell(f"echo ran >> {count}; while [ ! -e {gate} ]; do sleep 0.01; done")
    operation, process = new_id("op"), new_id("proc")
    started = await asyncio.gather(
        *(provider.start(spec, operation=operation, process=process) for _ in range(5))
    )
    assert all(one == started[0] for one in started)
    gate.touch()
    await provider.wait(process)
    again = await provider.start(spec, operation=operation, process=process)
    assert again.state == pb.PROCESS_STATE_ENDED
    assert count.read_text() == "ran\n"


@pytest.mark.parametrize(
    "change",
    [
        {"argv": ["/bin/sh", "-c", "exit 1"]},
        {"env": {"PATH": "/usr/bin:/bin", "MORE": "1"}},
        {"secret_env": {"TOKEN": "other"}},
        {"stdin": b"x"},
        {"limits": limits(wall=29)},
        {"required_claims": ["fs.read"]},
        {"durable": True},
    ],
)
async def test_an_operation_id_stands_for_one_request(provider: Provider, change: dict[str, Any]) -> None:
    """The same operation id with any other request is refused and runs nothing."""
    operation, process = new_id("op"), new_id("proc")
    base = {"secret_env": {"TOKEN": "one"}}
    await provider.start(provider.shell("exit 0", **base), operation=operation, process=process)
    other = provider.shell("exit 0", **{**base, **change})
    assert await refused(provider.start(other, operation=operation, process=process)) == "REQUEST_ID_REUSED"
    assert (
        await refused(provider.start(provider.shell("exit 0", **base), operation=operation))
        == "REQUEST_ID_REUSED"
    )


async def test_a_process_id_belongs_to_one_operation(provider: Provider) -> None:
    """Another operation cannot take a process id that is in use."""
    process = await provider.start(provider.shell("exit 0"))
    assert (
        await refused(provider.start(provider.shell("exit 0"), process=process.process_id))
        == "REQUEST_ID_REUSED"
    )


async def test_never_started_is_a_promise(provider: Provider) -> None:
    """An operation resolved as never started is refused for good, with the same answer every time."""
    count = provider.workspace / new_id("count")
    operation = new_id("op")
    answer = await provider.resolve(operation)
    assert answer.HasField("never_started")
    assert await provider.resolve(operation) == answer
    assert (provider.runs / operation / "tombstone").exists()
    spec = provider.shell(f"echo ran > {count}")
    assert await refused(provider.start(spec, operation=operation)) == "REQUEST_ID_REUSED"
    assert not count.exists()


async def test_nothing_starts_under_a_binding_to_another_journal(provider: Provider) -> None:
    """A start under a binding to a journal that is gone runs nothing; the present journal may be named."""
    journal = (provider.runs / "journal.id").read_text()
    answer = await provider.resolve(new_id("op"))
    assert answer.never_started.journal_id == journal
    for named, expected in ((journal, None), ("jrnl_of_another_store", "BINDING_UNAVAILABLE")):
        request = pb.StartProcessRequest(
            context=context(journal_id=named),
            operation_id=new_id("op"),
            process_id=new_id("proc"),
            spec=provider.shell("exit 0"),
        )
        started = provider.isolation.StartProcess(request, timeout=DEADLINE)
        if expected is None:
            await started
        else:
            assert await refused(started) == expected
            assert not (provider.runs / request.operation_id).exists()


async def test_resolving_finds_the_run(provider: Provider) -> None:
    """An operation that began resolves to its process, running or ended."""
    operation = new_id("op")
    process = await provider.start(provider.shell("exec sleep 60"), operation=operation)
    assert (await provider.resolve(operation)).process.state == pb.PROCESS_STATE_RUNNING
    await provider.cancel(process, grace=0)
    ended = await provider.wait(process)
    assert (await provider.resolve(operation)).process == ended


async def test_the_journal_is_there_before_the_command(provider: Provider) -> None:
    """The command itself finds the record of its operation, complete and under its final name."""
    operation = new_id("op")
    journal = provider.runs / operation / "journal"
    result = await provider.run_as(operation, provider.shell(f"exec cat {journal}"))
    assert result.stdout.head == journal.read_bytes()
    assert operation.encode() in result.stdout.head


async def test_a_required_claim_starts_nothing(tmp_path: Path) -> None:
    """No claim is proved here: requiring one fails before any process or record exists."""
    async with Provider.started(tmp_path) as provider:
        spawner = provider.spawner()
        await until(lambda: len(spawner.children()) == IDLE_SUPERVISORS, "a full set of idle supervisors")
        before = sorted(child.pid for child in spawner.children())
        operation = new_id("op")
        for claims in (["fs.read"], ["res.time"], ["not.registered"]):
            spec = provider.shell("exit 0", required_claims=claims)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await provider.start(spec, operation=operation)
            assert reason_of(caught.value) == "CLAIM_UNAVAILABLE"
            assert info_of(caught.value).metadata["claims"] == claims[0]
        # A supervisor that had taken an order would have been replaced by another one.
        assert sorted(child.pid for child in spawner.children()) == before
        assert not (provider.runs / operation).exists()


async def test_durable_is_not_offered(provider: Provider) -> None:
    """A durable run is refused as a capability that was not declared."""
    assert await refused(provider.start(provider.shell("exit 0", durable=True))) == "CAPABILITY_NOT_DECLARED"


async def test_a_changed_program_does_not_run(provider: Provider) -> None:
    """The program's digest is compared on the opened file, ELF and script alike."""
    for original in (Path("/bin/true"), None):
        program = provider.workspace / new_id("program")
        program.write_bytes(original.read_bytes() if original else b"#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        spec = provider.spec(str(program), program=pb.FileReference(path=str(program), sha256=digest.upper()))
        assert (await provider.run(spec)).exit_code == 0
        with program.open("ab") as file:
            file.write(b"\n")
        assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"


async def test_a_changed_operand_does_not_run(provider: Provider) -> None:
    """Operands must be the regular files that were decided on: not links, nor others, however large."""
    path = provider.workspace / new_id("operand")
    path.write_text("exit 0\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = provider.spec("/bin/sh", str(path), operands=[pb.FileReference(path=str(path), sha256=digest)])
    assert (await provider.run(spec)).exit_code == 0
    path.write_text("exit 1\n")
    assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"
    # Sparse: reading it would take an hour.
    os.truncate(path, 1 << 42)
    assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"
    path.rename(f"{path}.real")
    path.symlink_to(f"{path}.real")
    assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"
    path.unlink()
    assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"
    os.mkfifo(path)
    assert await refused(provider.start(spec)) == "PROGRAM_CHANGED"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, "PROGRAM_NOT_EXECUTABLE"),
        (lambda path: path.mkdir(), "PROGRAM_NOT_EXECUTABLE"),
        (lambda path: path.write_text("#!/bin/sh\n"), "PROGRAM_NOT_EXECUTABLE"),
        (
            lambda path: (path.write_text("#!/no/such/interpreter\n"), path.chmod(0o755)),
            "PROGRAM_NOT_EXECUTABLE",
        ),
        (lambda path: (path.write_bytes(b"\x7fELF broken"), path.chmod(0o755)), "PROGRAM_NOT_EXECUTABLE"),
        (lambda path: (path.write_text("no format\n"), path.chmod(0o755)), "PROGRAM_NOT_EXECUTABLE"),
    ],
    ids=["missing", "directory", "not executable", "no interpreter", "broken ELF", "unknown format"],
)
async def test_what_cannot_be_executed_is_refused(
    provider: Provider, make: Callable[[Path], object], expected: str
) -> None:
    """A program that cannot run fails the start, the same way again, and never counts as a run."""
    program = provider.workspace / new_id("program")
    make(program)
    operation, process = new_id("op"), new_id("proc")
    for _ in range(2):
        answer = await refused(
            provider.start(provider.spec(str(program)), operation=operation, process=process)
        )
        assert answer == expected
    resolved = await provider.resolve(operation)
    assert resolved.HasField("never_started") or resolved.process.result.cause == pb.END_CAUSE_START_FAILED


async def test_a_swapped_workspace_is_noticed(provider: Provider) -> None:
    """A workspace that is another directory, a link, a file or missing is refused, without residue."""
    path = provider.root / new_id("ws")
    path.mkdir()
    status = path.stat()
    spec = provider.spec(
        "/bin/true", workspace=pb.Workspace(path=str(path), device=status.st_dev, inode=status.st_ino)
    )
    assert (await provider.run(spec)).exit_code == 0
    path.rename(f"{path}.old")
    operation = new_id("op")
    for kind in ("missing", "link", "directory", "file"):
        match kind:
            case "link":
                path.symlink_to(f"{path}.old")
            case "directory":
                path.unlink()
                path.mkdir()
            case "file":
                path.rmdir()
                path.write_text("")
            case _:
                pass
        assert await refused(provider.start(spec, operation=operation)) == "WORKSPACE_CHANGED", kind
    assert not (provider.runs / operation).exists()


async def test_cwd_cannot_leave_the_workspace(provider: Provider) -> None:
    """Links, missing directories and files in the working directory's path are refused by field."""
    outside = provider.root / new_id("outside")
    outside.mkdir()
    (provider.workspace / "link").symlink_to(outside)
    (provider.workspace / "file").write_text("")
    for cwd in ("link", "file", "missing", "file/deeper"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await provider.start(provider.spec("/bin/true", cwd=cwd))
        assert reason_of(caught.value) == "FIELD_INVALID"
        assert info_of(caught.value).metadata["field"] == "spec.cwd"


def _spec(**fields: Any) -> Callable[[pb.StartProcessRequest], None]:
    def change(request: pb.StartProcessRequest) -> None:
        for name, value in fields.items():
            request.spec.ClearField(name)  # type: ignore[arg-type]
            request.spec.MergeFrom(pb.ProcessSpec(**{name: value}))

    return change


def _set(path: str, value: Any) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        *parents, last = path.split(".")
        for name in parents:
            request = getattr(request, name)
        if value is None:
            request.ClearField(last)
        elif hasattr(value, "DESCRIPTOR"):
            getattr(request, last).CopyFrom(value)
        else:
            setattr(request, last, value)

    return change


INVALID: list[tuple[str, Callable[[pb.StartProcessRequest], None]]] = [
    ("context", _set("context", None)),
    ("context.binding", _set("context.binding", None)),
    ("context.binding.binding_id", _set("context.binding.binding_id", "bind_short")),
    ("context.binding.provider_id", _set("context.binding.provider_id", "another.provider")),
    ("context.binding.profile", _set("context.binding.profile", "")),
    ("context.binding.profile", _set("context.binding.profile", "x" * 65)),
    ("context.binding.contract_major", _set("context.binding.contract_major", 2)),
    ("context.actor", _set("context.actor", "")),
    ("context.actor", _set("context.actor", "tab\t")),
    ("context.actor", _set("context.actor", "é")),
    ("context.traceparent", _set("context.traceparent", "0" * 65)),
    ("operation_id", _set("operation_id", "")),
    ("operation_id", _set("operation_id", "op_../../../../etc/passwd_aaaa")),
    ("operation_id", _set("operation_id", "op_" + "A" * 26)),
    ("operation_id", _set("operation_id", "op_" + "a" * 26 + "\n")),
    ("process_id", _set("process_id", "proc_x")),
    ("spec", _set("spec", None)),
    ("spec.program", _set("spec.program", None)),
    ("spec.program.path", _set("spec.program.path", "bin/true")),
    ("spec.program.path", _set("spec.program.path", "/bin/true\0x")),
    ("spec.program.path", _set("spec.program.path", "/" + "x" * 4096)),
    ("spec.program.sha256", _set("spec.program.sha256", "00")),
    ("spec.argv", _spec(argv=[])),
    ("spec.argv", _spec(argv=["x"] * 257)),
    ("spec.argv", _spec(argv=["", "x"])),
    ("spec.argv", _spec(argv=["a\0b"])),
    ("spec.argv", _spec(argv=["x" * 131072])),
    ("spec.argv", _spec(argv=["x" * 100_000] * 3)),
    ("spec.env", _spec(env={"1A": ""})),
    ("spec.env", _spec(env={"A=B": ""})),
    ("spec.env", _spec(env={"": ""})),
    ("spec.env", _spec(env={"A": "\0"})),
    ("spec.env", _spec(env={f"A{i}": "" for i in range(129)})),
    ("spec.secret_env", _spec(env={"A": ""}, secret_env={"A": ""})),
    ("spec.secret_env", _spec(secret_env={"A": "x" * 65537})),
    ("spec.secret_env", _spec(secret_env={f"A{i}": "" for i in range(33)})),
    ("spec.workspace", _set("spec.workspace", None)),
    ("spec.workspace.path", _set("spec.workspace.path", "")),
    ("spec.workspace.device", _set("spec.workspace.device", 0)),
    ("spec.workspace.inode", _set("spec.workspace.inode", 0)),
    *(("spec.cwd", _set("spec.cwd", cwd)) for cwd in ("/", "..", "a/../b", ".", "a//b", "a/", "a\0")),
    ("spec.stdin", _set("spec.stdin", b"x" * 65537)),
    ("spec.operands", _spec(operands=[pb.FileReference(path="/x")] * 33)),
    ("spec.operands[1].path", _spec(operands=[pb.FileReference(path="/x"), pb.FileReference(path="x")])),
    ("spec.operands[0].sha256", _spec(operands=[pb.FileReference(path="/x", sha256="g" * 64)])),
    ("spec.limits", _set("spec.limits", None)),
    ("spec.limits.wall_time", _set("spec.limits.wall_time", None)),
    ("spec.limits.wall_time", _set("spec.limits.wall_time", seconds(0))),
    ("spec.limits.wall_time", _set("spec.limits.wall_time", seconds(86401))),
    ("spec.limits.wall_time", _set("spec.limits.wall_time", duration_pb2.Duration(nanos=-1))),
    ("spec.limits.wall_time", _set("spec.limits.wall_time", duration_pb2.Duration(nanos=1_000_000_000))),
    ("spec.limits.output_bytes", _set("spec.limits.output_bytes", 0)),
    ("spec.limits.kill_grace", _set("spec.limits.kill_grace", None)),
    ("spec.limits.kill_grace", _set("spec.limits.kill_grace", seconds(30.5))),
    ("spec.limits.kill_grace", _set("spec.limits.kill_grace", duration_pb2.Duration(seconds=-1))),
    ("spec.required_claims", _spec(required_claims=["fs.read"] * 65)),
    ("spec.required_claims", _spec(required_claims=["Fs Read"])),
    ("linger", _set("linger", seconds(10.5))),
    ("linger", _set("linger", duration_pb2.Duration(seconds=-1))),
]


async def test_every_broken_limit_is_named_by_its_field(provider: Provider) -> None:
    """Each field outside its stated limits is FIELD_INVALID with its path, and nothing is recorded."""
    before = sorted(path.name for path in provider.runs.iterdir() if path.name.startswith("op_"))
    for field, change in INVALID:
        request = pb.StartProcessRequest(
            context=context(),
            operation_id=new_id("op"),
            process_id=new_id("proc"),
            spec=provider.spec("/bin/true"),
        )
        change(request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await provider.isolation.StartProcess(request, timeout=DEADLINE)
        assert reason_of(caught.value) == "FIELD_INVALID", (field, caught.value)
        assert info_of(caught.value).metadata["field"] == field
    assert sorted(path.name for path in provider.runs.iterdir() if path.name.startswith("op_")) == before


async def test_other_requests_are_held_to_their_limits_too(provider: Provider) -> None:
    """Every RPC names the field that breaks its limits."""
    stub, process = provider.isolation, new_id("proc")
    wrong = binding_pb2.OperationContext(binding=context().binding)
    calls: list[tuple[str, Any]] = [
        ("context.actor", stub.GetProcess(pb.GetProcessRequest(context=wrong, process_id=process))),
        ("process_id", stub.GetProcess(pb.GetProcessRequest(context=context(), process_id="x"))),
        ("timeout", stub.WaitProcess(pb.WaitProcessRequest(context=context(), process_id=process))),
        (
            "timeout",
            stub.WaitProcess(
                pb.WaitProcessRequest(context=context(), process_id=process, timeout=seconds(601))
            ),
        ),
        (
            "operation_id",
            stub.ResolveOperation(pb.ResolveOperationRequest(context=context(), operation_id="op_")),
        ),
        (
            "grace",
            stub.CancelProcess(
                pb.CancelProcessRequest(context=context(), process_id=process, grace=seconds(31))
            ),
        ),
        ("process_id", stub.ReleaseProcess(pb.ReleaseProcessRequest(context=context()))),
        ("page_size", stub.ListProcesses(pb.ListProcessesRequest(page_size=501))),
        ("page_token", stub.ListProcesses(pb.ListProcessesRequest(page_token="no such"))),
    ]
    for field, call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert (reason_of(caught.value), info_of(caught.value).metadata["field"]) == ("FIELD_INVALID", field)
    for stream in (0, 99):
        request = pb.ReadOutputRequest(context=context(), process_id=process, stream=stream)  # type: ignore[arg-type]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.ReadOutput(request):
                pass
        assert info_of(caught.value).metadata["field"] == "stream"


async def test_releasing_an_unknown_process_is_fine(provider: Provider) -> None:
    """Release is idempotent to the point of not knowing the process."""
    await provider.release(new_id("proc"))
