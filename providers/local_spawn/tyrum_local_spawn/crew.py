"""The spawner from the provider's side: started, fed with orders, restarted when it dies."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tyrum_local_spawn.failures import Broken
from tyrum_local_spawn.link import SupervisorLink
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.record import ExitRecord

_BOOTSTRAP: Final = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from tyrum_local_spawn.supervision.spawner import main; main()"
)
"""Isolated mode knows no site-packages; the package's place comes last, so that it shadows nothing."""
_RESTART_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 0.3
"""How long a shutdown waits for the spawner, which leaves by itself as soon as its supervisors have."""

_log = logging.getLogger(__name__)


class Crew:
    """Hands runs to supervisors."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def ready(self) -> bool:
        """Whether orders are taken."""
        return self._control is not None

    async def start(self) -> None:
        """Start the spawner, which forks its idle supervisors by itself."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        runs_fd = os.open(self._runs, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP),
                *(str(theirs.fileno()), str(runs_fd), str(Path(__file__).parents[1])),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), runs_fd),
                env={},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(runs_fd)
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._control = ours

    async def keep(self) -> None:
        """Restart the spawner whenever it ends; runs in progress do not depend on it."""
        while True:
            assert self._process is not None
            status = await self._process.wait()
            self._hang_up()
            if self._stopping:
                return
            _log.error("the spawner ended with status %d and is started again", status)
            await self._start_again()

    async def _start_again(self) -> None:
        while not self._stopping:
            await asyncio.sleep(_RESTART_SECONDS)
            try:
                await self.start()
            except (OSError, RuntimeError) as error:  # asyncio waits for a process in a thread of its own
                _log.error("the spawner cannot be started: %s", error)
            else:
                return

    def summon(self, order: Order, on_end: Callable[[ExitRecord], None]) -> SupervisorLink | None:
        """Give an order to an idle supervisor, as soon as there is one; the link tells what comes of it.

        `on_end` gets the durable record of a run that was started.

        None while the queue of orders is full, or a spawner that ended is being replaced: supervisors are on
        their way.

        Raises:
            Broken: there is no spawner, and none will be started.
        """
        if self._control is None:
            if self._stopping:
                raise Broken("the spawner is not running")
            return None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is left
            raise Broken(f"no supervisor can be reached: {error.strerror}") from error
        link = SupervisorLink(ours, on_end)
        with theirs:
            link.give(order)
            try:
                socket.send_fds(self._control, [b"R"], [theirs.fileno()])
            except OSError as error:
                link.close()
                if isinstance(error, (BlockingIOError, BrokenPipeError, ConnectionResetError)):
                    return None
                raise Broken("no supervisor can be reached") from error
        return link

    async def stop(self) -> None:
        """Let the spawner go; supervisors that still have a provider to answer to end by themselves."""
        self._stopping = True
        self._hang_up()
        if self._process is not None:
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                _log.warning("the spawner still waits for supervisors to end")

    def _hang_up(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
