"""Real providers under a real host, for as long as a block lasts."""

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tyrum_provider_host import ProviderSpec, RestartPolicy, TimeBounds
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.status import Lifecycle

_EAGER = RestartPolicy(initial_delay=0.05, max_delay=0.2, crash_limit=50)
_PATIENT = TimeBounds(handshake=20.0, descriptor=20.0, probe=20.0, posture=20.0, health=20.0, settle=20.0)
"""A provider on a busy machine does its part late."""


def spec(name: str) -> ProviderSpec:
    """Specify the smallest conforming provider, which runs nothing."""
    command = (sys.executable, "-m", "tyrum_conformance.broken", "good")
    return ProviderSpec(name=name, kind="isolation", command=command, start_timeout=60.0)


def spawner(**config: Any) -> ProviderSpec:
    """Specify the provider that runs commands as the user of the tests."""
    command = (sys.executable, "-m", "tyrum_local_spawn.main")
    return ProviderSpec(
        name="chosen",
        kind="isolation",
        command=command,
        config={"run_as": "gateway_user", **config},
        start_timeout=60.0,
    )


@asynccontextmanager
async def running(*specs: ProviderSpec) -> AsyncIterator[ProviderHost]:
    """Run providers until the block is left; all are admitted when it begins."""
    base = Path(tempfile.mkdtemp(prefix="tyt-"))
    try:
        host = ProviderHost(
            specs, state_dir=base / "state", runtime_dir=base / "run", bounds=_PATIENT, restarts=_EAGER
        )
        async with host:
            await host.wait_settled(90)
            states = {status.name: (status.lifecycle, status.reason) for status in host.statuses()}
            assert all(lifecycle is Lifecycle.ADMITTED for lifecycle, _ in states.values()), states
            yield host
    finally:
        shutil.rmtree(base, ignore_errors=True)
