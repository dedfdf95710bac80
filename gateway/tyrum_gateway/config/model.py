"""The shape of the configuration file: every key, its type, limits, default and meaning.

Strict and closed: no coercion between types, no key beyond those declared, no key without an effect. What the
file means together (references, secrets, exclusive scopes) is checked elsewhere, on the positioned tree.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from tyrum_gateway.config.instructions import LONGEST
from tyrum_gateway.config.listen import Listen
from tyrum_gateway.config.model_kinds import Model
from tyrum_gateway.config.quantities import Duration, Size
from tyrum_gateway.config.rule_model import Bundle
from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import (
    AbsolutePath,
    Command,
    FilePath,
    FormatVersion,
    Name,
    ProviderConfig,
    RelativePath,
    SecretName,
    Sha256,
    SlotName,
    VersionRange,
)

DEFAULT_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


class Storage(Section):
    """The database lives in the state directory, which a flag or the environment names; no keys yet."""


class AgentProfiles(Section):
    """Which profile of each provider kind the agent uses."""

    isolation: Name | None = Field(
        default=None,
        description="Isolation profile that runs the agent's processes. Without one it has no process tools.",
    )


def _model_choice(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<name>"


ModelChoice = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[list[Name], Field(min_length=1, max_length=8), Tag("<list>")],
    Discriminator(_model_choice),
]


class Agent(Section):
    """One agent: its model, what it may do, and with what."""

    model: ModelChoice = Field(
        description="Name of a model declared under `models`, or a list of up to 8: the next is asked when "
        "the one before cannot be reached, is busy or fails before it has said anything; not when it refuses."
    )
    policy: Name = Field(
        description="Name of a rule bundle declared under `policy`; one named `deployment` holds besides."
    )
    workspace: RelativePath = Field(
        default="workspaces/default",
        description="Directory the agent works in, below the state directory; created with mode 0700.",
    )
    secrets: list[SecretName] = Field(
        default=[],
        max_length=64,
        description="Secrets that a tool call of this agent may ask for by name; never handed out unasked.",
    )
    profiles: AgentProfiles = Field(default=AgentProfiles(), description="Selected profiles.")
    instructions: str = Field(
        default="",
        max_length=LONGEST,
        description="Text from the operator that begins every prompt of this agent.",
    )
    instructions_file: FilePath | None = Field(
        default=None,
        description="File with that text instead: UTF-8, at most 32,768 characters, read when the gateway "
        "starts; a relative path starts at this file's directory.",
    )


class Agents(Section):
    """The agents that conversations can be held with; this version serves `default`."""

    default: Agent = Field(description="The agent of every conversation.")


class Provider(Section):
    """One provider process: how it is started and what it is given."""

    kind: Literal["isolation"] = Field(description="Provider kind; `memory` and `context` come later.")
    command: Command = Field(
        min_length=1,
        max_length=64,
        description="Program and arguments, started without a shell. A name without `/` is looked for "
        "beside the gateway's Python interpreter, then on PATH. Never put a secret here.",
    )
    config: ProviderConfig = Field(
        default={}, description="Settings of the provider itself, checked against the schema it declares."
    )
    secrets: dict[SlotName, SecretName] = Field(
        default={},
        max_length=32,
        description="Secrets for the slots the provider declares: slot to name of a secret.",
    )
    trust: Literal["operator_installed"] = Field(
        description="On whose authority the code runs; must agree with the provider's own statement."
    )
    deployment: Literal["local_process"] = Field(
        description="How the provider is reached; must agree with the provider's own statement."
    )
    implementation_version: VersionRange | None = Field(
        default=None, description="Versions of the implementation that are admitted, such as `>=0.1,<1`."
    )
    start_timeout: Annotated[str, Duration("100ms", "5m")] = Field(
        default="10s", description="Time from starting the process until it listens."
    )
    artifact_sha256: Sha256 | None = Field(
        default=None,
        description="Pins what the command executes: its digest as `tyrum providers explain` shows it.",
    )
    trust_claims: bool = Field(
        default=False,
        description="Take the provider's word for claims that it states as PROVED and that nothing verified "
        "here. Without it `required_claims` of its profiles are not met by such claims.",
    )


class IsolationProfile(Section):
    """How processes run: by exactly one provider, within limits."""

    provider: Name = Field(
        description="Name of the one isolation provider that serves this profile; nothing stands in for it."
    )
    path: list[AbsolutePath] = Field(
        default=list(DEFAULT_PATH),
        min_length=1,
        max_length=32,
        description="Directories in which the kernel looks for programs, in order.",
    )
    required_claims: list[str] = Field(
        default=[],
        max_length=64,
        description="Claims of the boundary, such as `net.none`, that must be PROVED before a process "
        "starts. Row 10 of docs/contracts/isolation.md lists them; `local_spawn` proves none.",
    )
    wall_time: Annotated[str, Duration("1s", "24h")] = Field(
        default="10m", description="Longest life of a process, and its limit when a call states none."
    )
    output: Annotated[str, Size("4KiB", "1TiB")] = Field(
        default="4GiB", description="Output after which a process is ended."
    )
    kill_grace: Annotated[str, Duration("100ms", "30s")] = Field(
        default="2s", description="Time between the request to end and the kill."
    )


class Profiles(Section):
    """Named ways of using providers."""

    isolation: dict[Name, IsolationProfile] = Field(
        default={}, max_length=64, description="Profiles for running processes."
    )


class Approvals(Section):
    """Requests for a human decision."""

    expiry: Annotated[str, Duration("1s", "30d")] = Field(
        default="24h", description="Time after which an unanswered request counts as denied."
    )
    requester_may_resolve: bool = Field(
        default=True,
        description="Whether who sent a message may approve the calls that it leads to; denying them is "
        "always possible. Set it to false where approvals are there to have a second person look.",
    )


class Audit(Section):
    """Where the audit log is anchored outside the database."""

    heads: AbsolutePath | None = Field(
        default=None,
        description="File to which signed heads of the audit log are appended; by default "
        "`audit/heads.jsonl` in the state directory. Better on another disk, or where the gateway may "
        "append but not rewrite.",
    )


class Limits(Section):
    """Bounds on what a conversation may use."""

    steps_per_turn: int = Field(default=32, ge=1, le=1000, description="Model steps in one turn.")
    attempts_per_step: int = Field(
        default=3,
        ge=1,
        le=10,
        description="Attempts at one model step that may fail; as many more may be lost to restarts.",
    )
    turn_time: Annotated[str, Duration("1s", "24h")] = Field(
        default="30m",
        description="Time the work on a turn may take between two waits for approval, restarts included.",
    )
    step_time: Annotated[str, Duration("1s", "1h")] = Field(
        default="5m", description="Time one attempt at a model step may take."
    )
    queued_per_conversation: int = Field(
        default=16, ge=1, le=16, description="Messages that may wait in one conversation."
    )
    unfinished_turns_per_principal: int = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Turns without an end that one principal may have in all conversations, those that wait "
        "for approval included; further messages are refused until one ends.",
    )
    tokens_per_turn: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000_000,
        description="Tokens, read and written together as models report them, after which a turn takes no "
        "further step: it fails and says so. What a model does not report is not counted.",
    )
    daily_tokens_per_principal: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000_000,
        description="Tokens that all turns of one principal may use on a day in UTC, counted in the same way "
        "and over restarts; from then on no model is asked for them until the day ends.",
    )
    concurrent_turns: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Turns that run at once. Principals with waiting turns get free slots one after another; "
        "one has at most half of them while others wait, and one in eight is kept for those without one.",
    )


class ConfigFile(Section):
    """A Tyrum gateway's configuration."""

    version: FormatVersion = Field(description="Version of this format.")
    listen: Listen = Field(default=Listen(), description="Where clients reach the gateway.")
    storage: Storage = Field(
        default=Storage(),
        description="No keys in this version: the database lives in the state directory, which "
        "`--state-dir` or TYRUM_STATE_DIR names.",
    )
    secrets: dict[SecretName, str] = Field(
        default={},
        max_length=256,
        description="Names for secrets kept elsewhere: `${env:NAME}`, `${file:PATH}` (a relative path starts "
        "at this file's directory) or `${credential:NAME}` (systemd). The only place where `${…}` means "
        "something.",
    )
    models: dict[Name, Model] = Field(
        min_length=1, max_length=64, description="The model transports that agents can use."
    )
    agents: Agents = Field(description="The agents; this version serves `default`.")
    providers: dict[Name, Provider] = Field(
        default={}, max_length=64, description="Provider processes. Listing one selects it for nothing."
    )
    profiles: Profiles = Field(
        default=Profiles(), description="Named ways of using providers; agents refer to them."
    )
    policy: dict[Name, Bundle] = Field(
        max_length=64,
        description="Bundles of rules; agents refer to them by name. The one named `deployment`, if there is "
        "one, holds for every agent besides its own: the stricter decision wins.",
    )
    approvals: Approvals = Field(default=Approvals(), description="Requests for a human decision.")
    audit: Audit = Field(default=Audit(), description="The audit log.")
    limits: Limits = Field(default=Limits(), description="Bounds on what a conversation may use.")
