"""What a provider declares about itself, checked when it is written rather than when the host refuses it.

Invariant: a ProviderDefinition keeps every limit of `tyrum.provider.v1.ProviderDescriptor`, and names the
contract whose generated code the provider was built with, digest included. A program whose definition does
not ends with one line that names place and rule, and with status 2.
"""

import enum
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tyrum_provider_kit.invalid_definition import InvalidDefinition, end_with_one_line
from tyrum_provider_kit.schema import check_schema

end_with_one_line()

_PROVIDER_ID = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_SEMANTIC_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?"
)
_CAPABILITY = re.compile(r"[a-z0-9_.]{1,64}")
_SLOT = re.compile(r"[a-z0-9_]{1,64}")


class Cardinality(enum.Enum):
    """How many providers of the kind serve one selection scope; a constant of the kind's contract."""

    EXCLUSIVE = "exclusive"
    ORDERED_MANY = "ordered_many"


class DeploymentMode(enum.Enum):
    """How the provider is deployed."""

    LOCAL_PROCESS = "local_process"
    REMOTE = "remote"


class Trust(enum.Enum):
    """On whose authority the provider's code runs."""

    OPERATOR_INSTALLED = "operator_installed"
    EXTERNAL_PARTY = "external_party"


@dataclass(frozen=True, slots=True)
class SecretSlot:
    """One secret the operator may project into the provider.

    `name` is 1 to 64 characters of [a-z0-9_], `purpose` at most 256 bytes for the operator.

    Raises:
        InvalidDefinition: a limit is broken.
    """

    name: str
    required: bool = False
    purpose: str = ""

    def __post_init__(self) -> None:
        _require(_SLOT.fullmatch(self.name) is not None, "a slot's name is 1 to 64 characters of [a-z0-9_]")
        _require(len(self.purpose.encode()) <= 256, "a slot's purpose is at most 256 bytes")


@dataclass(frozen=True, slots=True)
class Contract:
    """One version of a kind's contract, with the digest of the contract files this build carries."""

    kind: str
    major: int
    minor: int
    package: str
    digest: str

    @property
    def version(self) -> str:
        """`major.minor`, as the proof spells it."""
        return f"{self.major}.{self.minor}"


@functools.cache
def installed_contract(kind: str) -> Contract:
    """Find the contract of a kind among the installed contracts.

    Raises:
        InvalidDefinition: no contract of that kind is installed.
    """
    document = json.loads((resources.files("tyrum") / "contracts" / "digests.json").read_text("utf-8"))
    for entry in document["contracts"]:
        if entry["kind"] == kind:
            return Contract(**entry)
    kinds = ", ".join(sorted(entry["kind"] for entry in document["contracts"]))
    raise InvalidDefinition(f"no contract of kind {kind!r} is installed, but those of {kinds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderDefinition:
    """What a provider is, constant over the life of its process.

    Limits are those of `tyrum.provider.v1.ProviderDescriptor`; the contract follows from `kind`.

    Raises:
        InvalidDefinition: a limit is broken, or the kind has no installed contract.
    """

    provider_id: str
    implementation_version: str
    kind: str
    cardinality: Cardinality
    config_schema: Mapping[str, Any]
    deployment_mode: DeploymentMode = DeploymentMode.LOCAL_PROCESS
    trust: Trust = Trust.OPERATOR_INSTALLED
    secret_slots: tuple[SecretSlot, ...] = ()
    capabilities: tuple[str, ...] = ()
    max_concurrent_operations: int = 1
    handle_versions: tuple[int, ...] = ()
    cache_directories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(
            3 <= len(self.provider_id) <= 128 and _PROVIDER_ID.fullmatch(self.provider_id) is not None,
            "provider_id is a reverse-DNS name of 3 to 128 characters of [a-z0-9.-], such as com.example.x,"
            f" not {self.provider_id!r}",
        )
        _require(
            len(self.implementation_version) <= 64
            and _SEMANTIC_VERSION.fullmatch(self.implementation_version) is not None,
            "implementation_version is a semantic version of at most 64 bytes, such as 1.0.0,"
            f" not {self.implementation_version!r}",
        )
        installed_contract(self.kind)
        try:
            check_schema(self.config_schema)
        except ValueError as error:
            raise InvalidDefinition(str(error)) from error
        _require(len(self.secret_slots) <= 32, "at most 32 secret slots")
        _require(
            len({slot.name for slot in self.secret_slots}) == len(self.secret_slots), "slot names repeat"
        )
        _require(len(self.capabilities) <= 64, "at most 64 capabilities")
        _require(len(set(self.capabilities)) == len(self.capabilities), "capabilities repeat")
        _require(
            all(_CAPABILITY.fullmatch(name) for name in self.capabilities),
            "a capability is 1 to 64 characters of [a-z0-9_.]",
        )
        _require(1 <= self.max_concurrent_operations < 2**32, "max_concurrent_operations is at least 1")
        _require(len(self.handle_versions) <= 16, "at most 16 handle versions")
        _require(all(0 <= version < 2**32 for version in self.handle_versions), "handle versions are u32")
        _require(len(self.cache_directories) <= 16, "at most 16 cache directories")
        _require(
            all(name and "/" not in name and name not in {".", ".."} for name in self.cache_directories),
            "a cache directory is a name directly below the state directory",
        )

    @property
    def contract(self) -> Contract:
        """The contract this build speaks."""
        return installed_contract(self.kind)

    @property
    def slots_by_name(self) -> Mapping[str, SecretSlot]:
        """The declared secret slots."""
        return {slot.name: slot for slot in self.secret_slots}


def _require(holds: bool, rule: str) -> None:  # noqa: FBT001 - the condition is the subject
    if not holds:
        raise InvalidDefinition(rule)
