"""The first schema: conversations, turns, calls, events, evidence, approvals, bindings, audit, principals."""

from alembic import op

revision = "1"
down_revision = None

_STATEMENTS = (
    """
    CREATE TABLE conversations (
        conversation_id TEXT NOT NULL,
        principal_id TEXT NOT NULL,
        title TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        turn_count INTEGER NOT NULL,
        PRIMARY KEY (conversation_id)
    ) STRICT
    """,
    """
    CREATE INDEX conversations_of_principal ON conversations (principal_id, conversation_id)
    """,
    """
    CREATE TABLE bindings (
        binding_id TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        provider TEXT NOT NULL,
        provider_id TEXT NOT NULL,
        profile TEXT NOT NULL,
        contract_major INTEGER NOT NULL,
        contract_minor INTEGER NOT NULL,
        contract_digest TEXT NOT NULL,
        implementation_version TEXT NOT NULL,
        artifact_digest TEXT NOT NULL,
        config_digest TEXT NOT NULL,
        instance_id TEXT NOT NULL,
        claims TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (binding_id),
        UNIQUE (operation_id)
    ) STRICT
    """,
    """
    CREATE TABLE audit (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        actor TEXT NOT NULL,
        subject TEXT NOT NULL,
        details TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END
    """,
    """
    CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END
    """,
    """
    CREATE TABLE principals (
        principal_id TEXT NOT NULL,
        name TEXT NOT NULL,
        roles TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (principal_id),
        UNIQUE (name)
    ) STRICT
    """,
    """
    CREATE TABLE turns (
        turn_id TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        principal_id TEXT NOT NULL,
        request_id TEXT NOT NULL,
        request_digest TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        step INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        reason TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        ended_at INTEGER,
        PRIMARY KEY (turn_id),
        UNIQUE (conversation_id, number),
        UNIQUE (principal_id, request_id),
        FOREIGN KEY(conversation_id) REFERENCES conversations (conversation_id)
    ) STRICT
    """,
    """
    CREATE INDEX turns_unfinished ON turns (conversation_id, number) WHERE ended_at IS NULL
    """,
    """
    CREATE TABLE checkpoints (
        conversation_id TEXT NOT NULL,
        through_turn INTEGER NOT NULL,
        summary TEXT NOT NULL,
        PRIMARY KEY (conversation_id),
        FOREIGN KEY(conversation_id) REFERENCES conversations (conversation_id)
    ) STRICT
    """,
    """
    CREATE TABLE tokens (
        token_sha256 TEXT NOT NULL,
        principal_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER,
        PRIMARY KEY (token_sha256),
        FOREIGN KEY(principal_id) REFERENCES principals (principal_id)
    ) STRICT
    """,
    """
    CREATE INDEX tokens_of_principal ON tokens (principal_id)
    """,
    """
    CREATE TABLE calls (
        call_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        step INTEGER NOT NULL,
        position INTEGER NOT NULL,
        tool TEXT NOT NULL,
        arguments TEXT NOT NULL,
        state TEXT NOT NULL,
        rule_id TEXT NOT NULL,
        approval_id TEXT,
        operation_id TEXT,
        process_id TEXT,
        binding_id TEXT,
        PRIMARY KEY (call_id),
        UNIQUE (turn_id, step, position),
        UNIQUE (operation_id),
        FOREIGN KEY(turn_id) REFERENCES turns (turn_id),
        FOREIGN KEY(binding_id) REFERENCES bindings (binding_id)
    ) STRICT
    """,
    """
    CREATE TABLE approvals (
        approval_id TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        subject_json TEXT NOT NULL,
        subject_summary TEXT NOT NULL,
        rule_id TEXT NOT NULL,
        requested_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        outcome TEXT,
        resolved_at INTEGER,
        resolved_principal_id TEXT,
        resolved_by TEXT NOT NULL,
        method TEXT NOT NULL,
        resolved_reason TEXT NOT NULL,
        PRIMARY KEY (approval_id),
        CHECK ((outcome IS NULL) = (resolved_at IS NULL)),
        FOREIGN KEY(conversation_id) REFERENCES conversations (conversation_id),
        FOREIGN KEY(turn_id) REFERENCES turns (turn_id),
        FOREIGN KEY(call_id) REFERENCES calls (call_id)
    ) STRICT
    """,
    """
    CREATE INDEX approvals_expiry ON approvals (expires_at) WHERE outcome IS NULL
    """,
    """
    CREATE INDEX approvals_of_conversation ON approvals (conversation_id, approval_id)
    """,
    """
    CREATE INDEX approvals_pending ON approvals (approval_id) WHERE outcome IS NULL
    """,
    """
    CREATE INDEX approvals_pending_of_conversation ON approvals
    (conversation_id, approval_id) WHERE outcome IS NULL
    """,
    """
    CREATE TABLE evidence (
        call_id TEXT NOT NULL,
        content TEXT NOT NULL,
        cause TEXT,
        exit_code INTEGER,
        signal INTEGER,
        duration INTEGER,
        stdout_bytes INTEGER,
        stdout_sha256 TEXT,
        stdout_head BLOB,
        stdout_tail BLOB,
        stderr_bytes INTEGER,
        stderr_sha256 TEXT,
        stderr_head BLOB,
        stderr_tail BLOB,
        PRIMARY KEY (call_id),
        FOREIGN KEY(call_id) REFERENCES calls (call_id)
    ) STRICT
    """,
    """
    CREATE TABLE events (
        conversation_id TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        turn_number INTEGER NOT NULL,
        turn_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        evidence_call_id TEXT,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (conversation_id, sequence),
        FOREIGN KEY(conversation_id) REFERENCES conversations (conversation_id),
        FOREIGN KEY(turn_id) REFERENCES turns (turn_id),
        FOREIGN KEY(evidence_call_id) REFERENCES evidence (call_id)
    ) STRICT
    """,
    """
    CREATE INDEX events_of_turn ON events (conversation_id, turn_number, sequence)
    """,
    """
    CREATE TRIGGER events_no_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events is append-only'); END
    """,
    """
    CREATE TRIGGER events_no_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events is append-only'); END
    """,
)


def upgrade() -> None:
    """Create the tables."""
    for statement in _STATEMENTS:
        op.execute(statement)
