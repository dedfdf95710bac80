"""Governance: the audit chain, standing permissions, what a run was, who answered from where, token ids."""

from alembic import op
from sqlalchemy import text

from tyrum_gateway.domain.audit import GENESIS, row_hash

revision = "2"
down_revision = "1"

_COLUMNS = (
    "ALTER TABLE turns ADD COLUMN agent TEXT DEFAULT 'default' NOT NULL",
    "ALTER TABLE turns ADD COLUMN model TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE turns ADD COLUMN backend TEXT DEFAULT 'native' NOT NULL",
    "ALTER TABLE turns ADD COLUMN session TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE turns ADD COLUMN host TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE turns ADD COLUMN input_tokens INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE turns ADD COLUMN output_tokens INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE turns ADD COLUMN usage_complete INTEGER DEFAULT 1 NOT NULL",
    "ALTER TABLE approvals ADD COLUMN agent TEXT DEFAULT 'default' NOT NULL",
    "ALTER TABLE approvals ADD COLUMN target TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE approvals ADD COLUMN resolved_from TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE approvals ADD COLUMN override_id TEXT",
    "ALTER TABLE principals ADD COLUMN disabled_at INTEGER",
    "ALTER TABLE tokens ADD COLUMN token_id TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE tokens ADD COLUMN label TEXT DEFAULT '' NOT NULL",
    # The digits of a digest are digits of an id too; the first one of an id is at most 7.
    "UPDATE tokens SET token_id = 'tok_0' || substr(token_sha256, 1, 25)",
    "CREATE UNIQUE INDEX tokens_by_id ON tokens (token_id)",
)

_OVERRIDES = (
    """
    CREATE TABLE overrides (
        override_id TEXT NOT NULL,
        agent TEXT NOT NULL,
        rule TEXT NOT NULL,
        summary TEXT NOT NULL,
        approval_id TEXT,
        created_principal_id TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_method TEXT NOT NULL,
        created_from TEXT NOT NULL,
        created_reason TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER,
        revoked_by TEXT NOT NULL,
        revoked_reason TEXT NOT NULL,
        PRIMARY KEY (override_id),
        FOREIGN KEY(approval_id) REFERENCES approvals (approval_id)
    ) STRICT
    """,
    "CREATE INDEX overrides_in_force ON overrides (agent, override_id) WHERE revoked_at IS NULL",
)

_AUDIT = (
    "DROP TRIGGER audit_no_update",
    "DROP TRIGGER audit_no_delete",
    "ALTER TABLE audit RENAME TO audit_unchained",
    """
    CREATE TABLE audit (
        sequence INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        actor TEXT NOT NULL,
        subject TEXT NOT NULL,
        details TEXT NOT NULL,
        previous TEXT NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (sequence)
    ) STRICT
    """,
    "CREATE INDEX audit_of_subject ON audit (subject, sequence)",
)

_TRIGGERS = (
    """
    CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END
    """,
    """
    CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END
    """,
)


def upgrade() -> None:
    """Add the columns and tables, and chain the audit rows that were written without a chain."""
    for statement in (*_COLUMNS, *_OVERRIDES, *_AUDIT):
        op.execute(statement)
    _chain()
    op.execute("DROP TABLE audit_unchained")
    for statement in _TRIGGERS:
        op.execute(statement)


def _chain() -> None:
    connection = op.get_bind()
    add = text(
        "INSERT INTO audit (sequence, at, kind, actor, subject, details, previous, hash) "
        "VALUES (:sequence, :at, :kind, :actor, :subject, :details, :previous, :hash)"
    )
    previous = GENESIS
    older = text("SELECT at, kind, actor, subject, details FROM audit_unchained ORDER BY id")
    for sequence, (at, kind, actor, subject, details) in enumerate(connection.execute(older), 1):
        row = {
            "sequence": sequence,
            "at": at,
            "kind": kind,
            "actor": actor,
            "subject": subject,
            "details": details,
            "previous": previous,
        }
        previous = row_hash(**row)
        connection.execute(add, {**row, "hash": previous})
