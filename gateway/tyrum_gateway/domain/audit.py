"""The audit log's chain: every row's hash covers the row and the hash of the row before it.

Invariant: rows are only ever appended, numbered from 1 without holes; who changes, drops, adds or reorders
rows behind a hash that is kept elsewhere is found out, because no later hash fits any more (ARCH-22, audit).
What is kept elsewhere are signed heads; `audit_verify` compares both.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

KINDS: Final = frozenset(
    {
        "approval.requested",
        "approval.resolved",
        "attempt.abandoned",
        "audit.heads_begun",
        "call.decided",
        "call.ended",
        "gateway.started",
        "gateway.stopped",
        "message.accepted",
        "operation.begun",
        "operation.bound",
        "override.created",
        "override.revoked",
        "principal.created",
        "principal.disabled",
        "principal.roles_set",
        "provider.restarted",
        "token.issued",
        "token.revoked",
        "turn.ended",
    }
)
"""Every kind of row that this version writes."""

GENESIS: Final = "sha256:" + "0" * 64
"""What the first row names as the hash before it."""

_ROW_TAG: Final = "tyrum.audit.1"
_HEAD_TAG: Final = "tyrum.audit-head.1"
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row as it is stored."""

    sequence: int
    """From 1, without holes."""
    at: int
    """Microseconds since 1970 in UTC."""
    kind: str
    actor: str
    subject: str
    details: str
    """Canonical JSON."""
    previous: str
    """Hash of the row before, `GENESIS` for the first."""
    hash: str
    """See `row_hash`."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The chain up to one row, signed and kept outside the database."""

    sequence: int
    """The newest row when it was signed."""
    hash: str
    """That row's hash, which stands for all rows before it too."""
    at: int
    """When it was signed, in microseconds since 1970 in UTC."""
    key_id: str
    """Names the key, see the signer."""
    signature: str
    """Base64 of the signature over `signed_bytes`."""


class AuditLog(Protocol):
    """Reading the log."""

    async def head(self) -> tuple[int, str] | None:
        """Read sequence and hash of the newest row; None when there is none."""
        ...

    async def hash_of(self, sequence: int) -> str | None:
        """Read the hash of one row; None when there is no such row."""
        ...

    async def rows(self, after: int, limit: int, *, subject: str = "") -> Sequence[AuditRow]:
        """Read rows after a sequence in order, of one subject unless it is empty."""
        ...

    async def rows_before(self, before: int, limit: int, *, subject: str = "") -> Sequence[AuditRow]:
        """Read rows before a sequence, newest first, of one subject unless it is empty."""
        ...


def row_hash(
    *, sequence: int, at: int, kind: str, actor: str, subject: str, details: str, previous: str
) -> str:
    """Compute the hash of a row: `sha256:` and 64 hexadecimal digits over its canonical JSON.

    The JSON is a list of the arguments in the order above; `details` is covered as the text it is stored as.
    """
    return _digest(_ROW_TAG, [sequence, at, kind, actor, subject, details, previous])


def signed_bytes(*, sequence: int, row: str, at: int, key_id: str) -> bytes:
    """Return what a head's signature covers: tag, line feed, and the canonical JSON of the arguments."""
    return _canonical(_HEAD_TAG, [sequence, row, at, key_id])


def _digest(tag: str, value: list[int | str]) -> str:
    return "sha256:" + hashlib.sha256(_canonical(tag, value)).hexdigest()


def _canonical(tag: str, value: list[int | str]) -> bytes:
    # Of a flat list of texts and numbers, this is the canonical form. Texts that are no Unicode occur only in
    # rows that somebody tampered with; they must have a hash all the same.
    text = _JSON.encode(value)
    return f"{tag}\n{text}".encode(errors="surrogatepass")
