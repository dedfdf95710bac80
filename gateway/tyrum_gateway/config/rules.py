"""What rules must mean: each can match something, and an allow is narrow enough to answer for.

Invariant: an allow names tool, program and author, leaves nothing open to a program that may start others
unless its author answers for that, and lists no variable that programs obey as code.
"""

from collections.abc import Iterator
from pathlib import Path as FilePath

from tyrum_gateway.config.document import Entry, Mapping, Node, Scalar, Sequence, descend, select
from tyrum_gateway.config.problems import Path, Place, Problem
from tyrum_gateway.domain.policy import (
    DEPLOYMENT,
    flaw,
    injects,
    looks_like_url,
    reads_data,
    starts_nothing,
    starts_others,
)


def rules(root: Mapping, file: str) -> Iterator[Problem]:
    """List what is wrong with the rules of every bundle."""
    shared = {
        str(node.value)
        for _, node in select(root, ("policy", DEPLOYMENT, "rules", "*", "id"))
        if isinstance(node, Scalar)
    }
    for bundle, rules in select(root, ("policy", "*", "rules")):
        ids: dict[str, Place] = {}
        for path, rule in select(rules, ("*",), bundle):
            if not isinstance(rule, Mapping):
                continue
            identity = rule.entries.get("id")
            if identity is not None and isinstance(identity.value, Scalar):
                name, place = str(identity.value.value), identity.value.place
                if name in ids:
                    message = f"a rule of this id is at {ids[name]}; ids are unique in a bundle"
                    yield Problem(file, place, (*path, "id"), "repeated", message)
                elif name in shared and bundle[1] != DEPLOYMENT:
                    message = f"bundle `{DEPLOYMENT}` has a rule of this id, and both hold together"
                    yield Problem(file, place, (*path, "id"), "repeated", message)
                ids.setdefault(name, place)
            yield from _rule(rule, path, file)


def _rule(rule: Mapping, path: Path, file: str) -> Iterator[Problem]:
    match = rule.entries.get("match")
    if match is None or not isinstance(match.value, Mapping):
        return
    conditions = match.value.entries
    tool, effect = _text(match.value, "tool"), _text(match.value, "effect")
    program = _text(match.value, "program")
    if program is not None and (real := _behind_link(program)) is not None:
        message = f"a link never matches: programs are resolved first, and this one is `{real}`"
        yield Problem(file, conditions["program"].value.place, (*path, "match", "program"), "link", message)
    if tool == "process.run" and effect == "read_only":
        message = "`process.run` is state_changing: this rule can never match"
        yield Problem(file, conditions["effect"].place, (*path, "match", "effect"), "never_matches", message)
    if "shell" in conditions and _is_true(conditions["shell"].value):
        yield from _of_shell(match.value, (*path, "match"), file)
    if "rest" in conditions and "argv" not in conditions:
        message = "`rest` extends `argv`; without `argv` any arguments match"
        yield Problem(file, conditions["rest"].place, (*path, "match", "rest"), "no_effect", message)
    decision = rule.entries.get("decision")
    if decision is None or _text(rule, "decision") != "allow":
        for key in ("env", "stdin", "secrets", "replaceable"):
            if key in conditions:
                message = f"`{key}` widens an allow rule; on any other it has no effect"
                yield Problem(file, conditions[key].place, (*path, "match", key), "no_effect", message)
        if "may_start_others" in rule.entries:
            message = "`may_start_others` widens an allow rule; on any other it has no effect"
            place = rule.entries["may_start_others"].place
            yield Problem(file, place, (*path, "may_start_others"), "no_effect", message)
        return
    if "shell" in conditions and _is_true(conditions["shell"].value):
        message = "an allow never matches a call that a shell runs; its commands are matched one by one"
        yield Problem(file, conditions["shell"].place, (*path, "match", "shell"), "never_matches", message)
    if effect == "read_only":
        return
    if "author" not in rule.entries:
        message = (
            "an allow on a state-changing target is a standing approval; say in `author` who answers for it"
        )
        yield Problem(file, decision.place, path, "author_required", message)
    for key, why in (("tool", "which tool"), ("program", "which program, as an absolute path")):
        if key not in conditions:
            message = f"this allow is too wide: `match.{key}` must say {why}"
            yield Problem(file, match.place, (*path, "match"), "too_wide", message)
    yield from _urls(match.value, (*path, "match"), file)
    if not _is_true(descend(rule, "may_start_others")):
        yield from _openings(conditions, (*path, "match"), file)
    yield from _injections(conditions, (*path, "match"), file)


def _of_shell(match: Mapping, path: Path, file: str) -> Iterator[Problem]:
    """Find what a call that bash runs never has: a program of its own, and arguments."""
    program = _text(match, "program")
    # The shell is what `bash` leads to in the operator's directories, whatever the version in its name.
    if program is not None and "bash" not in program.rpartition("/")[2]:
        message = (
            "with `shell: true` the program is bash, so that this rule can never match; without `shell` it "
            "reaches the command inside shell text as well"
        )
        yield Problem(
            file, match.entries["program"].value.place, (*path, "program"), "never_matches", message
        )
    argv = descend(match, "argv")
    if isinstance(argv, Sequence) and (argv.items or not _is_true(descend(match, "rest"))):
        message = (
            "a call that a shell runs has text and no arguments, so that this rule can never match; without "
            "`shell` it reaches the commands inside the text as well"
        )
        yield Problem(file, match.entries["argv"].place, (*path, "argv"), "never_matches", message)


def _urls(match: Mapping, path: Path, file: str) -> Iterator[Problem]:
    """Find prefixes that look like a URL, and with which none begins that an allow would take."""
    for at, item in select(match, ("argv", "*", "prefix"), path):
        prefix = item.value if isinstance(item, Scalar) else None
        if isinstance(prefix, str) and looks_like_url(prefix) and (why := flaw(prefix)):
            message = f"this looks like a URL and allows none: {why}; write the beginning of plain ones"
            yield Problem(file, item.place, at, "never_matches", message)


def _openings(conditions: dict[str, Entry], path: Path, file: str) -> Iterator[Problem]:
    """Find what an allow leaves open for a call to run something else through it."""
    named = conditions["program"].value if "program" in conditions else None
    if not isinstance(named, Scalar) or not isinstance(named.value, str):
        return
    program = _behind_link(named.value) or named.value
    if starts_nothing(program):
        return
    argv = conditions["argv"].value if "argv" in conditions else None
    fixed = isinstance(argv, Sequence) and all(isinstance(item, Scalar) for item in argv.items)
    stdin, rest = (key in conditions and _is_true(conditions[key].value) for key in ("stdin", "rest"))
    if fixed and not rest and (not stdin or reads_data(program)):
        return
    known = "starts" if starts_others(program) else "may start"
    message = (
        f"this program {known} what its arguments, input or files name: fix every argument by text in "
        "`argv`, without `rest` and `stdin`, or let the calls ask; or write `may_start_others: true` beside "
        "`match`, and answer for everything that it can start or write"
    )
    yield Problem(file, named.place, (*path, "program"), "starts_others", message)


def _injections(conditions: dict[str, Entry], path: Path, file: str) -> Iterator[Problem]:
    """Find names through which a call would hand code to the program."""
    for key in ("env", "secrets"):
        items = conditions[key].value if key in conditions else None
        for index, item in enumerate(items.items if isinstance(items, Sequence) else ()):
            if isinstance(item, Scalar) and isinstance(item.value, str) and injects(item.value):
                message = "programs obey a variable of this name as code: no rule can allow it"
                yield Problem(file, item.place, (*path, key, index), "injects", message)


def _is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.value is True


def _behind_link(program: str) -> str | None:
    """Return what a link to an existing program leads to; None for anything else."""
    try:
        real = FilePath(program).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return None if not program.startswith("/") or FilePath(program) == real else str(real)


def _text(node: Mapping, key: str) -> str | None:
    found = descend(node, key)
    return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else None
