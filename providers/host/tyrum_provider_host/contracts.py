"""What the host admits: the kinds' contracts with their digests, and the constants that each contract fixes.

Invariant: version, digest, cardinality, trust and deployment mode come from the contract, never from what a
provider says about itself (ARCH-29, Cardinality; Trust and deployment mode).
"""

import functools
import json
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any

CONTROL_VERSION_MIN = 1
CONTROL_VERSION_MAX = 1


class Cardinality(StrEnum):
    """How many providers of a kind a selection scope binds."""

    EXCLUSIVE = "exclusive"
    ORDERED_MANY = "ordered_many"


class DeploymentMode(StrEnum):
    """Where a provider runs."""

    LOCAL_PROCESS = "local_process"
    REMOTE = "remote"


class Trust(StrEnum):
    """On whose authority a provider's code acts."""

    OPERATOR_INSTALLED = "operator_installed"
    EXTERNAL_PARTY = "external_party"


@dataclass(frozen=True, slots=True)
class KindContract:
    """One version of one kind's contract, with the constants it fixes."""

    kind: str
    major: int
    minor: int
    digest: str
    package: str
    cardinality: Cardinality
    deployment_modes: frozenset[DeploymentMode]
    trusts: frozenset[Trust]

    @property
    def service(self) -> str:
        """Full name of the kind's domain service."""
        return f"{self.package}.{self.kind.capitalize()}Service"

    @property
    def resolves_operations(self) -> bool:
        """Whether a provider of the kind answers from a journal what became of an operation."""
        return self.kind in _WITH_JOURNAL

    @property
    def required_methods(self) -> tuple[str, ...]:
        """RPCs of the domain service that every provider of the kind has, one free of effects first."""
        return _REQUIRED_METHODS.get(self.kind, ())

    @property
    def label(self) -> str:
        """Kind and version as operators read them."""
        return f"{self.kind} {self.major}.{self.minor}"


_CARDINALITY = {
    "isolation": Cardinality.EXCLUSIVE,
    "memory": Cardinality.EXCLUSIVE,
    "context": Cardinality.ORDERED_MANY,
}

_REQUIRED_METHODS = {
    "isolation": (
        "GetPosture",
        "StartProcess",
        "WaitProcess",
        "GetProcess",
        "ResolveOperation",
        "ReadOutput",
        "CancelProcess",
        "ReleaseProcess",
        "ListProcesses",
    ),
}
_WITH_JOURNAL = frozenset({"isolation"})


@functools.cache
def packaged_contracts() -> tuple[KindContract, ...]:
    """Read the contracts this build was generated from (`tyrum/contracts/digests.json`).

    Every kind admits local processes that the operator installed, and nothing else yet.
    """
    text = (resources.files("tyrum") / "contracts" / "digests.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["contracts"]
    return tuple(
        KindContract(
            kind=entry["kind"],
            major=entry["major"],
            minor=entry["minor"],
            digest=entry["digest"],
            package=entry["package"],
            cardinality=_CARDINALITY[entry["kind"]],
            deployment_modes=frozenset({DeploymentMode.LOCAL_PROCESS}),
            trusts=frozenset({Trust.OPERATOR_INSTALLED}),
        )
        for entry in entries
    )
