"""What a provider says about itself, checked field by field before anything trusts it.

Invariant: a descriptor with one bad field is refused as a whole, naming every bad field.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from tyrum.provider.v1 import control_pb2
from tyrum_provider_host.contracts import Cardinality, DeploymentMode, Trust
from tyrum_provider_host.logs import sanitise
from tyrum_provider_host.version import SemanticVersion

_PROVIDER_ID = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+", re.ASCII)
_SLOT = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_CAPABILITY = re.compile(r"[a-z0-9_.]{1,64}", re.ASCII)
MAX_SCHEMA_BYTES = 64 * 1024

_CARDINALITIES = {
    control_pb2.CARDINALITY_EXCLUSIVE: Cardinality.EXCLUSIVE,
    control_pb2.CARDINALITY_ORDERED_MANY: Cardinality.ORDERED_MANY,
}
_DEPLOYMENT_MODES = {
    control_pb2.DEPLOYMENT_MODE_LOCAL_PROCESS: DeploymentMode.LOCAL_PROCESS,
    control_pb2.DEPLOYMENT_MODE_REMOTE: DeploymentMode.REMOTE,
}
_TRUSTS = {
    control_pb2.TRUST_OPERATOR_INSTALLED: Trust.OPERATOR_INSTALLED,
    control_pb2.TRUST_EXTERNAL_PARTY: Trust.EXTERNAL_PARTY,
}


@dataclass(frozen=True, slots=True)
class SecretSlot:
    """A secret that may be projected into the provider."""

    name: str
    required: bool
    purpose: str


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A checked descriptor."""

    provider_id: str
    implementation_version: SemanticVersion
    version_text: str
    kind: str
    cardinality: Cardinality
    deployment_mode: DeploymentMode
    trust: Trust
    config_schema: str
    secret_slots: tuple[SecretSlot, ...]
    capabilities: frozenset[str]
    max_concurrent_operations: int
    handle_versions: frozenset[int]
    cache_directories: tuple[str, ...]
    digest: str
    """`sha256:` over the deterministic serialisation."""


class DescriptorError(ValueError):
    """The descriptor is not well-formed; the message names every bad field."""


def check(message: control_pb2.ProviderDescriptor) -> Descriptor:
    """Check every field on its own; agreement with contract and operator is admission's business.

    Raises:
        DescriptorError: one or more fields are missing or break their limits.
    """
    problems: list[str] = []

    def require(condition: object, field: str, rule: str) -> None:
        if not condition:
            problems.append(f"`{field}` {rule}")

    provider_id = message.provider_id
    require(
        3 <= len(provider_id) <= 128 and _PROVIDER_ID.fullmatch(provider_id),
        "provider_id",
        f"must be a reverse-DNS name of 3 to 128 characters, found `{sanitise(provider_id, 64)}`",
    )
    version = SemanticVersion((0, 0, 0))
    try:
        version = SemanticVersion.parse(message.implementation_version)
        require(len(message.implementation_version) <= 64, "implementation_version", "has more than 64 bytes")
    except ValueError:
        found = sanitise(message.implementation_version, 64)
        problems.append(f"`implementation_version` must be a semantic version, found `{found}`")
    require(message.kind, "kind", "is missing")
    require(message.cardinality in _CARDINALITIES, "cardinality", "is missing or unknown")
    require(message.deployment_mode in _DEPLOYMENT_MODES, "deployment_mode", "is missing or unknown")
    require(message.trust in _TRUSTS, "trust", "is missing or unknown")
    require(message.config_schema, "config_schema", "is missing")
    size = len(message.config_schema.encode())
    require(size <= MAX_SCHEMA_BYTES, "config_schema", f"has {size} bytes, at most {MAX_SCHEMA_BYTES}")
    slots = [slot.name for slot in message.secret_slots]
    require(len(slots) <= 32, "secret_slots", "has more than 32 entries")
    require(all(map(_SLOT.fullmatch, slots)), "secret_slots", "has a malformed name")
    require(len(set(slots)) == len(slots), "secret_slots", "has a name twice")
    purposes = [slot.purpose for slot in message.secret_slots]
    require(
        all(len(text.encode()) <= 256 for text in purposes), "secret_slots", "has a purpose over 256 bytes"
    )
    capabilities = list(message.capabilities)
    require(len(capabilities) <= 64, "capabilities", "has more than 64 entries")
    require(all(map(_CAPABILITY.fullmatch, capabilities)), "capabilities", "has a malformed name")
    require(len(set(capabilities)) == len(capabilities), "capabilities", "has a name twice")
    require(
        message.limits.max_concurrent_operations >= 1,
        "limits.max_concurrent_operations",
        "must be at least 1",
    )
    require(len(message.handle_versions) <= 16, "handle_versions", "has more than 16 entries")
    require(len(message.cache_directories) <= 16, "cache_directories", "has more than 16 entries")
    require(
        all(map(_is_plain_path, message.cache_directories)),
        "cache_directories",
        "must hold relative names without `..`",
    )
    if problems:
        raise DescriptorError("; ".join(problems))
    return Descriptor(
        provider_id=provider_id,
        implementation_version=version,
        version_text=message.implementation_version,
        kind=message.kind,
        cardinality=_CARDINALITIES[message.cardinality],
        deployment_mode=_DEPLOYMENT_MODES[message.deployment_mode],
        trust=_TRUSTS[message.trust],
        config_schema=message.config_schema,
        secret_slots=tuple(
            SecretSlot(slot.name, slot.required, sanitise(slot.purpose, 256)) for slot in message.secret_slots
        ),
        capabilities=frozenset(capabilities),
        max_concurrent_operations=message.limits.max_concurrent_operations,
        handle_versions=frozenset(message.handle_versions),
        cache_directories=tuple(message.cache_directories),
        digest="sha256:" + sha256(message.SerializeToString(deterministic=True)).hexdigest(),
    )


def _is_plain_path(text: str) -> bool:
    path = PurePosixPath(text)
    return bool(text) and not path.is_absolute() and ".." not in path.parts and "\0" not in text
