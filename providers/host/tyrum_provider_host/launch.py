"""Starting one provider instance: its directory, its environment, its process, and the end of all three.

Invariants: an instance has a directory and a socket path that no other instance ever had; its environment
holds nothing of the host's; the token travels through standard input alone; standard input stays open as
long as the host lives; directories of hosts that are provably gone are swept, others are never touched.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tyrum_provider_host.contracts import CONTROL_VERSION_MAX, CONTROL_VERSION_MIN
from tyrum_provider_host.logs import LogReader, LogRing
from tyrum_provider_host.rejection import SHORTAGES

MAX_SOCKET_PATH_BYTES = 100
_DIRECTORY = re.compile(r"[0-9a-f]{8}")
_MARKER = ".host"
_SOCKET = "p.sock"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LANG = "C.UTF-8"


class LaunchError(Exception):
    """The instance could not be started; the message says what to change."""

    def __init__(self, message: str, cause: OSError | None = None) -> None:
        super().__init__(message)
        self.passing = cause is not None and cause.errno in SHORTAGES


@dataclass(frozen=True, slots=True)
class InstanceDirectory:
    """A fresh directory of mode 0700 for one instance."""

    path: Path

    @property
    def socket(self) -> Path:
        """Where the provider listens."""
        return self.path / _SOCKET

    @property
    def temporary(self) -> Path:
        """The provider's TMPDIR."""
        return self.path / "tmp"

    def remove(self) -> None:
        """Delete the directory with everything in it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process of an instance ended; exactly one field is set."""

    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exited with status {self.code}"
        try:
            return f"was ended by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"was ended by signal {self.signal}"


def prepare_runtime_directory(path: Path) -> None:
    """Create the directory of all instances if it is missing, and check that nobody else controls it.

    Raises:
        LaunchError: it is not a directory, belongs to another user or is writable by others.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise LaunchError(f"the runtime directory {path} cannot be used: {error.strerror}") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LaunchError(
            f"the runtime directory {path} must belong to uid {os.geteuid()} and be writable by nobody else"
            f" (owner uid {status.st_uid}, mode {status.st_mode & 0o7777:04o})"
        )


def create_directory(runtime_directory: Path) -> InstanceDirectory:
    """Make a directory that no instance ever had.

    Raises:
        LaunchError: the socket path would be too long, or the directory cannot be created.
    """
    while True:
        directory = InstanceDirectory(runtime_directory / secrets.token_hex(4))
        length = len(os.fsencode(directory.socket))
        if length > MAX_SOCKET_PATH_BYTES:
            raise LaunchError(
                f"the socket path {directory.socket} has {length} bytes, at most {MAX_SOCKET_PATH_BYTES}:"
                " choose a shorter runtime directory"
            )
        try:
            directory.path.mkdir(mode=0o700)
            directory.temporary.mkdir(mode=0o700)
            marker = {"pid": os.getpid(), "started": _start_ticks(os.getpid()), "boot": _boot_id()}
            (directory.path / _MARKER).write_text(json.dumps(marker), encoding="ascii")
        except FileExistsError:
            continue
        except OSError as error:
            # Without a whole marker it would never be swept.
            for undo in (directory.temporary.rmdir, (directory.path / _MARKER).unlink, directory.path.rmdir):
                with contextlib.suppress(OSError):
                    undo()
            raise LaunchError(f"{directory.path} cannot be created: {error.strerror}", error) from None
        return directory


def sweep(runtime_directory: Path) -> tuple[Path, ...]:
    """Remove the instance directories whose host is provably gone; return them.

    A directory without our marker, of another user or of a living host is left alone.
    """
    swept = []
    for path in sorted(runtime_directory.iterdir()):
        if not _DIRECTORY.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        if path.stat().st_uid != os.geteuid():
            continue
        try:
            marker = json.loads((path / _MARKER).read_text(encoding="ascii"))
            pid, started, boot = int(marker["pid"]), int(marker["started"]), str(marker["boot"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if boot == _boot_id() and _start_ticks(pid) == started:
            continue
        shutil.rmtree(path, ignore_errors=True)
        swept.append(path)
    return tuple(swept)


def environment(
    *, directory: InstanceDirectory, state_directory: Path, instance_id: str, allowed: Mapping[str, str]
) -> dict[str, str]:
    """Build the whole environment of a provider; nothing is inherited from the host."""
    return {
        "PATH": _PATH,
        "LANG": _LANG,
        "TMPDIR": os.fspath(directory.temporary),
        # Children of a provider crash in gRPC's fork handlers; the variable counts before the first import.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        **allowed,
        "TYRUM_PROVIDER_SOCKET": os.fspath(directory.socket),
        "TYRUM_PROVIDER_INSTANCE_ID": instance_id,
        "TYRUM_PROVIDER_STATE_DIR": os.fspath(state_directory),
        "TYRUM_PROVIDER_RUNTIME_DIR": os.fspath(directory.path),
        "TYRUM_PROVIDER_CONTROL_VERSIONS": f"{CONTROL_VERSION_MIN}-{CONTROL_VERSION_MAX}",
    }


class ProviderProcess:
    """A started provider: leader of its own session and process group, observed through a pidfd."""

    def __init__(self, process: "subprocess.Popen[bytes]", ring: LogRing) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._loop = asyncio.get_running_loop()
        self._process = process
        with contextlib.ExitStack() as undo:
            self._pidfd = os.pidfd_open(process.pid)
            undo.callback(os.close, self._pidfd)
            pipes = {"stdout": os.dup(process.stdout.fileno())}
            undo.callback(os.close, pipes["stdout"])
            pipes["stderr"] = os.dup(process.stderr.fileno())
            undo.pop_all()
        process.stdout.close()
        process.stderr.close()
        self._exit: asyncio.Future[Exit] = self._loop.create_future()
        self._readers = [LogReader(name, descriptor, ring) for name, descriptor in pipes.items()]
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def pid(self) -> int:
        """Process id of the leader."""
        return self._process.pid

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        return self._exit.result() if self._exit.done() else None

    async def wait(self) -> Exit:
        """Return once the leader has ended and its group was killed. Any number of tasks may wait."""
        return await asyncio.shield(self._exit)

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the leader and all processes of its group; does nothing once the leader was reaped."""
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _ended(self) -> None:
        # The leader is a zombie now, so its group id cannot belong to anybody else yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for reader in self._readers:
            reader.close()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._exit.set_result(Exit(status, None) if status >= 0 else Exit(None, -status))


def spawn(
    command: tuple[str, ...], *, environment: Mapping[str, str], token_line: bytes, ring: LogRing
) -> ProviderProcess:
    """Start `command` and hand it the token; standard input stays open as lifeline.

    Called on the loop's own thread: a provider that asks to die with its parent would otherwise die with
    the worker thread that started it.

    Raises:
        OSError: the program could not be executed, or not be observed and was ended.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        close_fds=True,
        cwd="/",
        env=dict(environment),
        start_new_session=True,
        umask=0o077,
    )
    try:
        started = ProviderProcess(process, ring)
    except OSError:  # no descriptor is left to observe it with
        with process:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.stdin is not None
    # A provider that has ended already is reported through its exit status.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(token_line)
    return started


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
