"""Compares what policy allowed with what bash did.

An escape is any difference: another program, order, argument, standard input, environment, descriptor or
directory, a file in the workspace, output that no stub wrote, a message of bash's own, a process left. What
ran is judged a second time by a predicate that shares no code with the product.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.policy_oracle.rules import permits
from tests.policy_oracle.sandbox import Observed, Sandbox, exit_code

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """A text as the product read it: pipelines of commands, and what stands between the pipelines."""

    pipelines: tuple[tuple[Words, ...], ...]
    operators: tuple[str, ...]
    """`&&`, `||` or `;` (which a newline is, too), one less than there are pipelines."""

    @property
    def all(self) -> tuple[Words, ...]:
        """Every command, in the order of the text."""
        return tuple(words for pipeline in self.pipelines for words in pipeline)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Policy lets the text run without asking."""

    commands: Commands


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """Policy asks or denies."""

    commands: Commands | None
    """How the text was read, None when it was not read as literal commands."""


Judge = Callable[[str], Allowed | NotAllowed]


@dataclass(frozen=True, slots=True)
class Escape:
    """A text that did, or means, something else than was allowed or read."""

    text: str
    kind: str
    detail: str


def check_run(sandbox: Sandbox, text: str, commands: Commands) -> tuple[int, list[Escape]]:
    """Run an allowed text; return how many programs ran, and every difference from what was allowed."""
    if unrunnable := _unrunnable(text):
        return 0, [Escape(text, "unrunnable", unrunnable)]
    observed = sandbox.run(text)
    ran = executed(commands, sandbox.seed)
    found: list[tuple[str, str]] = _ending(observed, ran, sandbox.seed)
    expected = [[_program(sandbox, words) for words in pipeline] for pipeline in ran]
    actual = [(_resolved(call.path), *call.arguments) for call in observed.calls]
    if _by_pipeline(actual, expected) != [sorted(pipeline) for pipeline in expected]:
        found.append(("programs", f"allowed {expected!r}, ran {actual!r}"))
    for call in observed.calls:
        permitted = permits(call.name, call.arguments, piped=bool(call.stdin))
        if Path(_resolved(call.path)).parent != sandbox.programs or not permitted:
            found.append(("not permitted", repr((call.path, *call.arguments))))
        if call.surroundings != sandbox.ordinary:
            found.append(("surroundings", call.surroundings))
    inputs = Counter((call.name, call.stdin) for call in observed.calls)
    if inputs != Counter(pair for pipeline in ran for pair in _inputs(pipeline)):
        found.append(("standard input", repr(dict(inputs))))
    if observed.stdout != "".join(f"out:{_name(pipeline[-1])}\n" for pipeline in ran):
        found.append(("standard output", repr(observed.stdout)))
    if Counter(observed.stderr.splitlines()) != Counter(
        f"err:{_name(words)}" for pipeline in ran for words in pipeline
    ):
        found.append(("standard error", repr(observed.stderr)))
    return len(observed.calls), [Escape(text, kind, detail) for kind, detail in found]


def check_words(sandbox: Sandbox, text: str, commands: Commands) -> list[Escape]:
    """Let bash say which words a text consists of, whatever its commands are called."""
    if unrunnable := _unrunnable(text):
        return [Escape(text, "unrunnable", unrunnable)]
    if any("/" in words[0] or words[0] == "enable" for words in commands.all):
        return []  # only names that are looked up are handled as unknown
    observed = sandbox.words(text)
    ran = executed(commands, sandbox.seed)
    actual = [(call.path, *call.arguments) for call in observed.calls]
    if _by_pipeline(actual, ran) != [sorted(pipeline) for pipeline in ran]:
        return [Escape(text, "words", f"read as {ran!r}, by bash as {actual!r}; {observed.stderr!r}")]
    found = _ending(observed, ran, sandbox.seed)
    if observed.stdout or observed.stderr:
        found.append(("message", repr(observed.stdout + observed.stderr)))
    return [Escape(text, kind, detail) for kind, detail in found]


def executed(commands: Commands, seed: int) -> list[Sequence[Words]]:
    """Return the pipelines that run, by the exit codes of the stubs: all operators bind equally."""
    ran = [commands.pipelines[0]]
    for operator, pipeline in zip(commands.operators, commands.pipelines[1:], strict=True):
        failed = exit_code(_name(ran[-1][-1]), seed) != 0
        match operator:
            case ";":
                ran.append(pipeline)
            case "&&":
                if not failed:
                    ran.append(pipeline)
            case "||":
                if failed:
                    ran.append(pipeline)
            case _:
                raise ValueError(f"`{operator}` is no operator that a literal text may have")
    return list(ran)


def _ending(observed: Observed, ran: Sequence[Sequence[Words]], seed: int) -> list[tuple[str, str]]:
    found = []
    if observed.status != exit_code(_name(ran[-1][-1]), seed):
        found.append(("exit code", f"{observed.status} {observed.stderr!r}"))
    if observed.left:
        found.append(("processes", "some were left"))
    if observed.changed:
        found.append(("files", ", ".join(observed.changed)))
    return found


def _inputs(pipeline: Sequence[Words]) -> list[tuple[str, str]]:
    before = ["", *(f"out:{_name(words)}\n" for words in pipeline[:-1])]
    return [(_name(words), stdin) for words, stdin in zip(pipeline, before, strict=True)]


def _by_pipeline(actual: Sequence[Words], expected: Sequence[Sequence[Words]]) -> list[list[Words]]:
    """Cut what ran into pipelines of the expected lengths, inside which the order is free."""
    rest, cut = list(actual), []
    for pipeline in expected:
        cut.append(sorted(rest[: len(pipeline)]))
        rest = rest[len(pipeline) :]
    return [*cut, rest] if rest else cut


def _program(sandbox: Sandbox, words: Words) -> Words:
    return (_resolved(str(sandbox.programs / words[0])), *words[1:])


def _name(words: Words) -> str:
    return words[0].rpartition("/")[2]


def _resolved(path: str) -> str:
    """Write a path the shortest way; none of its parts is a link."""
    return "/" + os.path.normpath(path).lstrip("/") if path.startswith("/") else path


def _unrunnable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "no UTF-8 can say it"
    return "it holds a NUL" if "\0" in text else ""
