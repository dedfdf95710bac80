"""The two yardsticks of process.run: a bare asyncio spawn, and the same provider called without a kernel."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from tyrum_gateway.bootstrap.system import RandomIds
from tyrum_gateway.domain.ids import BindingId, OperationId, PrincipalId, ProcessId
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.isolation_types import (
    FileReference,
    OperationContext,
    ProcessLimits,
    ProcessSpec,
    Workspace,
)
from tyrum_provider_host.spec import ProviderSpec

PROGRAM = "/usr/bin/true"


async def bare() -> float:
    """Spawn and wait with the same pipes; return milliseconds."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await process.communicate()
    return (time.perf_counter() - begun) * 1000


def host(command: str, state: Path, runtime: Path) -> ProviderHost:
    """Prepare a host with the built-in provider."""
    spec = ProviderSpec("local", "isolation", (command,), {"run_as": "gateway_user"})
    return ProviderHost([spec], state_dir=state, runtime_dir=runtime)


def identify(workspace: Path) -> Workspace:
    """Take the identity of a directory."""
    status = workspace.stat()
    return Workspace(str(workspace), status.st_dev, status.st_ino)


async def ungoverned(client: IsolationClient, provider_id: str, workspace: Workspace) -> float:
    """Start, wait and release through the provider alone; return milliseconds until the end is known."""
    ids = RandomIds()
    context = OperationContext(ids.new(BindingId), provider_id, "default", 1, ids.new(PrincipalId))
    process_id = ids.new(ProcessId)
    spec = ProcessSpec(
        program=FileReference(PROGRAM),
        argv=(PROGRAM,),
        workspace=workspace,
        limits=ProcessLimits(timedelta(seconds=60), 1 << 30, timedelta(seconds=2)),
    )
    begun = time.perf_counter()
    process = await client.start(
        context, operation_id=ids.new(OperationId), process_id=process_id, spec=spec, linger=2
    )
    if process.result is None:
        await client.wait(context, process_id, timeout=30)
    taken = (time.perf_counter() - begun) * 1000
    await client.release(context, process_id)
    return taken
