"""What the generated policy permits, said twice: as a bundle for the product, and as a predicate of its own.

Invariant: `permits` shares no code with the product, so that a fault in parsing or matching cannot hide in
what it is compared with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tyrum_gateway.domain.policy import (
    AnyArgument,
    ArgumentMatch,
    Bundle,
    Decision,
    Literal,
    Prefix,
    Rule,
)


@dataclass(frozen=True, slots=True)
class Permit:
    """One allow rule, and how to tell without the product whether arguments satisfy it."""

    name: str
    argv: tuple[ArgumentMatch, ...] | None
    rest: bool
    holds: Callable[[tuple[str, ...]], bool]
    stdin: bool = False
    """Whether it may read what another program writes."""


PERMITS = (
    Permit("show", None, rest=False, holds=lambda _: True, stdin=True),
    Permit("check", None, rest=False, holds=lambda _: True, stdin=True),
    Permit(
        "list",
        (Literal("-l"), AnyArgument()),
        rest=False,
        holds=lambda args: len(args) == 2 and args[0] == "-l",
    ),
    Permit("status", (), rest=False, holds=lambda args: not args),
    Permit(
        "fetch",
        (Literal("--dry-run"),),
        rest=True,
        holds=lambda args: args[:1] == ("--dry-run",),
        stdin=True,
    ),
    Permit(
        "pick",
        (Prefix("--id="),),
        rest=False,
        holds=lambda args: len(args) == 1 and args[0].startswith("--id="),
    ),
    # Bash has builtins of these names, which run instead of the program that the rule permits.
    Permit("echo", None, rest=False, holds=lambda _: True),
    Permit("test", None, rest=False, holds=lambda _: True),
)
"""Of what is permitted."""

FORBIDDEN_ARGUMENT = "--force"
"""As the first argument of `show` it is denied, above the rule that allows any."""

ALLOWED_NAMES = tuple(permit.name for permit in PERMITS)
UNRULED_NAMES = ("wipe", "send", "env", "sudo", "xargs", "timeout", "bash", "sh", "python3", "git", "nice")
"""Programs that exist and that no rule mentions; the wrappers run nothing here, as all programs are stubs."""
NAMES = (*ALLOWED_NAMES, *UNRULED_NAMES)
TOOL = "process.run"


def permits(name: str, arguments: tuple[str, ...], *, piped: bool) -> bool:
    """Tell whether the policy permits a program of this name in the operator's directory.

    Args:
        name: The program's name.
        arguments: What follows the name.
        piped: Whether it reads what another program writes.
    """
    if name == "show" and arguments[:1] == (FORBIDDEN_ARGUMENT,):
        return False
    return any(
        permit.name == name and permit.holds(arguments) and (permit.stdin or not piped) for permit in PERMITS
    )


def bundle(programs: Path) -> Bundle:
    """Write the same as rules over the programs of a directory."""
    allowing = [
        Rule(
            f"allow-{permit.name}",
            Decision.ALLOW,
            "the oracle",
            tool=TOOL,
            program=str(programs / permit.name),
            argv=permit.argv,
            rest=permit.rest,
            stdin=permit.stdin,
            # The stubs lie in a directory for temporary files.
            replaceable=True,
        )
        for permit in PERMITS
    ]
    denying = Rule(
        "deny-force",
        Decision.DENY,
        "the oracle",
        tool=TOOL,
        program=str(programs / "show"),
        argv=(Literal(FORBIDDEN_ARGUMENT),),
        rest=True,
    )
    return Bundle("oracle", (*allowing, denying))
