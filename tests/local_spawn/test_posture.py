"""The provider says that it confines nothing, which is true, and makes root say as whom commands run."""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tests.local_spawn.driver import DEADLINE, Provider, gone, info_of, new_id, refused, until
from tests.local_spawn.test_ending import pids
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.provider.v1 import control_pb2
from tyrum_local_spawn.posture import NOT_ENFORCED
from tyrum_local_spawn.settings import check_settings

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can change users")


async def test_every_claim_is_not_enforced(tmp_path: Path) -> None:
    """Each registered claim is NOT_ENFORCED with its reason, and the notes say how far ending goes."""
    async with Provider.started(tmp_path) as provider:
        posture = await provider.isolation.GetPosture(pb.GetPostureRequest(), timeout=DEADLINE)
        assert {claim.name for claim in posture.claims} == set(NOT_ENFORCED)
        assert len(posture.claims) == 20
        assert {claim.status for claim in posture.claims} == {pb.CLAIM_STATUS_NOT_ENFORCED}
        assert all(claim.mechanism for claim in posture.claims)
        assert (posture.run_uid, posture.shares_gateway_user) == (os.getuid(), True)
        assert any("gateway's user" in note for note in posture.notes)
        assert any("Out of reach" in note for note in posture.notes)
        assert len(posture.notes) <= 16
        assert all(len(note.encode()) <= 512 for note in posture.notes)


async def test_a_command_really_crosses_what_is_not_enforced(tmp_path: Path) -> None:
    """The honest answer is the observed one: reading, writing, signalling, connecting outside all succeed."""
    decoy = tmp_path / "decoy"
    decoy.write_text("outside the workspace")
    async with Provider.started(tmp_path) as provider:
        assert (
            await provider.run(provider.spec("/bin/cat", str(decoy)))
        ).stdout.head == b"outside the workspace"
        assert (await provider.run(provider.shell(f"echo written > {tmp_path}/new"))).exit_code == 0
        assert (tmp_path / "new").read_text() == "written\n"
        victim = await provider.start(provider.shell("echo $$ > victim; exec sleep 60"))
        await until(lambda: pids(provider.workspace / "victim"), "the victim")
        pid = pids(provider.workspace / "victim")[0]
        assert (await provider.run(provider.shell(f"kill -KILL {pid}"))).exit_code == 0
        assert (await provider.wait(victim)).result.cause == pb.END_CAUSE_SIGNALED
        assert gone(pid)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            assert (await provider.run(provider.python(script))).exit_code == 0


async def test_the_descriptor_promises_what_exists(tmp_path: Path) -> None:
    """No capability is declared, handles are version 1, and the schema documents every key."""
    async with Provider.started(tmp_path, configure=False) as provider:
        request = control_pb2.GetDescriptorRequest()
        descriptor = (await provider.control.GetDescriptor(request, timeout=DEADLINE)).provider_descriptor
        assert descriptor.kind == "isolation"
        assert list(descriptor.capabilities) == []
        assert list(descriptor.handle_versions) == [1]
        assert list(descriptor.secret_slots) == []
        schema = json.loads(descriptor.config_schema)
        readme = Path(__file__).parents[2] / "providers" / "local_spawn" / "README.md"
        documented = set(re.findall(r"^\| `(\w+)` \|", readme.read_text(), re.MULTILINE))
        assert set(schema["properties"]) <= documented
        assert all(rule["description"] for rule in schema["properties"].values())
        call = provider.isolation.GetPosture(pb.GetPostureRequest(), timeout=DEADLINE)
        assert await refused(call) == "NOT_CONFIGURED"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"run_as": "nobody"}, "/run_as"),
    ({"run_as": {"uid": 0, "gid": 0}}, "/run_as/uid"),
    ({"run_as": {"uid": 5}}, "/run_as/gid"),
    ({"run_as": "gateway_user", "max_concurrent": 0}, "/max_concurrent"),
    ({"run_as": "gateway_user", "max_concurrent": 257}, "/max_concurrent"),
    ({"run_as": "gateway_user", "spool_bytes_per_stream": 1000}, "/spool_bytes_per_stream"),
    ({"run_as": "gateway_user", "spool_bytes_total": 2 << 20}, "/spool_bytes_total"),
    ({"run_as": "gateway_user", "retention_seconds": 1}, "/retention_seconds"),
    ({"run_as": "gateway_user", "test_mode": True}, "/test_mode"),
]


async def test_a_wrong_configuration_is_named_by_place(tmp_path: Path) -> None:
    """Every wrong value is found by ValidateConfig under its own path."""
    async with Provider.started(tmp_path, configure=False) as provider:
        for config, path in WRONG:
            request = control_pb2.ValidateConfigRequest(config=json.dumps(config).encode())
            answer = await provider.control.ValidateConfig(request, timeout=DEADLINE)
            assert path in {violation.path for violation in answer.violations}, config


def test_root_must_say_as_whom_commands_run() -> None:
    """Without run_as root is refused with the fix, and a user is not; another user needs root."""
    (violation,) = check_settings({}, uid=0)
    assert violation.path == "/run_as"
    assert "gateway_user" in violation.message
    assert not check_settings({}, uid=1000)
    assert not check_settings({"run_as": "gateway_user"}, uid=0)
    assert not check_settings({"run_as": {"uid": 5, "gid": 5}}, uid=0)
    (violation,) = check_settings({"run_as": {"uid": 5, "gid": 5}}, uid=1000)
    assert violation.path == "/run_as/uid"


@needs_root
async def test_another_user_runs_the_commands(tmp_path: Path) -> None:
    """With run_as, commands have that user's ids, no groups, no access to root's files, and still die."""
    config = {"run_as": {"uid": 54321, "gid": 54322}}
    async with Provider.started(tmp_path, config) as provider:
        os.chown(provider.workspace, 54321, 54322)
        posture = await provider.isolation.GetPosture(pb.GetPostureRequest(), timeout=DEADLINE)
        assert (posture.run_uid, posture.shares_gateway_user) == (54321, False)
        result = await provider.run(provider.shell("id -u; id -g; id -G; id -ru; echo mine > file"))
        assert result.stdout.head == b"54321\n54322\n54322\n54321\n"
        assert (provider.workspace / "file").stat().st_uid == 54321
        denied = await provider.run(provider.shell("cat /etc/shadow"))
        assert denied.exit_code == 1
        assert denied.stdout.total_bytes == 0
        killing = await provider.run(provider.shell("kill -KILL $PPID || echo refused"))
        assert killing.stdout.head == b"refused\n"
        process = await provider.start(provider.shell("trap '' TERM; setsid sleep 60 & sleep 60"))
        await provider.cancel(process, grace=0)
        assert (await provider.wait(process)).result.tree_empty
        os.chown(provider.workspace, 0, 0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await provider.start(provider.shell("exit 0"), operation=(operation := new_id("op")))
        assert info_of(caught.value).metadata["field"] == "spec.cwd"
        assert not (provider.runs / operation).exists()
