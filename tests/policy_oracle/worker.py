"""Runs texts in bash, one after the other, inside the scratch root, and says what they did.

A program of its own that needs the standard library alone: whoever starts it gives it namespaces; it gives up
its root directory and its user before it reads the first text, and has imported all it needs by then.
Invariant: each text starts from the same files, and nothing of it is left when the next begins.
"""

import base64
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

_LIMITS = (
    (resource.RLIMIT_CPU, 10),
    (resource.RLIMIT_FSIZE, 1 << 20),
    (resource.RLIMIT_AS, 1 << 30),
    (resource.RLIMIT_NOFILE, 64),
    (resource.RLIMIT_CORE, 0),
)


def main() -> None:
    """Confine this process as its first line of input says, then answer each further line with one."""
    settings = json.loads(sys.stdin.readline())
    confined = _confine(settings["root"], settings["uid"])
    place = Place(settings["root"], settings["processes"])
    _answer(confined)
    for line in sys.stdin:
        _answer(place.run(json.loads(line)))


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _confine(root: str, uid: int | None) -> dict[str, Any]:
    chroot = False
    try:
        os.chroot(root)
        os.chdir("/")
        chroot = True
    except PermissionError:
        pass
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    return {"chroot": chroot, "uid": os.getuid()}


class Place:
    """The scratch root; its path is the same inside, where a link leads from it to `/`."""

    def __init__(self, root: str, processes: int) -> None:
        self._root = root
        self._workspace = Path(root, "workspace")
        self._records = Path(root, "records")
        self._processes = processes
        self._content = {path: path.read_bytes() for path in self._workspace.rglob("*") if path.is_file()}
        self._modes = {path: path.stat().st_mode for path in self._content}
        self._before = self._listing()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one text and describe its end, output, programs and files."""
        out, err = self._records / "stdout", self._records / "stderr"
        status = self._run_bash(job, out, err)
        left = self._end_group()
        return {
            "status": status,
            "left": left,
            "stdout": _encoded(_take(out)),
            "stderr": _encoded(_take(err)),
            "records": [_encoded(_take(path)) for path in sorted(self._records.iterdir())],
            "changed": self._changes(),
        }

    def _run_bash(self, job: dict[str, Any], out: Path, err: Path) -> int | None:
        """Start bash as the product does; None when it had to be killed."""
        environment = {
            "PATH": f"{self._root}/programs",
            "HOME": f"{self._root}/workspace",
            "LANG": "C.UTF-8",
            **job.get("env", {}),
        }
        argv = ["bash", "--noprofile", "--norc", "-c", "--", job["text"].encode()]
        self._child = os.fork()
        if self._child == 0:
            try:
                self._become_bash(argv, environment, out, err)
            finally:
                os._exit(126)
        watched = os.pidfd_open(self._child)
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        ended = poll.poll(job["seconds"] * 1000)
        os.close(watched)
        if not ended:
            os.killpg(self._child, signal.SIGKILL)
        _, raw = os.waitpid(self._child, 0)
        return os.waitstatus_to_exitcode(raw) if ended else None

    def _become_bash(self, argv: list[Any], environment: dict[str, str], out: Path, err: Path) -> None:
        os.setsid()
        os.chdir(self._workspace)
        # Written by no text before: an empty file that nobody can extend while it is read.
        os.dup2(os.open(f"{self._root}/empty", os.O_RDONLY), 0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        os.dup2(os.open(out, flags, 0o600), 1)
        os.dup2(os.open(err, flags, 0o600), 2)
        os.closerange(3, 64)
        for limit, value in (*_LIMITS, (resource.RLIMIT_NPROC, self._processes)):
            resource.setrlimit(limit, (value, value))
        os.execve(f"{self._root}/shell/bash", argv, environment)  # noqa: S606 - that is the point

    def _end_group(self) -> bool:
        """Kill what the text left behind; tell whether there was any."""
        left = False
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                os.killpg(self._child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            left = True
            _reap()
        _reap()
        return left

    def _changes(self) -> list[str]:
        """Name what differs in the workspace from before the text, and put it back."""
        now, before = self._listing(), self._before
        changed = sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
        if changed:
            self._restore()
            self._before = self._listing()
        return changed

    def _restore(self) -> None:
        for entry in self._workspace.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for path, content in self._content.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            path.chmod(self._modes[path])

    def _listing(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        pending = [str(self._workspace)]
        while pending:
            directory = pending.pop()
            status = os.stat(directory)  # noqa: PTH116 - names may be any bytes
            found[directory] = (status.st_mode, status.st_mtime_ns)
            with os.scandir(directory) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    path = os.fsencode(entry.path).decode("latin-1")
                    found[path] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        return found


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _take(path: Path) -> bytes:
    content = path.read_bytes()
    path.unlink()
    return content


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


if __name__ == "__main__":
    main()
