"""The registry of claims: what an isolation provider's posture states, no more and no fewer.

Invariant: the names are those of docs/contracts/isolation.md, row 10, and of `Claim.name` in
isolation.proto; only PROVED counts as proved (ARCH-29).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tyrum_provider_host.isolation_types import ClaimStatus, Posture

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

_FEW = 5
"""Claims up to which a sentence names them."""


def missing(posture: Posture) -> tuple[str, ...]:
    """List the registered claims that the posture does not state."""
    stated = {claim.name for claim in posture.claims}
    return tuple(name for name in CLAIMS if name not in stated)


def unknown(posture: Posture) -> tuple[str, ...]:
    """List the claims of the posture that are not registered."""
    return tuple(claim.name for claim in posture.claims if claim.name not in CLAIMS)


def unproved(required: Iterable[str], posture: Posture) -> dict[str, str]:
    """Return the required claims that are not PROVED with their status; `unknown` is one not stated."""
    status = {claim.name: claim.status for claim in posture.claims}
    return {
        name: status.get(name, "unknown") for name in required if status.get(name) is not ClaimStatus.PROVED
    }


def worth(statuses: Mapping[str, str]) -> str:
    """Say in one line what a boundary is worth, from claims with their status."""
    total = len(statuses)
    open_ = {name: status for name, status in statuses.items() if status != ClaimStatus.PROVED}
    if not open_:
        return f"all {total} claims are proved"
    if all(status == ClaimStatus.NOT_ENFORCED for status in statuses.values()):
        return f"nothing is confined: {total} of {total} claims are {ClaimStatus.NOT_ENFORCED}"
    if len(open_) <= _FEW:
        return f"{len(open_)} of {total} claims are not proved: {', '.join(sorted(open_))}"
    counted = [
        f"{list(open_.values()).count(status)} {status}" for status in ClaimStatus if status in open_.values()
    ]
    return f"{len(open_)} of {total} claims are not proved: {', '.join(counted)}"
