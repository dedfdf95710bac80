"""The way to the state directory: nobody but this user and root decides where it leads.

Invariant: every directory and symbolic link on the way belongs to root or to this user, and in none of them
others may replace the next; as `sshd` asks of the files it believes. Otherwise whoever owns a link could show
the gateway another database, key and token each time it starts.
"""

import os
import stat
from pathlib import Path

from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.new_file import make_directory

_MOST_LINKS = 40
"""As many as the kernel follows."""


def walk(path: Path, mode: int) -> None:
    """Go to a directory, making what is missing at the end of the way.

    Args:
        path: Absolute.
        mode: Of the directory itself, if it is made here; those above it get the usual one.

    Raises:
        StateUnusable: Somebody else decides where the path leads.
        OSError: It cannot be reached or made.
    """
    reached, links = Path("/"), 0
    ahead = list(path.parts[1:])
    while ahead:
        part = ahead.pop(0)
        if part == "..":
            reached = reached.parent
            continue
        following = reached / part
        try:
            status = following.lstat()
        except FileNotFoundError:
            make_directory(following, mode if not ahead else 0o777)
            status = following.lstat()
        _trust(path, following, status)
        if not stat.S_ISLNK(status.st_mode):
            reached = following
            continue
        links += 1
        if links > _MOST_LINKS:
            raise StateUnusable(f"too many symbolic links on the way to `{path}`")
        target = Path(following.readlink())
        ahead[:0] = target.parts[1:] if target.is_absolute() else target.parts
        reached = Path("/") if target.is_absolute() else reached


def _trust(path: Path, component: Path, status: os.stat_result) -> None:
    if status.st_uid not in {0, os.geteuid()}:
        what = "symbolic link" if stat.S_ISLNK(status.st_mode) else "directory"
        raise StateUnusable(
            f"the way to the state directory `{path}` leads over the {what} `{component}` of uid "
            f"{status.st_uid}, who could make it lead elsewhere: use a path of your own"
        )
    replaceable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if replaceable and stat.S_ISDIR(status.st_mode):
        raise StateUnusable(
            f"the way to the state directory `{path}` leads through `{component}`, where everybody may "
            f"replace what follows: chmod o-w {component}, or use another path"
        )
