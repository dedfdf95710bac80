"""Rules that are sound and yet seem to decide nothing, as far as the file and this machine show.

Invariant: what is said here keeps no gateway from starting: a program may be installed tomorrow, and a deny
that overrules everything may be meant so. What can never match, whatever happens, is refused by `rules`.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from tyrum_gateway.config import document, model, rule_model
from tyrum_gateway.config.document import Node, descend
from tyrum_gateway.config.load import CheckedFile, read_file
from tyrum_gateway.config.policy import to_bundle
from tyrum_gateway.config.problems import START, Path, Place, Problem, did_you_mean
from tyrum_gateway.domain.policy import (
    DEPLOYMENT,
    Bundle,
    Decision,
    Effect,
    Literal,
    Rule,
    overshadowed,
    together,
)

_EACH = 5
"""Rules beaten by the same one that are told of one by one."""

Replaceable = Callable[[str], str]
"""Says of a program's real path how others than root can replace it; empty when they cannot."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The bundles of a file that holds together."""

    file: str
    root: Node | None
    directories: tuple[str, ...]
    """Where programs are looked for by their name."""
    replaceable: Replaceable

    def place(self, path: Path) -> Place:
        node = descend(self.root, *path)
        return START if node is None else node.place

    def doubt(self, path: Path, code: str, message: str) -> Problem:
        return Problem(self.file, self.place(path), path, code, message)


def idle_rules(checked: CheckedFile, replaceable: Replaceable) -> tuple[Problem, ...]:
    """List what an operator should look at in the rules of a file without problems, by position.

    Raises:
        ConfigProblems: the file cannot be read again.
    """
    content, file = checked.content, str(checked.path)
    paths = [profile.path for profile in content.profiles.isolation.values()] or [list(model.DEFAULT_PATH)]
    directories = tuple(dict.fromkeys(directory for path in paths for directory in path))
    source = _Source(
        file, document.read_document(read_file(checked.path), file).root, directories, replaceable
    )
    used = {DEPLOYMENT, content.agents.default.policy}
    return _ordered(_of_bundles(source, content.policy, used))


def idle_rules_alone(
    root: document.Mapping, bundle: rule_model.Bundle, file: str, replaceable: Replaceable
) -> tuple[Problem, ...]:
    """List the same for a file that has only `rules`."""
    source = _Source(file, root, model.DEFAULT_PATH, replaceable)
    return _ordered(_of_rules(source, (), to_bundle("default", bundle), None))


def _ordered(problems: Iterator[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.place))


def _of_bundles(
    source: _Source, policy: Mapping[str, rule_model.Bundle], used: set[str]
) -> Iterator[Problem]:
    bundles = {name: to_bundle(name, bundle) for name, bundle in policy.items()}
    for name, bundle in bundles.items():
        path: Path = ("policy", name)
        if name not in used and bundle.rules:
            hint = (
                did_you_mean(name, used) or f"; name it in `agents.default.policy`, or call it `{DEPLOYMENT}`"
            )
            message = f"no agent has this bundle: its rules decide nothing{hint}"
            yield source.doubt(path, "unused_bundle", message)
            continue
        shared = bundles.get(DEPLOYMENT) if name != DEPLOYMENT else None
        yield from _of_rules(source, path, bundle, shared)


def _of_rules(source: _Source, path: Path, bundle: Bundle, shared: Bundle | None) -> Iterator[Problem]:
    for index, rule in enumerate(bundle.rules):
        for key, message in _match(source, rule):
            place = (*path, "rules", index, "match", key)
            yield source.doubt(place, "seems_idle", f"rule `{rule.rule_id}` {message}")
    yield from _beaten(source, path, bundle, shared)


def _beaten(source: _Source, path: Path, bundle: Bundle, shared: Bundle | None) -> Iterator[Problem]:
    """Tell of each rule that another one beats; of many that the same one beats, there."""
    before = 0 if shared is None else len(shared.rules)
    held = together(shared, bundle).rules
    beaten: dict[int, list[int]] = {}
    for position, other in overshadowed(held):
        if position >= before:  # the deployment's are told by themselves
            beaten.setdefault(other, []).append(position)
    for other, positions in beaten.items():
        winner = held[other]
        home: Path = ("policy", DEPLOYMENT) if other < before else path
        place: Path = (*home, "rules", other if other < before else other - before)
        if len(positions) > _EACH:
            names = ", ".join(f"`{held[position].rule_id}`" for position in positions[:_EACH])
            message = (
                f"rule `{winner.rule_id}` decides on every call that {len(positions)} other rules match, so "
                f"that they decide nothing: {names} and more; narrow it, or take them out"
            )
            yield source.doubt(place, "overshadows", message)
            continue
        line = source.place((*place, "id")).line
        for position in positions:
            same = "the same" if winner.decision is held[position].decision else f"`{winner.decision}`"
            message = (
                f"rule `{held[position].rule_id}` decides nothing: rule `{winner.rule_id}` (line {line}) "
                f"decides {same} on every call that it matches; narrow that one, or take this one out"
            )
            yield source.doubt((*path, "rules", position - before), "overshadowed", message)


def _match(source: _Source, rule: Rule) -> Iterator[tuple[str, str]]:
    """Give the key of the match and what is wrong with it."""
    if rule.effect is Effect.READ_ONLY:
        yield "effect", "matches nothing: no tool of this version only reads; leave out `effect`"
    first = rule.argv[0].text if rule.argv and isinstance(rule.argv[0], Literal) else ""
    if rule.program is None:
        found = shutil.which(first, path=os.pathsep.join(source.directories)) if first else None
        if found and "/" not in first:
            real = os.path.realpath(found)
            yield (
                "argv",
                f"does not match `{first}` itself: `argv` begins after the program; write `program: {real}` "
                f"and leave `{first}` out of `argv`",
            )
        return
    name = PurePosixPath(rule.program).name
    if first and first in {name, rule.program}:
        yield (
            "argv",
            f"matches `{name} {first} …` only: `argv` begins after the program; leave out its first item",
        )
    if why := _absent(source, rule.program):
        yield "program", f"matches nothing here: {why}"
    elif (
        rule.decision is Decision.ALLOW and not rule.replaceable and (why := source.replaceable(rule.program))
    ):
        yield (
            "program",
            f"allows nothing here: {why}; install it where root alone may write, or answer for it with "
            "`replaceable: true`",
        )


def _absent(source: _Source, program: str) -> str:
    """Say why nothing can be started by a path; empty when something can."""
    try:
        mode = os.stat(program).st_mode  # noqa: PTH116 - text all the way
    except (OSError, ValueError):
        found = shutil.which(PurePosixPath(program).name, path=os.pathsep.join(source.directories))
        return f"there is no such program{f'; there is `{os.path.realpath(found)}`' if found else ''}"
    if not stat.S_ISREG(mode):
        return "this is no file that can be run; name the program itself"
    if not mode & 0o111:
        return "this file is not executable; chmod a+x makes it a program"
    return ""
