"""The shape of policy bundles: rules, and what they match."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag

from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import (
    AbsolutePath,
    AlwaysTrue,
    EnvName,
    Line,
    Name,
    RelativePath,
    RuleId,
    SecretName,
)


class PrefixArgument(Section):
    """An argument that begins with a text."""

    prefix: str = Field(
        min_length=1,
        description="How the argument begins. To an allow, without `..` in the path that follows; the "
        "beginning of a URL is compared with scheme, host, port and path of the argument.",
    )


class AnyArgument(Section):
    """One argument, whatever it is."""

    any: AlwaysTrue = Field(description="Always `true`.")


def _argument(value: Any) -> str | None:
    if isinstance(value, str):
        return "<literal>"
    if isinstance(value, dict):
        return "<any>" if "any" in value else "<prefix>"
    return None


Argument = Annotated[
    Annotated[str, Tag("<literal>")]
    | Annotated[PrefixArgument, Tag("<prefix>")]
    | Annotated[AnyArgument, Tag("<any>")],
    Discriminator(
        _argument,
        custom_error_type="argument",
        custom_error_message="expected text for exactly this argument, `{prefix: TEXT}` or `{any: true}`",
    ),
]


class Match(Section):
    """What a rule applies to; every condition that is given must hold."""

    tool: Literal["process.run"] | None = Field(default=None, description="Name of the tool.")
    effect: Literal["read_only", "state_changing"] | None = Field(
        default=None, description="Effect class of the tool; `process.run` is `state_changing`."
    )
    agent: Name | None = Field(
        default=None, description="Agent that makes the call; this version serves `default`."
    )
    provenance: Literal["trusted", "untrusted"] | None = Field(
        default=None,
        description="`untrusted` when the model had read output of a tool, in this turn or an earlier one "
        "of the conversation; what such text asks for can be made to ask a human.",
    )
    shell: AlwaysTrue | None = Field(
        default=None,
        description="Always `true`: only calls that a shell runs, for deny and require_approval. One literal "
        "command given as shell text needs no shell.",
    )
    program: AbsolutePath | None = Field(
        default=None,
        description="Absolute path of the program itself: links are resolved before rules are asked, so that "
        "a link would never match.",
    )
    argv: list[Argument] | None = Field(
        default=None,
        max_length=255,
        description="The arguments after the program, one item each: text for exactly this argument, "
        "`{prefix: TEXT}` or `{any: true}`. Without it, any arguments; an allow must fix each one by text "
        "unless the program is known to start nothing, or the rule says `may_start_others`.",
    )
    rest: bool = Field(default=False, description="Whether further arguments may follow those of `argv`.")
    cwd: RelativePath | None = Field(
        default=None, description="Working directory, relative to the workspace. Without it, any."
    )
    env: list[EnvName] = Field(
        default=[],
        max_length=64,
        description="Environment names that an allowed call may set; no others ride along, and never one "
        "that programs obey as code, such as `LD_PRELOAD`, `BASH_ENV`, `GIT_SSH_COMMAND` or `PATH`.",
    )
    stdin: bool = Field(
        default=False,
        description="Whether an allowed call may carry standard input, or read what another command writes.",
    )
    secrets: list[SecretName] = Field(
        default=[], max_length=64, description="Secrets that an allowed call may name; no others."
    )
    replaceable: bool = Field(
        default=False,
        description="Whether an allow holds for a program that others than root can replace, because they "
        "may write it, a directory above it or its interpreter.",
    )


class Rule(Section):
    """One rule; among those that match, deny wins over require_approval, and that over allow."""

    id: RuleId = Field(description="Name of the rule in decisions and audit, unique in its bundle.")
    decision: Literal["allow", "require_approval", "deny"] = Field(description="What the rule decides.")
    author: Line | None = Field(
        default=None,
        description="Who answers for the rule; required for an allow on a state-changing target, which is "
        "recorded as a standing approval.",
    )
    reason: Annotated[str, StringConstraints(max_length=500)] = Field(
        default="", description="Why; shown to the model when the rule denies."
    )
    may_start_others: bool = Field(
        default=False,
        description="Whether the author answers for everything that an allow with open arguments or standard "
        "input lets its program start or write. Needed for every program that is not known to start nothing.",
    )
    match: Match = Field(description="What the rule applies to; `{}` is every call.")


class Bundle(Section):
    """Rules for an agent. What no rule matches asks, unless it only reads."""

    rules: list[Rule] = Field(default=[], max_length=1000, description="The rules; their order is free.")
