"""The operator's settings as the rest of the gateway sees them: plain, frozen, complete, checked.

Every reference between them leads somewhere; secrets are references until somebody resolves them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from tyrum_gateway.config.secrets import SecretReference
from tyrum_gateway.domain.policy import Bundle


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """An address to listen on."""

    host: str
    port: int
    """0 takes a free port."""

    @property
    def text(self) -> str:
        """Write `HOST:PORT`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files for TLS; absolute."""

    cert: Path
    key: Path
    client_ca: Path | None
    """None: clients need no certificate."""
    principals: Mapping[str, frozenset[str]]
    """Names of principals, to the certificates that their tokens need."""


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where clients reach the gateway."""

    unix: Path | None
    """None: one of its own in the runtime directory."""
    tcp: TcpAddress | None
    tls: TlsSettings | None = None
    """Loopback without it is served in the clear."""
    ops: TcpAddress | None = None
    """Loopback; for probes and metrics."""


@dataclass(frozen=True, slots=True)
class OfflineModelSettings:
    """The deterministic built-in model."""


@dataclass(frozen=True, slots=True)
class ScriptedModelSettings:
    """A model that follows a script."""

    script: Path
    """Absolute."""


@dataclass(frozen=True, slots=True)
class RemoteModelSettings:
    """A model behind HTTP."""

    kind: Literal["openai", "anthropic"]
    name: str
    model: str
    api_key: str
    """Name of a secret."""
    base_url: str
    """Without a slash at its end."""
    max_output_tokens: int | None
    """None: what the server allows, or the protocol demands."""
    ca_file: Path | None = None
    """Absolute; authorities of the server. None: those of the operating system."""
    proxy: str | None = None
    """Address of a forward proxy, without credentials. None: the server is reached directly."""
    proxy_login: str | None = None
    """Name of a secret with `USER:PASSWORD`."""


ModelSettings = OfflineModelSettings | ScriptedModelSettings | RemoteModelSettings


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent."""

    name: str
    models: tuple[str, ...]
    """Names in the order in which they are asked, at least one."""
    policy: str
    workspace: Path
    """Absolute, below the state directory; whoever serves creates it with mode 0700."""
    secrets: tuple[str, ...]
    """Names that a tool call may ask for."""
    isolation_profile: str | None
    """None: no process tools."""
    instructions: str


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How one provider is started and what it is given."""

    name: str
    kind: str
    command: tuple[str, ...]
    """Argument vector; the first item is an absolute path."""
    config: Mapping[str, object]
    """JSON values for the provider's own schema."""
    secrets: Mapping[str, str]
    """Slot to name of a secret."""
    trust: str
    deployment: str
    implementation_version: str | None
    """Range such as `>=0.1,<1`; None admits every version."""
    start_timeout: timedelta
    artifact_sha256: str | None
    """Lower-case hexadecimal, perhaps with `sha256:` before it; None does not compare."""
    trust_claims: bool
    """Whether claims that it states, and that were not verified here, meet what profiles require."""


@dataclass(frozen=True, slots=True)
class IsolationProfileSettings:
    """How processes run."""

    name: str
    provider: str
    path: tuple[Path, ...]
    required_claims: tuple[str, ...]
    wall_time: timedelta
    output_bytes: int
    kill_grace: timedelta


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Bounds on what a conversation may use."""

    steps_per_turn: int
    attempts_per_step: int
    turn_time: timedelta
    """For the work on a turn between two waits."""
    step_time: timedelta
    """For one attempt."""
    queued_per_conversation: int
    unfinished_turns_per_principal: int
    concurrent_turns: int
    tokens_per_turn: int | None
    """None: no bound."""
    daily_tokens_per_principal: int | None
    """In UTC; None: no bound."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One checked configuration file, bound to a state directory."""

    source: Path
    source_digest: str
    """`sha256:` and the hexadecimal digest of the file as it was read."""
    state_dir: Path
    listen: ListenSettings
    secrets: Mapping[str, SecretReference]
    models: Mapping[str, ModelSettings]
    agents: Mapping[str, AgentSettings]
    """Holds `default`."""
    providers: Mapping[str, ProviderSettings]
    isolation_profiles: Mapping[str, IsolationProfileSettings]
    policies: Mapping[str, Bundle]
    approval_expiry: timedelta
    requester_may_approve: bool
    """Whether who sent a message may approve the calls that it leads to."""
    audit_heads: Path | None
    """Where signed heads are kept; None: in the state directory."""
    limits: LimitSettings
