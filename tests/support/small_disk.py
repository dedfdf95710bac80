"""A disk that is really full: a file system of a few MiB where this process may mount one.

Elsewhere files that must not grow stand in for it: the limit on a file's size, lowered while the disk is
"full". SQLite says something else then, and everything that follows from a write that fails is the same.
"""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 1024 * 1024


class SmallDisk:
    """Room for a few MiB."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path = path
        self.mounted = mounted
        """Whether it is one; else the limit stands in for it, in this process and those it starts then."""
        self._ballast = path / "ballast"
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, grows: Path) -> None:
        """Take all the room there is.

        Args:
            grows: The file that is going to need more.
        """
        if not self.mounted:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (grows.stat().st_size if grows.exists() else 0, self._hard)
            )
            return
        with self._ballast.open("wb", buffering=0) as file:
            size = _BLOCK
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Give it back."""
        if self.mounted:
            self._ballast.unlink(missing_ok=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._soft, self._hard))


@contextmanager
def mounted(path: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Make a small disk at a path, as small as this process may."""
    path.mkdir(mode=0o700)
    options = f"size={mebibytes}m,mode=700"
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tyrum-test", path], capture_output=True, check=False
    )
    disk = SmallDisk(path, mounted=mounting.returncode == 0)
    try:
        yield disk
    finally:
        disk.free()
        if mounting.returncode == 0:
            subprocess.run(["umount", "--lazy", path], check=True)
