"""One operation as this provider knows it."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

from tyrum_local_spawn.failures import Failure
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.link import SupervisorLink
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.record import ExitRecord


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A checked request: the order still lacks digest, spool cap and user, which are not the caller's."""

    order: Order
    required_claims: tuple[str, ...]
    durable: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as of now; `end` is None while it runs."""

    operation_id: OperationId
    process_id: ProcessId
    started_at_ns: int
    end: ExitRecord | None


class Run:
    """One operation that is starting, running or ended."""

    def __init__(self, operation_id: OperationId, process_id: ProcessId, digest: str) -> None:
        self.operation_id = operation_id
        self.process_id = process_id
        self.digest = digest
        self.started_at_ns: int | None = None
        self.link: SupervisorLink | None = None
        self.end: ExitRecord | None = None
        self.damage: str | None = None
        self.settled = asyncio.Event()
        """Set when the end is known, or known to be damaged."""
        self.begun = asyncio.Event()
        """Set when it is known whether the command executes."""
        self.failure: Failure | None = None
        """Why it does not; what every start of it is answered."""
        self._leader: tuple[int, int] | None = None

    @property
    def running(self) -> bool:
        """Whether the run holds one of the places, starting included."""
        return not self.settled.is_set()

    def hold(self, leader: int) -> None:
        """Keep hold of the command's first process, whatever becomes of its supervisor."""
        with contextlib.suppress(OSError):
            self._leader = (leader, os.pidfd_open(leader))

    def kill_leader(self) -> None:
        """Kill that process and its group: its supervisor was killed and can no longer do it."""
        if self._leader is not None:
            pid, pidfd = self._leader
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Forget that process."""
        if self._leader is not None:
            os.close(self._leader[1])
            self._leader = None

    def view(self) -> RunView:
        """Return a snapshot."""
        assert self.started_at_ns is not None
        return RunView(self.operation_id, self.process_id, self.started_at_ns, self.end)
