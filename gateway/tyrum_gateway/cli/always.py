"""What to permit for good beside an approval, as it is written on the command line.

Invariant: what is written is either understood whole or refused by name of its option; nothing is guessed.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tyrum_gateway.cli.durations import duration
from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.domain.override import LONGEST_LIFE, SHORTEST_LIFE

if TYPE_CHECKING:
    from tyrum.approval.v1.approval_pb2 import ResolveApprovalRequest

_EXAMPLE = "an example: --pattern '[-n, {any: true}, {prefix: src/}]'"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Always:
    """Options of an approval that also permits calls like it."""

    life: timedelta | None
    """None leaves it to the gateway."""
    argv: tuple[str | dict[str, Any], ...] | None
    """Items as a rule's `argv` has them; None fixes the arguments as they are."""
    rest: bool
    env: tuple[str, ...]

    def put_into(self, request: "ResolveApprovalRequest") -> None:
        """Turn an approval into one that permits for good."""
        from tyrum.approval.v1.approval_pb2 import ANSWER_APPROVE_ALWAYS  # noqa: PLC0415 - imports grpc

        request.answer = ANSWER_APPROVE_ALWAYS
        if self.life is not None:
            request.override_expires_in.FromTimedelta(self.life)
        if self.argv is None:
            return
        request.override_pattern.SetInParent()
        request.override_pattern.rest = self.rest
        request.override_pattern.env.extend(self.env)
        for item in self.argv:
            match = request.override_pattern.argv.add()
            match item:
                case str():
                    match.literal = item
                case {"prefix": prefix}:
                    match.prefix = prefix
                case _:
                    match.any = True


def parse(expires: str, pattern: str, *, rest: bool, env: list[str]) -> Always:
    """Read the options of `--always`.

    Raises:
        Failure: One of them is not of its form.
    """
    life = duration("--expires", expires) if expires else None
    if life is not None and not SHORTEST_LIFE <= life <= LONGEST_LIFE:
        # As the gateway says it, but before the command says that it approves.
        raise Failure(f"`--expires` must be 1 s to {LONGEST_LIFE.days} days", code=ExitCode.USAGE)
    if not pattern:
        if rest or env:
            raise Failure("`--rest` and `--env` widen a pattern", hint=_EXAMPLE, code=ExitCode.USAGE)
        return Always(life, None, rest=False, env=())
    for name in env:
        if not _NAME.fullmatch(name):
            raise Failure(f"`--env`: `{name}` is not the name of a variable", code=ExitCode.USAGE)
    return Always(life, _items(pattern), rest=rest, env=tuple(env))


def _items(text: str) -> tuple[str | dict[str, Any], ...]:
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise _unreadable("it is not YAML") from error
    if not isinstance(value, list):
        raise _unreadable("it is not a list")
    for item in value:
        match item:
            case str():
                pass
            case {"prefix": str(prefix), **more} if prefix and not more:
                pass
            case {"any": True, **more} if not more:
                pass
            case _:
                raise _unreadable(f"`{item}` is not text (quote it?), {{prefix: TEXT}} or {{any: true}}")
    return tuple(value)


def _unreadable(why: str) -> Failure:
    return Failure(f"`--pattern`: {why}", hint=_EXAMPLE, code=ExitCode.USAGE)
