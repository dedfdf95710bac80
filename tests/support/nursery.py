"""Gateways that are forked from a process that has imported everything: a start costs no imports.

The fork comes before the first thread, loop or gRPC object; what runs then is what `serve` runs anywhere.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.gateway import RunningGateway, client_environment
from tests.support.repository import ROOT


class Born:
    """A process that somebody else has forked, as far as a `RunningGateway` needs it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    @property
    def returncode(self) -> int | None:
        """What `poll` says; how it ended is not known."""
        return self.poll()

    def poll(self) -> int | None:
        """Tell whether it has ended."""
        return -signal.SIGKILL if select.select([self._descriptor], [], [], 0)[0] else None

    def kill(self) -> None:
        """Send SIGKILL."""
        with suppress(ProcessLookupError):  # it has ended
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Wait for the end."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return -signal.SIGKILL


class Nursery:
    """The process that forks gateways.

    Args:
        module: Composes a gateway, and calls `nurse` as a program.
        directory: Of the gateways.
    """

    def __init__(self, module: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=client_environment(directory) | {"GRPC_ENABLE_FORK_SUPPORT": "0"},
        )

    def bear(self, state_dir: Path, config: Path, log: Path) -> Born:
        """Fork a gateway."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{state_dir}\t{config}\t{log}\n")
        stdin.flush()
        return Born(int(stdout.readline()))

    def close(self) -> None:
        """End it; the gateways live on."""
        self._process.kill()
        self._process.communicate()


@dataclass(slots=True)
class ForkedGateway(RunningGateway):
    """A gateway that comes from a nursery."""

    nursery: Nursery | None = field(default=None, kw_only=True)

    def spawn(self) -> None:
        """Fork it instead of starting a program."""
        assert self.nursery is not None
        assert self.config is not None
        self.process = self.nursery.bear(self.state_dir, self.config, self.log_file)  # type: ignore[assignment]


def nurse(serve: Callable[[Path, Path], None], orders: IO[str] = sys.stdin) -> None:
    """Fork a gateway for each line of orders: state directory, configuration and log, with tabs between."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    for line in orders:
        state_dir, config, log = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            _become(Path(log), {"TYRUM_STATE_DIR": state_dir})
            serve(Path(state_dir), Path(config))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(log: Path, environment: Mapping[str, str]) -> None:
    """Be a process like one that was started by itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    for descriptor in (1, 2):
        os.dup2(lines, descriptor)
