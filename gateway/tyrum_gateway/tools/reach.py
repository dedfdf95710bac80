"""Who can replace a program: a rule that allows a path means little where others than root write on the way.

Invariant: a program counts as out of reach only when root alone may write it, every directory and link on the
way to it, and the interpreters that it names in its first line; what cannot be looked at does not count.
Whether the agent's commands run as root is the operator's decision, and nothing is out of their reach then.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath

from tyrum_gateway.tools import programs, walking
from tyrum_gateway.tools.visible import quoted

_INTERPRETERS = 5
"""As many as Linux starts one another, and none more."""


def replaceable(program: programs.Program, workspace: str) -> str:
    """Say how somebody other than root can replace a program or what interprets it.

    Args:
        program: Resolved.
        workspace: Absolute path, beneath which nothing is out of reach.

    Returns:
        A clause for people; empty when root alone can.
    """
    name = quoted(PurePosixPath(program.path).name)
    why = opening(program.path, workspace)
    if why:
        return f"`{name}` can be replaced: {why}"
    why = interpreted(program, workspace)
    return f"what interprets `{name}` can be replaced: {why}" if why else ""


def interpreted(program: programs.Program, workspace: str) -> str:
    """Say where others than root can write on the way to what interprets a script, and so on.

    Args:
        program: Resolved.
        workspace: Absolute path, beneath which nothing is out of reach.

    Returns:
        A clause for people; empty when nowhere, and for a program that is no script.
    """
    return next((why for named in interpreters(program, workspace) if (why := opening(named, workspace))), "")


def interpreters(program: programs.Program, directory: str) -> Iterator[str]:
    """Give what a script names in its first line, and what that names, as it stands there.

    Args:
        program: Resolved.
        directory: Absolute path of the working directory, in which relative ones are looked for.
    """
    current: programs.Program | None = program
    for _ in range(_INTERPRETERS):
        named = None if current is None else programs.interpreter(current)
        if named is None:
            return
        yield named
        current = programs.executable(os.path.join(directory, named))  # noqa: PTH118 - text all the way


def diverted(name: str, search: programs.SearchPath, workspace: str) -> str:
    """Say how somebody other than root can make a shell find another program by a name that has one.

    Args:
        name: As a command has it; with a `/` it is absolute.
        search: Where the shell looks for plain names, in order.
        workspace: Absolute path, beneath which nothing is out of reach.

    Returns:
        A clause for people; empty when root alone can.
    """
    ways = (name,) if "/" in name else tuple(f"{directory}/{name}" for directory in search.directories)
    for way in ways:
        why = opening(way, workspace)
        if why:
            return f"bash may find another `{quoted(name)}`: {why}"
        if walking.exists(way):
            break
    return ""


def writers(status: os.stat_result) -> str:
    """Say who may write a file or directory besides root; empty when nobody may.

    Whoever owns it may, by changing its mode; in a directory for everybody like `/tmp` the sticky bit keeps
    others only from names that exist.
    """
    if status.st_uid != 0:
        return f"belongs to uid {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "is writable for everybody"
    # Also where an access list names users of its own, whose mask stands in these bits.
    return f"is writable for gid {status.st_gid}" if status.st_mode & stat.S_IWGRP else ""


def opening(path: str, workspace: str) -> str:
    """Find the first place on the way to a file where others than root can write; empty without one."""
    if not path.startswith("/"):
        return "it is named relative to the workspace"
    beneath = workspace.rstrip("/") + "/"
    for place, status in walking.places(path):
        if f"{place}/".startswith(beneath):
            return "it lies in the workspace"
        if not isinstance(status, os.stat_result):
            missing = isinstance(status, FileNotFoundError)
            return "" if missing else f"{quoted(place)} cannot be looked at"
        # A link has no mode of its own: who may write its directory decides.
        why = "" if stat.S_ISLNK(status.st_mode) else writers(status)
        if why:
            return f"{quoted(place)} {why}"
    return ""
