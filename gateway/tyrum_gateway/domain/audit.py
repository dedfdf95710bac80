"""The audit log's chain: every row's hash covers the row and the hash of the row before it.

Invariant: rows are only ever appended, numbered from 1 without holes; who changes, drops, adds or reorders
rows behind a hash that is kept elsewhere is found out, because no later hash fits any more (ARCH-22, audit).
"""

from dataclasses import dataclass
from typing import Final

from tyrum_gateway.domain.canonical import digest

GENESIS: Final = "sha256:" + "0" * 64
"""What the first row names as the hash before it."""

_TAG: Final = "tyrum.audit.1"


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


def row_hash(
    *, sequence: int, at: int, kind: str, actor: str, subject: str, details: str, previous: str
) -> str:
    """Compute the hash of a row: `sha256:` and 64 hexadecimal digits over its canonical JSON.

    The JSON is a list of the arguments in the order above; `details` is covered as the text it is stored as.
    """
    return digest(_TAG, [sequence, at, kind, actor, subject, details, previous])
