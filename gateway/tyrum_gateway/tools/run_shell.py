"""Shell text as policy and approval need it: which programs it starts, and whether that is certain.

Invariant: a text counts as clear only when bash, with the PATH that the kernel gives it, finds exactly the
programs that the kernel found: nothing relative, nothing in the workspace, no name with two meanings.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from tyrum_gateway.domain.policy import StartedCommand
from tyrum_gateway.tools import programs, reach, walking
from tyrum_gateway.tools.shell import Opaque, Script, parse
from tyrum_gateway.tools.strict_json import ArgumentProblem, shown


@dataclass(frozen=True, slots=True)
class ShellPlan:
    """What is known of a text before it runs."""

    commands: tuple[StartedCommand, ...]
    programs: tuple[programs.Program, ...]
    """Of literal commands, each once; their content is to be fixed."""
    arguments: tuple[str, ...]
    """Of commands as far as they can be seen; they may name files."""
    opaque: str
    """Why it is not certain that these are the commands; empty when it is."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the text would run."""

    search: programs.SearchPath
    workspace: str
    """Absolute path."""
    cwd: str
    """Checked directory relative to it."""


def sole_command(text: str) -> tuple[str, ...] | None:
    """Return the words of a text that is one literal command, which needs no shell; None for any other."""
    read = parse(text)
    return read.commands[0].words if isinstance(read, Script) and len(read.commands) == 1 else None


def plan(text: str, shell: programs.Program, around: Surroundings) -> ShellPlan:
    """Find out what a text would start; files are looked at, none is read."""
    read = parse(text)
    match read:
        case Opaque():
            return _sighted(read, around)
        case Script():
            return _planned(read, shell, around)
        case _:
            assert_never(read)


def _sighted(opaque: Opaque, around: Surroundings) -> ShellPlan:
    found: list[StartedCommand] = []
    named: list[str] = []
    for sighting in opaque.sightings:
        name, *arguments = sighting.words
        named += arguments
        try:
            program = programs.resolve(name, around.search, around.workspace, around.cwd)
        except ArgumentProblem:
            continue
        found.append(StartedCommand(program.path, sighting.words, sighting.complete))
        if "/" in name and reach.opening(program.path, around.workspace):
            named.append(name)
    return ShellPlan(tuple(found), (), tuple(named), f"{opaque.reason} (character {opaque.position + 1})")


def _planned(script: Script, shell: programs.Program, around: Surroundings) -> ShellPlan:
    commands: list[StartedCommand] = []
    found: dict[str, programs.Program] = {}
    ways: dict[str, str] = {}
    way = reach.replaceable(shell, around.workspace)
    doubts = list(_doubts_about_path(shell, around))
    for index, command in enumerate(script.commands):
        name = command.words[0]
        try:
            program = programs.resolve(name, around.search, around.workspace, around.cwd)
        except ArgumentProblem:
            doubts.append(f"there is no program `{shown(name)}`")
            continue
        if name not in ways:
            ways[name] = way or _replaceable(name, program, around)
        commands.append(
            StartedCommand(program.path, command.words, piped=script.piped(index), replaceable=ways[name])
        )
        found.setdefault(program.path, program)
        doubts += _doubts(name, program, around)
    arguments = tuple(word for command in script.commands for word in command.words[1:])
    return ShellPlan(tuple(commands), tuple(found.values()), arguments, doubts[0] if doubts else "")


def _doubts_about_path(shell: programs.Program, around: Surroundings) -> Iterator[str]:
    if _inside(shell.path, around.workspace):
        yield "bash itself lies in the workspace"
    for directory in around.search.directories:
        if ":" in directory or not directory.startswith("/"):
            yield "bash cannot be given this search path"
        if _inside(_end(directory), around.workspace):
            yield "a directory for programs lies in the workspace"


def _doubts(name: str, program: programs.Program, around: Surroundings) -> Iterator[str]:
    """Say why bash may start something else than the program that was found."""
    if _inside(program.path, around.workspace):
        yield f"`{shown(name)}` lies in the workspace"
    if "/" not in name:
        for directory in around.search.directories:
            candidate = os.path.join(directory, name)  # noqa: PTH118 - text all the way
            if walking.exists(candidate) and _end(candidate) != program.path:
                yield f"there is more than one `{shown(name)}`"
    elif not name.startswith("/"):
        yield f"`{shown(name)}` is not absolute"
    elif name != program.path and os.path.dirname(name) not in around.search.directories:  # noqa: PTH120
        yield f"`{shown(name)}` is a link"


def _replaceable(name: str, program: programs.Program, around: Surroundings) -> str:
    """Say how others than root can make bash start another program than the one that was found and fixed.

    Bash looks for the name again, a moment after the programs were compared.
    """
    return reach.replaceable(program, around.workspace) or reach.diverted(
        name, around.search, around.workspace
    )


def _end(path: str) -> str:
    """Follow links as far as they lead."""
    try:
        return walking.resolved(path)[0]
    except (OSError, ValueError):
        return path


def _inside(path: str, workspace: str) -> bool:
    return f"{path}/".startswith(workspace.rstrip("/") + "/")
