"""Cases for `tyrum policy test`: calls, and what policy is expected to say to them.

Invariant: a case without an effect does not exist; a file with any mistake is refused as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from tyrum_gateway.config.document import Mapping, Node, Sequence, descend, plain, read_document
from tyrum_gateway.config.explain import explain
from tyrum_gateway.config.load import read_file
from tyrum_gateway.config.problems import START, ConfigProblems, Place, Problem
from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import EnvName, Name

_ARGUMENTS = ("argv", "shell", "cwd", "env", "stdin", "secrets")


class CaseEntry(Section):
    """One call and what is expected."""

    name: str = Field(default="", max_length=200, description="What the case shows.")
    tool: str = Field(default="process.run", min_length=1, max_length=64, description="Name of the tool.")
    arguments: dict[str, JsonValue] | None = Field(
        default=None, description="All arguments of the call, as the model would give them."
    )
    argv: list[str] | None = Field(default=None, description="Program and arguments.")
    shell: str | None = Field(default=None, description="Text for bash, instead of `argv`.")
    cwd: str | None = Field(default=None, description="Working directory.")
    env: dict[EnvName, str] | None = Field(default=None, description="Variables of the call.")
    stdin: str | None = Field(default=None, description="Standard input.")
    secrets: list[str] | None = Field(default=None, description="Names of secrets.")
    agent: Name = Field(default="default", description="Agent that makes the call.")
    provenance: Literal["trusted", "untrusted"] = Field(
        default="trusted", description="`untrusted` after a tool's output in the conversation."
    )
    expect: Literal["allow", "require_approval", "deny", "invalid"] = Field(
        description="The decision; `invalid` when the call is refused before policy sees it."
    )
    rule: str | None = Field(default=None, description="Rule that decides; not compared when left out.")


class CaseFile(Section):
    """The file."""

    cases: list[CaseEntry] = Field(min_length=1, max_length=10_000, description="The cases.")


@dataclass(frozen=True, slots=True)
class Case:
    """A case with its place in the file."""

    place: Place
    name: str
    tool: str
    arguments: dict[str, Any]
    agent: str
    provenance: str
    expect: str
    rule: str | None


def load_cases(path: Path) -> tuple[Case, ...]:
    """Read cases.

    Raises:
        ConfigProblems: the file cannot be used; it lists every problem by position.
    """
    file = str(path)
    tree = read_document(read_file(path), file)
    if tree.root is None:
        raise ConfigProblems(list(tree.problems))
    problems = [*tree.problems, *_call_problems(tree.root, file)]
    content: CaseFile | None = None
    try:
        content = CaseFile.model_validate(plain(tree.root))
    except ValidationError as error:
        problems += explain(error, tree, file, shape=CaseFile)
    if problems or content is None:
        raise ConfigProblems(problems)
    return tuple(
        _case(entry, _place(descend(tree.root, "cases", index))) for index, entry in enumerate(content.cases)
    )


def _call_problems(root: Mapping, file: str) -> Iterator[Problem]:
    cases = descend(root, "cases")
    for index, case in enumerate(cases.items if isinstance(cases, Sequence) else ()):
        if not isinstance(case, Mapping):
            continue
        given = [key for key in ("arguments", "argv", "shell") if key in case.entries]
        if len(given) != 1:
            message = "exactly one of `argv`, `shell` and `arguments` says what the call is"
            yield Problem(file, case.place, ("cases", index), "call", message)
        beside = [key for key in _ARGUMENTS if key in case.entries] if given == ["arguments"] else []
        for key in beside:
            message = f"`arguments` holds all of the call; `{key}` belongs there"
            yield Problem(file, case.entries[key].place, ("cases", index, key), "call", message)


def _case(entry: CaseEntry, place: Place) -> Case:
    arguments: dict[str, Any] = entry.arguments or {
        key: value for key in _ARGUMENTS if (value := getattr(entry, key, None)) is not None
    }
    return Case(
        place=place,
        name=entry.name,
        tool=entry.tool,
        arguments=arguments,
        agent=entry.agent,
        provenance=entry.provenance,
        expect=entry.expect,
        rule=entry.rule,
    )


def _place(node: Node | None) -> Place:
    return START if node is None else node.place
