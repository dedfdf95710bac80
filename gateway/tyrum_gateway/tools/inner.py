"""Commands that a command names in its own arguments: `bash -c TEXT`, `env`, `xargs` and their like.

Invariant: for people only, who approve what they see. What cannot be told is said to be unclear; nothing is
taken for the whole of what would run, and no rule is asked about it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tyrum_gateway.domain.policy import starts_others
from tyrum_gateway.tools.shell import Script, parse
from tyrum_gateway.tools.strict_json import shown

MOST_COMMANDS = 16
"""Inner commands of a call that are told of."""
_DEEPEST = 6

_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "mksh", "rbash", "sh", "zsh"})
_SHELL_VALUES = frozenset({"--init-file", "--rcfile", "+O", "+o", "-O", "-o"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a program names the command that it starts."""

    values: str = ""
    """Letters of options that take a value, which may be the next word."""
    operands: int = 0
    """Words of its own before the command."""
    assignments: bool = False


_WRAPPERS = {
    "chroot": _Wrapper(operands=1),
    "chrt": _Wrapper("DPT", operands=1),
    "doas": _Wrapper("Cu"),
    "env": _Wrapper("Cu", assignments=True),
    "flock": _Wrapper("Ew", operands=1),
    "ionice": _Wrapper("cn"),
    "nice": _Wrapper("n"),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper("eio"),
    "sudo": _Wrapper("CDRTUghpru", assignments=True),
    "taskset": _Wrapper(operands=1),
    "time": _Wrapper("fo"),
    "timeout": _Wrapper("ks", operands=1),
    "xargs": _Wrapper("EILPadns"),
}
_FLAGS = frozenset(
    [
        "--exit",
        "--foreground",
        "--ignore-environment",
        "--interactive",
        "--no-run-if-empty",
        "--null",
        "--open-tty",
        "--portability",
        "--preserve-env",
        "--preserve-status",
        "--quiet",
        "--shared",
        "--unbuffered",
        "--verbose",
        "--wait",
    ]
)
"""Long options without a value; what follows another one may be its value."""


@dataclass(slots=True)
class Inner:
    """What a call's words name."""

    commands: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """By what each is named, and its words."""
    unclear: list[str] = field(default_factory=list)
    """Why there may be more."""


def inner_commands(calls: Sequence[Sequence[str]]) -> Inner:
    """Find what commands name in their arguments, as far as these are literal.

    Args:
        calls: Words of each command that is known already.
    """
    found = Inner()
    for words in calls:
        _look(tuple(words), found, 0)
    if len(found.commands) > MOST_COMMANDS:
        found.unclear.append(
            f"{len(found.commands) - MOST_COMMANDS} more commands are named in the arguments"
        )
        del found.commands[MOST_COMMANDS:]
    found.unclear = list(dict.fromkeys(found.unclear))
    return found


def _look(words: tuple[str, ...], found: Inner, depth: int) -> None:
    name = PurePosixPath(words[0]).name if words else ""
    if depth >= _DEEPEST or len(found.commands) > 2 * MOST_COMMANDS:
        found.unclear.append("commands name commands too deep to be followed")
    elif name in _SHELLS:
        _in_shell(name, words, found, depth)
    elif name in _WRAPPERS:
        _behind(name, words, found, depth)
    elif name == "find":
        for command in _of_find(words):
            _name("find", command, found, depth)
    elif depth and starts_others(name):
        found.unclear.append(f"`{name}` may start what its arguments, input or files name")


def _name(by: str, words: tuple[str, ...], found: Inner, depth: int) -> None:
    if not words:
        return
    found.commands.append((by, words))
    _look(words, found, depth + 1)


def _in_shell(name: str, words: tuple[str, ...], found: Inner, depth: int) -> None:
    position, commanded = 1, False
    while position < len(words) and words[position][:1] in {"-", "+"} and words[position] not in {"-", "+"}:
        word = words[position]
        position += 1
        if word == "--":
            break
        commanded = commanded or (word[0] == "-" and not word.startswith("--") and "c" in word)
        if word in _SHELL_VALUES:
            position += 1
    if not commanded:
        if position >= len(words):
            found.unclear.append(f"`{name}` runs what it reads from standard input")
        elif depth:
            found.unclear.append(f"`{name}` runs what stands in a file")
        return
    text = words[position] if position < len(words) else ""
    read = parse(text)
    if isinstance(read, Script):
        for command in read.commands:
            _name(f"{name} -c", command.words, found, depth)
        return
    for sighting in read.sightings:
        _name(f"{name} -c", sighting.words, found, depth)
    found.unclear.append(f"the text of `{name} -c`: {read.reason} (character {read.position + 1})")


def _behind(name: str, words: tuple[str, ...], found: Inner, depth: int) -> None:
    wrapper = _WRAPPERS[name]
    position = 1
    while position < len(words):
        word = words[position]
        if wrapper.assignments and _ASSIGNMENT.match(word):
            position += 1
        elif word == "--":
            position += 1
            break
        elif word.startswith("--"):
            if word.partition("=")[0] == "--split-string":
                found.unclear.append(f"`{name} --split-string` splits its text into a command")
                return
            if "=" not in word and word not in _FLAGS:
                found.unclear.append(f"which command `{name}` starts, because of `{shown(word)}`")
                return
            position += 1
        elif word.startswith("-") and len(word) > 1:
            if name == "env" and "S" in word:
                found.unclear.append("`env -S` splits its text into a command")
                return
            # A value may stand in the same word, behind the letter that takes it.
            at = next((index for index, letter in enumerate(word) if index and letter in wrapper.values), 0)
            position += 2 if at and at == len(word) - 1 else 1
        else:
            break
    position += wrapper.operands
    while wrapper.assignments and position < len(words) and _ASSIGNMENT.match(words[position]):
        position += 1
    _name(name, words[position:], found, depth)
    if name == "xargs":
        found.unclear.append("`xargs` adds arguments that it reads from standard input")


def _of_find(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for position, word in enumerate(words):
        if word in _EXECUTING:
            command = words[position + 1 :]
            end = next((index for index, item in enumerate(command) if item in {";", "+"}), len(command))
            yield command[:end]
