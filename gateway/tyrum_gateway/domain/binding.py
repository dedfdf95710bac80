"""Bindings: the operator's choice of a provider, fixed for one operation.

Invariant: a binding is built from the operator's profile and the admitted instance alone. Nothing a
model or chat client sends is an argument of `Candidate` (ARCH-29, operator-only selection).
"""

from dataclasses import dataclass

from tyrum_gateway.domain.canonical import Value
from tyrum_gateway.domain.ids import BindingId, OperationId


@dataclass(frozen=True, slots=True)
class Candidate:
    """What would be bound if an operation began now."""

    kind: str
    provider: str
    """Name in the configuration."""
    provider_id: str
    profile: str
    contract_major: int
    contract_minor: int
    contract_digest: str
    implementation_version: str
    artifact_digest: str
    config_digest: str
    instance_id: str
    claims: tuple[str, ...] = ()
    """Posture in force, such as `fs.read=NOT_ENFORCED`, sorted; tells verified claims from stated."""
    journal_id: str = ""
    """Journal of the provider at that time; only this one proves that the operation did not begin. Empty in
    bindings that were made before journals had an identity: no journal proves it of them."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """What makes two candidates the same provider: provider id, profile, contract major."""
        return self.provider_id, self.profile, self.contract_major

    def shown(self) -> Value:
        """What an approval shows of it: the boundary, without the instance that happens to run."""
        return {
            "kind": self.kind,
            "provider": self.provider,
            "provider_id": self.provider_id,
            "profile": self.profile,
            "contract": f"{self.kind} {self.contract_major}",
            "artifact": self.artifact_digest,
            "config": self.config_digest,
            "claims": list(self.claims),
        }


@dataclass(frozen=True, slots=True)
class Binding:
    """A candidate made immutable for one operation."""

    binding_id: BindingId
    operation_id: OperationId
    candidate: Candidate
