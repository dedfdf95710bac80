"""The demonstration's gateway: a real `tyrum serve` process.

Invariant: it never outlives the demonstration.
"""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tyrum_gateway.cli.connection import Target, announcement, find
from tyrum_gateway.cli.failure import Failure

_START_SECONDS = 20.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02
_LOG_LINES = 20


class DemoGateway:
    """Starts, kills and stops the gateway of one state directory."""

    def __init__(self, state_dir: Path, log: Path) -> None:
        self._state_dir = state_dir
        self._log = log
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Process id of the present start."""
        return self._process.pid if self._process else 0

    async def start(self) -> Target:
        """Start the gateway and wait until it has announced itself.

        Raises:
            Failure: It ended or did not serve in time; the end of its log is part of the message.
        """
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # or a module of the current directory would be imported in the place of ours
                "-m",
                "tyrum_gateway.cli.main",
                "serve",
                "--state-dir",
                str(self._state_dir),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while self._process.returncode is None:
                    known = announcement(self._state_dir)
                    if known is not None and known.get("pid") == self.pid:
                        return find(self._state_dir, None)
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            pass
        tail = "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        raise Failure(f"the gateway did not start; its log ends with\n{tail}")

    async def kill(self) -> None:
        """End it by SIGKILL: no goodbye, no flush."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """End it by SIGTERM, by SIGKILL when that takes too long."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


@asynccontextmanager
async def demo_gateway(directory: Path) -> AsyncIterator[DemoGateway]:
    """Hold a gateway with its state below `directory`; whatever happens, it is gone afterwards."""
    gateway = DemoGateway(directory / "state", directory / "gateway.log")
    try:
        yield gateway
    finally:
        await gateway.stop()
