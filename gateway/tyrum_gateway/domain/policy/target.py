"""The target of a call: what it would do, as far as policy may look.

Invariant: provider and profile are not part of it, and two targets that a rule can tell apart are described
differently.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tyrum_gateway.domain.canonical import Value, canonical_json


class Effect(StrEnum):
    """What a tool can do to the world; unknown tools count as state-changing."""

    READ_ONLY = "read_only"
    STATE_CHANGING = "state_changing"


class Provenance(StrEnum):
    """What the model had read, in this turn or an earlier one, when it proposed the call."""

    TRUSTED = "trusted"
    """The conversation, and nothing that a tool brought in."""
    UNTRUSTED = "untrusted"
    """Output of a tool as well: whoever wrote that may have asked for the call."""


@dataclass(frozen=True, slots=True)
class StartedCommand:
    """A command inside shell text."""

    program: str
    """Resolved absolute path."""
    argv: tuple[str, ...]
    complete: bool = True
    """False when further arguments follow that nobody can tell."""
    piped: bool = False
    """Whether it reads what another command writes."""
    replaceable: str = ""
    """How others than root can put another program in its place; empty when they cannot."""

    def value(self) -> Value:
        """Write it down for the record."""
        value: dict[str, Value] = {"program": self.program, "argv": list(self.argv)}
        if not self.complete:
            value["complete"] = False
        if self.piped:
            value["piped"] = True
        if self.replaceable:
            value["replaceable"] = self.replaceable
        return value


@dataclass(frozen=True, slots=True)
class Target:
    """What a call would do."""

    tool: str
    effect: Effect
    program: str | None = None
    """Resolved absolute path, None for tools that run no program and for shell text."""
    replaceable: str = ""
    """How others than root can replace the program, as a clause; empty when they cannot. What its path is
    trusted with may then be done by another program, so that an allow has to list it."""
    argv: tuple[str, ...] = ()
    complete: bool = True
    """False when `argv` goes on in a way that nobody can tell: an allow never matches then."""
    shell: str | None = None
    """Text that a shell runs; such a call is never matched by its text."""
    interpreter: str | None = None
    """Resolved absolute path of the shell that runs the text."""
    commands: tuple[StartedCommand, ...] = ()
    """Of shell text: all its commands, or, when `opaque` says why, those that could be seen."""
    opaque: str = ""
    """Why the commands of shell text are not all known for certain; such text is never allowed by a rule."""
    cwd: str = "."
    """Relative to the workspace."""
    env: frozenset[str] = frozenset()
    """Names only."""
    stdin: bool = False
    secrets: frozenset[str] = frozenset()
    agent: str = ""
    provenance: Provenance = Provenance.TRUSTED

    def parts(self) -> Iterator["Target"]:
        """Give each command of shell text as the call that it would be by itself.

        What the call carries reaches every command; one that is piped reads standard input besides.
        """
        for command in self.commands:
            yield replace(
                self,
                program=command.program,
                replaceable=command.replaceable,
                argv=command.argv,
                complete=command.complete,
                shell=None,
                interpreter=None,
                commands=(),
                opaque="",
                stdin=self.stdin or command.piped,
            )

    def describe(self) -> str:
        """Write the target as canonical JSON, for transcript and audit."""
        value: dict[str, Value] = {"tool": self.tool, "effect": self.effect.value}
        if self.program is not None:
            value |= {"program": self.program, "argv": list(self.argv), "cwd": self.cwd}
        if self.replaceable:
            value["replaceable"] = self.replaceable
        if not self.complete:
            value["complete"] = False
        if self.shell is not None:
            value |= {"shell": self.shell, "cwd": self.cwd}
            value["commands"] = [command.value() for command in self.commands]
        if self.interpreter is not None:
            value["interpreter"] = self.interpreter
        if self.opaque:
            value["opaque"] = self.opaque
        if self.env:
            value["env"] = sorted(self.env)
        if self.stdin:
            value["stdin"] = True
        if self.secrets:
            value["secrets"] = sorted(self.secrets)
        if self.agent:
            value["agent"] = self.agent
        if self.provenance is not Provenance.TRUSTED:
            value["provenance"] = self.provenance.value
        return canonical_json(value)
