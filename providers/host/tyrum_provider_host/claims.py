"""The registry of claims: what an isolation provider's posture states, no more and no fewer.

Invariant: the names are those of docs/contracts/isolation.md, row 10, and of `Claim.name` in
isolation.proto; only PROVED counts as proved (ARCH-29), and what a provider says of itself is a statement.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tyrum_provider_host.isolation_types import Claim, ClaimStatus, Posture

CLAIMS: Final = (
    "fs.read",
    "fs.write",
    "fs.root_ro",
    "fs.sysctl",
    "env.sealed",
    "fd.sealed",
    "net.none",
    "net.family",
    "daemon.sockets",
    "daemon.none_survive",
    "proc.blind",
    "proc.unprivileged",
    "proc.syscalls",
    "tty.isolated",
    "res.memory",
    "res.pids",
    "res.cpu",
    "res.scratch",
    "res.files",
    "res.time",
)
"""Every claim of contract `isolation` 1.0, in the order of its document."""

STATED: Final = "PROVED (stated by the provider, not verified)"
"""Status of a claim that the provider states as PROVED and that was not verified here."""

_FEW = 5
"""Claims up to which a sentence names them."""


def missing(posture: Posture) -> tuple[str, ...]:
    """List the registered claims that the posture does not state."""
    stated = {claim.name for claim in posture.claims}
    return tuple(name for name in CLAIMS if name not in stated)


def unknown(posture: Posture) -> tuple[str, ...]:
    """List the claims of the posture that are not registered."""
    return tuple(claim.name for claim in posture.claims if claim.name not in CLAIMS)


def stated(claim: Claim) -> str:
    """Write a claim's status as far as it can be believed: PROVED is a statement until it is verified here.

    Neither conformance evidence nor an attestation exists yet, so nothing is verified.
    """
    return STATED if claim.status is ClaimStatus.PROVED else claim.status


def unverified(posture: Posture) -> tuple[str, ...]:
    """List the claims that the provider states as PROVED and that were not verified here."""
    return tuple(claim.name for claim in posture.claims if stated(claim) == STATED)


def unproved(required: Iterable[str], posture: Posture, *, trusted: bool) -> dict[str, str]:
    """Return the required claims that do not hold, with their status; `unknown` is one not stated.

    Args:
        required: Claims that a profile requires.
        posture: What the provider states.
        trusted: Whether the operator takes its word for what was not verified here (`trust_claims`).
    """
    status = {claim.name: stated(claim) for claim in posture.claims}
    enough = {ClaimStatus.PROVED, STATED} if trusted else {ClaimStatus.PROVED}
    return {name: status.get(name, "unknown") for name in required if status.get(name) not in enough}


def worth(statuses: Mapping[str, str]) -> str:
    """Say in one line what a boundary is worth, from claims with their status as `stated` writes it."""
    total = len(statuses)
    open_ = {name: status for name, status in statuses.items() if status not in {ClaimStatus.PROVED, STATED}}
    unsure = sum(status == STATED for status in statuses.values())
    said = f"{unsure} of {total} claims are stated by the provider, not verified" if unsure else ""
    if not open_:
        return said or f"all {total} claims are proved"
    if all(status == ClaimStatus.NOT_ENFORCED for status in statuses.values()):
        return f"nothing is confined: {total} of {total} claims are {ClaimStatus.NOT_ENFORCED}"
    if len(open_) <= _FEW:
        detail = ", ".join(sorted(open_))
    else:
        values = list(open_.values())
        detail = ", ".join(f"{values.count(status)} {status}" for status in ClaimStatus if status in values)
    missing = f"{len(open_)} of {total} claims are not proved: {detail}"
    return f"{missing}; {said}" if said else missing
