"""The state directory: one gateway at a time, private to its user, self-describing.

It holds `gateway.lock`, `gateway.json` {address, addresses, pid, boot_id, version, config, ops} while a
gateway runs, `operator.token` (0600), the database, `audit/` {key, key.pub, heads.jsonl} and
`providers/<name>/`.
"""

import fcntl
import hashlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tyrum_gateway.bootstrap.trusted_path import walk
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.new_file import create

LONGEST_SOCKET = 100
"""Bytes of the longest socket path; the kernel allows 107."""

_SOCKET_NAME = 40
_PROBE_SECONDS = 1.0
_SOCKET_AGE = 10.0
"""Seconds after which a socket that refuses is nobody's; binding and listening are microseconds apart."""


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """A prepared state directory."""

    path: Path

    @property
    def database(self) -> Path:
        """The durable truth."""
        return self.path / "tyrum.sqlite3"

    @property
    def announcement(self) -> Path:
        """Where clients on this machine find the gateway."""
        return self.path / "gateway.json"

    @property
    def audit(self) -> Path:
        """The key that signs heads of the audit log and, unless configured elsewhere, the heads."""
        return self.path / "audit"

    @property
    def token_file(self) -> Path:
        """The local operator's token."""
        return self.path / "operator.token"

    @classmethod
    def prepare(cls, path: Path) -> "StateDirectory":
        """Create the directory, or check that it is private to this user.

        Raises:
            StateUnusable: It is no directory, belongs to somebody else, others may enter it or decide where
                its path leads, or it cannot be made or written.
        """
        path = path.absolute()
        try:
            walk(path, 0o700)
            status = path.stat()
        except OSError as error:
            raise StateUnusable(f"cannot create the state directory `{path}`: {error.strerror}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise StateUnusable(f"the state directory `{path}` is no directory: choose one with --state-dir")
        if status.st_uid != os.geteuid():
            raise StateUnusable(f"the state directory `{path}` belongs to uid {status.st_uid}, not to you")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise StateUnusable(f"others may enter the state directory `{path}` ({mode:o}): chmod 700 {path}")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            fix = "is its disk read-only?" if mode & 0o700 == 0o700 else f"chmod 700 {path}"
            raise StateUnusable(f"you may not write the state directory `{path}` ({mode:o}): {fix}")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for one gateway, also when somebody removes the file that names its process.

        Raises:
            StateUnusable: Another gateway holds it, and the message names its process; or its lock cannot be
                opened.
        """
        lock = self.path / "gateway.lock"
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateUnusable(f"cannot open the lock `{lock}`: {error.strerror}") from error
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not (_lock(file) and _lock(directory)):
                holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
                raise StateUnusable(
                    f"another gateway (process {holder}) uses the state directory `{self.path}`: end "
                    "that one, or give this one a directory of its own with --state-dir"
                )
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(directory)
            os.close(file)

    def operator_token(self, make: Callable[[], str]) -> str:
        """Read the local operator's token, making it at the first start.

        Raises:
            StateUnusable: The file is not private, holds no token, or cannot be made.
        """
        if os.path.lexists(self.token_file):
            return self._read_token()
        token = make()
        try:
            create(self.token_file, f"{token}\n".encode("ascii"), 0o600)
        except OSError as error:
            raise StateUnusable(f"cannot write the token `{self.token_file}`: {error.strerror}") from error
        return token

    def _read_token(self) -> str:
        status = self.token_file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise StateUnusable(
                f"`{self.token_file}` must be your own file with mode 600: delete it to get a new one"
            )
        token = self.token_file.read_text(encoding="ascii", errors="replace").strip()
        if not token.isascii() or len(token) < 32:
            raise StateUnusable(f"`{self.token_file}` holds no token: delete it to get a new one")
        return token

    @contextmanager
    def announced(
        self, addresses: Sequence[str], version: str, config: Path, ops: str = ""
    ) -> Iterator[None]:
        """Tell clients on this machine where the gateway is and what configured it, while it serves."""
        described = {
            "address": addresses[0],
            "addresses": list(addresses),
            "pid": os.getpid(),
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "version": version,
            "config": str(config.absolute()),
            **({"ops": ops} if ops else {}),
        }
        descriptor, draft = tempfile.mkstemp(dir=self.path, prefix=".gateway-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(described, file)
        Path(draft).replace(self.announcement)
        try:
            yield
        finally:
            self.announcement.unlink(missing_ok=True)


def _lock(descriptor: int) -> bool:
    """Take a lock that ends with the process; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some file systems lock no directories: then the file alone counts.
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    return True


def runtime_directory() -> Path:
    """Find or make the private directory with a short path for the sockets of this user's gateways.

    Raises:
        StateUnusable: No directory with a path short enough can be made.
    """
    uid = os.geteuid()
    bases = [Path("/run/tyrum")] if uid == 0 else []
    if os.environ.get("XDG_RUNTIME_DIR"):
        bases.append(Path(os.environ["XDG_RUNTIME_DIR"]) / "tyrum")
    bases.append(Path(tempfile.gettempdir()) / f"tyrum-{uid}")
    problems = []
    for base in bases:
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            status = base.lstat()
        except OSError as error:
            problems.append(f"`{base}`: {error.strerror}")
            continue
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or status.st_mode & 0o077:
            problems.append(f"`{base}` is not a private directory of yours")
        elif len(os.fsencode(base)) > LONGEST_SOCKET - _SOCKET_NAME:
            problems.append(f"`{base}` is too long for a socket")
        else:
            return base
    raise StateUnusable("no directory for sockets: " + "; ".join(problems))


def free_socket(path: Path) -> None:
    """Make a socket path free to listen on: gRPC would take it from a living server without a word.

    Only what a gateway that is gone has left behind is removed.

    Raises:
        StateUnusable: A process listens there, the path holds something else, or it cannot be reached.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_SECONDS)
            probe.connect(os.fspath(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError as error:
        # A regular file refuses connections as well.
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise StateUnusable(f"`{path}` is no socket: remove it or listen elsewhere") from error
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StateUnusable(f"cannot listen on `{path}`: {error.strerror or 'no answer'}") from error
    else:
        raise StateUnusable(f"another process listens on `{path}`: listen elsewhere")


def remove_stale_sockets(runtime: Path) -> list[Path]:
    """Remove the sockets of this user's gateways that are gone, and return them.

    One that answers stays, and so does a young one: between bind and listen, a living one refuses as well.
    """
    removed = []
    for path in sorted(runtime.glob("gateway-*.sock")):
        try:
            status = path.lstat()
            aged = time.time() - status.st_mtime > _SOCKET_AGE
            if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() and aged and _refuses(path):
                path.unlink()
                removed.append(path)
        except FileNotFoundError:
            continue
    return removed


def _refuses(path: Path) -> bool:
    """Tell whether nobody listens on a socket; any doubt is a no."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_SECONDS)
            probe.connect(os.fspath(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def gateway_socket(runtime: Path, state: Path) -> Path:
    """Name the gateway's socket: one per state directory, whose lock makes its path safe to take over."""
    return runtime / f"gateway-{hashlib.sha256(os.fsencode(state)).hexdigest()[:12]}.sock"
