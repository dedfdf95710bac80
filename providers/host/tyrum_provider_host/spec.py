"""What the operator configured: one record per provider, and the bounds within which the host works.

Invariant: a secret value is wrapped from where it enters until the one call that projects it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, final

from tyrum_provider_host.contracts import DeploymentMode, Trust
from tyrum_provider_host.version import ImplementationRange

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_SHA256 = re.compile(r"(?:sha256:)?[0-9a-f]{64}", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
RESERVED_ENV_PREFIX: Final = "TYRUM_"
MASK: Final = "***"


class SpecError(ValueError):
    """A provider's record is unusable; the message names the field."""


@final
class Secret:
    """A secret value that never shows itself in `repr`, `str` or a format string."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one place that projects it."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not serialised")


SecretSource = Secret | Callable[[], Secret]
"""A secret, or what resolves it; the resolver is called only when the value is projected."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One provider as the operator configured it. Nothing here can be influenced by a model or a client."""

    name: str
    """The operator's name, `[a-z0-9][a-z0-9_-]*`, at most 63 characters; names the state directory too."""
    kind: str
    command: tuple[str, ...]
    """Argument vector; the first is the absolute path of the program. Never a shell, never secrets."""
    config: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """JSON object, at most 64 KiB as canonical JSON."""
    secrets: Mapping[str, SecretSource] = field(default_factory=lambda: _EMPTY)
    """Secret slots and where their values come from."""
    implementation_range: str | None = None
    """Admitted implementation versions, such as `>=0.1,<0.2`; None admits all."""
    trust: Trust = Trust.OPERATOR_INSTALLED
    deployment: DeploymentMode = DeploymentMode.LOCAL_PROCESS
    start_timeout: float = 10.0
    """Seconds from spawn until the provider listens."""
    artifact_sha256: str | None = None
    """Pinned artifact digest, with or without `sha256:`; None records the digest without comparing it."""
    environment: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Environment variables the operator allows beyond the documented ones."""
    required_capabilities: frozenset[str] = frozenset()
    """Capabilities the profiles that select this provider need."""
    trust_claims: bool = False
    """Whether the operator takes its word for claims that were not verified here."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"name `{self.name[:64]}` must match {_NAME.pattern}")
        if not self.command or not PurePosixPath(self.command[0]).is_absolute():
            raise SpecError(f"command of `{self.name}` must begin with an absolute path")
        if any("\0" in argument for argument in self.command):
            raise SpecError(f"command of `{self.name}` contains a NUL byte")
        if self.artifact_sha256 is not None and not _SHA256.fullmatch(self.artifact_sha256):
            raise SpecError(f"artifact_sha256 of `{self.name}` must be 64 lower-case hexadecimal digits")
        if not 0 < self.start_timeout <= 600:
            raise SpecError(f"start_timeout of `{self.name}` must be above 0 and at most 600 seconds")
        if self.implementation_range is not None:
            try:
                ImplementationRange.parse(self.implementation_range)
            except ValueError as error:
                raise SpecError(f"implementation_range of `{self.name}`: {error}") from None
        for variable, value in self.environment.items():
            if not _ENV_NAME.fullmatch(variable) or variable.startswith(RESERVED_ENV_PREFIX):
                raise SpecError(f"environment of `{self.name}`: `{variable[:64]}` is malformed or reserved")
            if "\0" in value:
                raise SpecError(f"environment of `{self.name}`: `{variable[:64]}` contains a NUL byte")


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Upper bounds in seconds of everything the host waits for. Lower them in tests, never raise them."""

    connect_interval: float = 0.005
    handshake: float = 2.0
    descriptor: float = 2.0
    validate: float = 10.0
    configure: float = 10.0
    probe: float = 2.0
    posture: float = 2.0
    health: float = 2.0
    settle: float = 2.0
    """From Configure until probe and health must hold."""
    health_interval: float = 5.0
    unresponsive: float = 30.0
    """How long an admitted instance may answer no check before it is ended and replaced."""
    drain: float = 30.0
    shutdown_ack: float = 2.0
    shutdown_grace: float = 5.0
    term_grace: float = 3.0


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Back-off and crash-loop limits; durations in seconds."""

    initial_delay: float = 0.25
    factor: float = 2.0
    jitter: float = 0.2
    max_delay: float = 30.0
    crash_limit: int = 5
    crash_window: float = 300.0
