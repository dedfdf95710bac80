"""`tyrum policy test` and `explain`: what rules say to calls, without a gateway and without running anything.

Invariant: calls are resolved and judged by the code that judges them in a gateway; the workspace is an empty
directory unless one is named, so that programs and files of a real one are not seen by accident.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from tyrum_gateway.config.rule_file import RuleFile
from tyrum_gateway.domain.policy import Effect, Miss, Provenance, Target, Verdict, evaluate, near_misses
from tyrum_gateway.domain.process import RunLimits
from tyrum_gateway.tools import programs, reach
from tyrum_gateway.tools.programs import SearchPath
from tyrum_gateway.tools.run_arguments import MAX_TIMEOUT_MS, parse_arguments
from tyrum_gateway.tools.run_call import NAME, RunSettings, resolve
from tyrum_gateway.tools.strict_json import ArgumentProblem
from tyrum_gateway.tools.workspace import prepare_workspace

_LIMITS = RunLimits(timedelta(milliseconds=MAX_TIMEOUT_MS), 1 << 30, timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class Judged:
    """What would become of a call."""

    verdict: Verdict | None
    """None when the call is refused before policy sees it."""
    target: Target | None
    problem: str = ""
    """Why it is refused."""
    nearest: tuple[Miss, ...] = ()
    """When only a default decides: the rules that failed on one condition."""

    @property
    def decision(self) -> str:
        """The decision, or `invalid`."""
        return "invalid" if self.verdict is None else self.verdict.decision.value


class Rehearsal:
    """Rules with a place in which calls are resolved."""

    def __init__(self, rules: RuleFile, workspace: Path, *, make_directories: bool) -> None:
        self._rules = rules
        self._workspace = workspace
        self._make_directories = make_directories
        self._settings = RunSettings(prepare_workspace(workspace), SearchPath(rules.path), _LIMITS)

    def judge(self, tool: str, arguments: str, *, agent: str, provenance: str) -> Judged:
        """Decide on a call as a gateway would."""
        try:
            target = self._target(tool, arguments)
        except ArgumentProblem as problem:
            return Judged(None, None, str(problem))
        target = replace(target, agent=agent, provenance=Provenance(provenance))
        verdict = evaluate(self._rules.bundle, target)
        by_default = verdict.rule_id.startswith("default.")
        return Judged(verdict, target, nearest=near_misses(self._rules.bundle, target) if by_default else ())

    def _target(self, tool: str, arguments: str) -> Target:
        if tool != NAME:
            # What a tool of another kind would resolve is not known here: its name and the worst effect are.
            return Target(tool, Effect.STATE_CHANGING)
        call = parse_arguments(arguments)
        if self._make_directories:
            _make(self._workspace, call.cwd)
        secrets = frozenset(call.secrets) if self._rules.secrets is None else self._rules.secrets
        return resolve(call, replace(self._settings, secrets=secrets)).target()


@contextmanager
def rehearsing(rules: RuleFile, workspace: Path | None) -> Iterator[Rehearsal]:
    """Judge in a workspace; without one in an empty directory, in which every `cwd` exists."""
    if workspace is not None:
        yield Rehearsal(rules, workspace, make_directories=False)
        return
    with tempfile.TemporaryDirectory(prefix="tyrum-policy-") as directory:
        yield Rehearsal(rules, Path(directory), make_directories=True)


def replaceable(program: str) -> str:
    """Say how others than root can replace the program of a rule; empty when they cannot."""
    found = programs.executable(program)
    # No path lies beneath a device: the agent's workspace is not known here.
    return "" if found is None else reach.replaceable(found, os.devnull)


def arguments_of(text: str) -> str:
    """Take a JSON object as arguments, and anything else as shell text."""
    return text if text.lstrip().startswith("{") else json.dumps({"shell": text})


def explained(tool: str, judged: Judged) -> dict[str, Any]:
    """Write down what was judged, and why."""
    told: dict[str, Any] = {"tool": tool, "decision": judged.decision}
    verdict, target = judged.verdict, judged.target
    if verdict is None or target is None:
        return told | {"reason": judged.problem}
    return told | {
        "rule": verdict.rule_id,
        "reason": verdict.reason,
        "author": verdict.author,
        "runs": _manner(target),
        "opaque": target.opaque,
        "nearest": [
            {
                "rule": miss.rule_id,
                "decision": miss.decision.value,
                "condition": miss.condition,
                "why": miss.why,
                "program": miss.program,
            }
            for miss in judged.nearest
        ],
        "policy_digest": verdict.policy_digest,
        "target": json.loads(verdict.target),
    }


def lines(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the parts of an explanation for people."""
    for key in ("decision", "rule", "reason", "author", "runs", "opaque"):
        yield key, str(told.get(key, ""))
    if told["tool"] != NAME:
        yield "note", f"only {NAME} is known here; others are judged by name, as tools that change state"
    for miss in told.get("nearest", ()):
        yield (
            "nearest",
            f"rule `{miss['rule']}` ({miss['decision']}) but for {miss['condition']}: {miss['why']}",
        )
    target = told.get("target", {})
    if "program" in target:
        yield "program", _shown(target)
    for command in target.get("commands", ()):
        yield "command", _shown(command)
    for key in ("cwd", "env", "secrets", "stdin", "provenance"):
        value = target.get(key, "")
        yield key, ", ".join(value) if isinstance(value, list) else str(value).lower() if value else ""
    yield "policy", str(told.get("policy_digest", ""))


def _manner(target: Target) -> str:
    if target.shell is not None:
        return "by bash"
    return "without a shell" if target.program is not None else ""


def _shown(command: Mapping[str, Any]) -> str:
    words = json.dumps(command["argv"], ensure_ascii=False)
    notes = [] if command.get("complete", True) else ["and more that is not known"]
    notes += ["reads a pipe"] if command.get("piped") else []
    notes += [command["replaceable"]] if "replaceable" in command else []
    return f"{command['program']} {words}" + (f" ({', '.join(notes)})" if notes else "")


def _make(workspace: Path, cwd: str) -> None:
    """Create a working directory, unless it would lie elsewhere: then resolving says what is wrong."""
    path = PurePosixPath(cwd)
    if not path.is_absolute() and ".." not in path.parts and "\0" not in cwd and len(os.fsencode(cwd)) < 1024:
        (workspace / path).mkdir(parents=True, exist_ok=True)
