"""What the tests of the provider host share: places, specifications, and views of the process table."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tyrum_provider_host import ProviderSpec, RestartPolicy, TimeBounds

PYTHON = str(Path(sys.executable).parent / "python")
DOUBLES = Path(__file__).parent / "doubles"

FAST = TimeBounds(
    handshake=20.0,
    descriptor=20.0,
    probe=20.0,
    posture=20.0,
    health=20.0,
    health_interval=0.1,
    settle=20.0,
    shutdown_ack=20.0,
    shutdown_grace=20.0,
)
"""What repeats is fast; what waits for a provider that does its part is patient, as busy machines need it."""
EAGER = RestartPolicy(initial_delay=0.05, max_delay=0.2)


@dataclass(frozen=True, slots=True)
class Place:
    """Directories of one host."""

    state: Path
    runtime: Path

    def instances(self) -> list[str]:
        """Names of the instance directories that exist."""
        return sorted(path.name for path in self.runtime.iterdir()) if self.runtime.exists() else []


def spec(double: str, **changes: Any) -> ProviderSpec:
    """Specify one of the conformance doubles."""
    plain = ProviderSpec(
        name=double.replace("_", "-"),
        kind="isolation",
        command=(PYTHON, "-m", "tyrum_conformance.broken", double),
        start_timeout=90.0,
    )
    return replace(plain, **changes)


def own(double: str, *arguments: str, **changes: Any) -> ProviderSpec:
    """Specify one of this directory's doubles."""
    command = (PYTHON, str(DOUBLES / f"{double}.py"), *arguments)
    return spec(double, command=command, **changes)


def processes_mentioning(text: str) -> list[int]:
    """Find the processes, zombies excluded, whose environment or arguments mention `text`."""
    return [pid for pid in _pids() if text in _read(pid, "environ") or text in _read(pid, "cmdline")]


def environment_of(pid: int) -> dict[str, str]:
    """Read the environment a process was started with."""
    entries = (entry.partition("=") for entry in _read(pid, "environ").split("\0") if entry)
    return {name: value for name, _, value in entries}


def arguments_of(pid: int) -> str:
    """Read the arguments of a process."""
    return _read(pid, "cmdline")


async def eventually(condition: Callable[[], object], within: float = 30.0) -> None:
    """Poll until `condition()` holds.

    Raises:
        TimeoutError: it did not within `within` seconds.
    """
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - other processes signal nothing
            await asyncio.sleep(0.01)


def _pids() -> Iterator[int]:
    yield from (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
