"""Principals: who acts, how that was established, and what roles they hold."""

from dataclasses import dataclass
from enum import StrEnum

from tyrum_gateway.domain.ids import PrincipalId


class Role(StrEnum):
    """What a principal may do; roles do not imply each other."""

    CHAT = "chat"
    """Send messages and read conversations."""
    APPROVER = "approver"
    """Resolve approvals."""
    OPERATOR = "operator"
    """See providers and bindings."""
    AUDITOR = "auditor"
    """Read the audit log."""
    ADMIN = "admin"
    """Manage principals."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    principal_id: PrincipalId
    name: str
    """Human name, shown beside approvals."""
    roles: frozenset[Role]
    method: str
    """How the caller was authenticated, such as `token`."""
    origin: str = ""
    """From where the call comes: the transport and what it proves of the peer, such as `unix uid 1000`."""
