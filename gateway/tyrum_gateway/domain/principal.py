"""Principals: who acts, how that was established, and what roles they hold."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.ids import PrincipalId, TokenId


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
    """From where the call comes and what its transport proves, such as `unix socket` or `tls 192.0.2.7`."""
    token_id: TokenId | None = None
    """The token that was presented."""
    expires_at: datetime | None = None
    """When that token stops working."""


@dataclass(frozen=True, slots=True)
class Account:
    """A principal as administrators see it."""

    principal_id: PrincipalId
    name: str
    roles: frozenset[Role]
    created_at: datetime
    disabled_at: datetime | None = None
    """Disabling is final."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token without its secret."""

    token_id: TokenId
    principal_id: PrincipalId
    label: str
    """What it is for; empty for the local operator's token file."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None = None

    def usable(self, now: datetime) -> bool:
        """Tell whether somebody could authenticate with it."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


KERNEL = "kernel"
"""What records call the gateway itself; nobody else has this name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_LONGEST_LABEL = 64


def principal_name(text: str) -> str:
    """Check the name of a new principal: one that cannot be mistaken for another one's or for an id.

    Raises:
        InvalidRequest: It has other characters than a name may have, or too many.
    """
    if not _NAME.fullmatch(text):
        raise InvalidRequest(
            "name",
            "must be 1 to 64 lower-case letters, digits, `.`, `_`, `-` or `@`, a letter or digit first",
        )
    if text.startswith(f"{PrincipalId.prefix}_"):
        raise InvalidRequest("name", f"must not begin with `{PrincipalId.prefix}_`, as ids do")
    if text == KERNEL:
        raise InvalidRequest("name", f"must not be `{KERNEL}`, as records call the gateway itself")
    return text


def token_label(text: str) -> str:
    """Check what a token is said to be for.

    Raises:
        InvalidRequest: It is empty, too long, or holds what does not show.
    """
    if not 1 <= len(text) <= _LONGEST_LABEL or not text.isprintable() or text != text.strip():
        raise InvalidRequest(
            "label", f"must have 1 to {_LONGEST_LABEL} visible characters, spaces only between them"
        )
    return text
