"""The script of a scripted model: YAML read into frozen values, every problem with its place.

Invariant: a script that loads is complete and closed: no unknown key, no value of another type, no step that
could not be played. docs/reference/scripted-model.md describes the format.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tyrum_gateway.domain.model import CallRequest
from tyrum_gateway.domain.usage import UNKNOWN, Usage

MAX_BYTES = 4 * 1024 * 1024
MAX_DELAY_MS = 60_000
MAX_REPEAT = 1_000_000
MAX_TOKENS = 1_000_000_000


class ScriptInvalid(ValueError):
    """The script cannot be used; the message has one `file:line: problem` per line."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that the step ends with instead of its end."""

    retryable: bool
    message: str
    after: int
    """Deltas that are emitted first."""
    times: int | None
    """How often the step fails before it succeeds; None means always."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold of the prompt, otherwise the step fails and says so."""

    contains: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    tools: frozenset[str] | None = None
    """Exactly these tools are shown; None does not look."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scenario."""

    deltas: tuple[str, ...]
    repeat: int
    delay_ms: int
    calls: tuple[CallRequest, ...]
    barrier: Path | None
    failure: Failure | None
    expectation: Expectation
    usage: Usage
    place: str
    """`file:line`, for messages."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps for a user text."""

    text: str
    prefix: bool
    steps: tuple[Step, ...]

    def matches(self, said: str) -> bool:
        """Tell whether the scenario answers this text."""
        return said.startswith(self.text) if self.prefix else said == self.text


@dataclass(frozen=True, slots=True)
class Script:
    """Scenarios in order: the first that matches answers."""

    scenarios: tuple[Scenario, ...]


def load_script(path: Path) -> Script:
    """Read and check a script.

    Args:
        path: The file; relative barriers start at its directory.

    Raises:
        ScriptInvalid: It cannot be read, is no YAML, or breaks the format.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ScriptInvalid(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ScriptInvalid(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        root = YAML(typ="rt", pure=True).load(content)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScriptInvalid(f"{path}:{line}: {error.problem or 'no valid YAML'}") from None
    except (YAMLError, ValueError) as error:
        raise ScriptInvalid(f"{path}: no valid YAML: {type(error).__name__}") from None
    reader = _Reader(path)
    script = reader.script(root)
    if reader.problems:
        raise ScriptInvalid("\n".join(reader.problems))
    return script


class _Reader:
    """Walks the document once and collects problems."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[str] = []

    def script(self, root: Any) -> Script:
        document = self._mapping(root, 1, "the script", {"version", "scenarios"})
        if document.get("version") != 1:
            self._problem(1, "`version` must be 1")
        scenarios = self._items(document, "scenarios", required=True)
        return Script(tuple(self._scenario(item, line) for item, line in scenarios))

    def _scenario(self, node: Any, line: int) -> Scenario:
        scenario = self._mapping(node, line, "a scenario", {"user", "steps"})
        user = scenario.get("user")
        prefix = isinstance(user, Mapping)
        if isinstance(user, Mapping):
            user = self._mapping(user, _line(scenario, "user", line), "`user`", {"prefix"}).get("prefix")
        if not isinstance(user, str):
            self._problem(line, "`user` must be text or `{prefix: TEXT}`")
            user = ""
        steps = self._items(scenario, "steps", required=True, line=line)
        return Scenario(user, prefix, tuple(self._step(item, at) for item, at in steps))

    def _step(self, node: Any, line: int) -> Step:
        keys = {"deltas", "repeat", "delay", "calls", "barrier", "error", "expect", "usage"}
        step = self._mapping(node, line, "a step", keys)
        barrier = self._value(step, "barrier", line, str, "a path")
        return Step(
            deltas=self._texts(step, "deltas", line),
            repeat=self._number(step, "repeat", line, default=1, low=1, high=MAX_REPEAT),
            delay_ms=self._number(step, "delay", line, default=0, low=0, high=MAX_DELAY_MS),
            calls=tuple(self._call(item, at) for item, at in self._items(step, "calls", line=line)),
            barrier=None if barrier is None else self._path.parent / barrier,
            failure=self._failure(step, line),
            expectation=self._expectation(step, line),
            usage=self._usage(step, line),
            place=f"{self._path}:{line}",
        )

    def _call(self, node: Any, line: int) -> CallRequest:
        call = self._mapping(node, line, "a call", {"tool", "arguments"})
        tool = self._value(call, "tool", line, str, "text")
        arguments = call.get("arguments")
        if tool is None:
            self._problem(line, "`tool` is missing")
        if not isinstance(arguments, str | Mapping):
            self._problem(line, "`arguments` must be a mapping, or text that is sent as it is")
            return CallRequest("", "")
        if isinstance(arguments, str):
            return CallRequest(tool or "", arguments)
        try:
            return CallRequest(tool or "", json.dumps(arguments, ensure_ascii=False))
        except (TypeError, ValueError):
            self._problem(line, "`arguments` hold something that JSON does not have; give them as text")
            return CallRequest("", "")

    def _failure(self, step: Mapping[str, Any], line: int) -> Failure | None:
        if "error" not in step:
            return None
        at = _line(step, "error", line)
        error = self._mapping(step["error"], at, "`error`", {"retryable", "message", "after", "times"})
        times = None
        if "times" in error:
            times = self._number(error, "times", at, default=1, low=1, high=1000)
        return Failure(
            retryable=self._value(error, "retryable", at, bool, "true or false") or False,
            message=self._value(error, "message", at, str, "text") or "the script fails this step",
            after=self._number(error, "after", at, default=0, low=0, high=MAX_REPEAT),
            times=times,
        )

    def _expectation(self, step: Mapping[str, Any], line: int) -> Expectation:
        if "expect" not in step:
            return Expectation()
        at = _line(step, "expect", line)
        expect = self._mapping(step["expect"], at, "`expect`", {"contains", "absent", "tools"})
        return Expectation(
            contains=self._texts(expect, "contains", at),
            absent=self._texts(expect, "absent", at),
            tools=frozenset(self._texts(expect, "tools", at)) if "tools" in expect else None,
        )

    def _usage(self, step: Mapping[str, Any], line: int) -> Usage:
        if "usage" not in step:
            return UNKNOWN
        at = _line(step, "usage", line)
        usage = self._mapping(step["usage"], at, "`usage`", {"input", "output"})

        def told(key: str) -> int | None:
            return self._number(usage, key, at, default=0, low=0, high=MAX_TOKENS) if key in usage else None

        return Usage(told("input"), told("output"))

    def _mapping(self, node: Any, line: int, what: str, keys: set[str]) -> Mapping[str, Any]:
        if not isinstance(node, Mapping):
            self._problem(line, f"{what} must be a mapping")
            return {}
        for key in node:
            if key not in keys:
                allowed = ", ".join(sorted(keys))
                self._problem(_line(node, key, line), f"unknown key `{key}` in {what}; it has {allowed}")
        return node

    def _items(
        self, mapping: Mapping[str, Any], key: str, *, required: bool = False, line: int = 1
    ) -> Sequence[tuple[Any, int]]:
        node = mapping.get(key)
        at = _line(mapping, key, line)
        if node is None and key not in mapping and not required:
            return ()
        if not isinstance(node, list) or (required and not node):
            self._problem(at, f"`{key}` must be a list" + (" with at least one item" if required else ""))
            return ()
        return [(item, _item_line(node, index, at)) for index, item in enumerate(node)]

    def _texts(self, mapping: Mapping[str, Any], key: str, line: int) -> tuple[str, ...]:
        items = self._items(mapping, key, line=line)
        for item, at in items:
            if not isinstance(item, str):
                self._problem(at, f"`{key}` holds texts only; quote the value")
        return tuple(str(item) for item, _ in items if isinstance(item, str))

    def _number(
        self, mapping: Mapping[str, Any], key: str, line: int, *, default: int, low: int, high: int
    ) -> int:
        value = mapping.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._problem(_line(mapping, key, line), f"`{key}` must be a whole number from {low} to {high}")
            return default
        return int(value)

    def _value(
        self, mapping: Mapping[str, Any], key: str, line: int, kind: Callable[..., Any], what: str
    ) -> Any:
        value = mapping.get(key)
        if key in mapping and not isinstance(value, kind):  # type: ignore[arg-type]
            self._problem(_line(mapping, key, line), f"`{key}` must be {what}")
            return None
        return value

    def _problem(self, line: int, text: str) -> None:
        self.problems.append(f"{self._path}:{line}: {text}")


def _line(mapping: Mapping[str, Any], key: str, default: int) -> int:
    if isinstance(mapping, CommentedMap) and key in mapping:
        return int(mapping.lc.key(key)[0]) + 1
    return default


def _item_line(items: Any, index: int, default: int) -> int:
    return int(items.lc.item(index)[0]) + 1 if isinstance(items, CommentedSeq) else default
