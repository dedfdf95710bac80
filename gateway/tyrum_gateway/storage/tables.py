"""The tables, as the present schema version has them.

Times are integers: microseconds since 1970 in UTC. Invariants kept by the database itself: events and audit
are append-only, sequences and turn numbers are unique in their conversation, an operation id names one call.
"""

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    event,
    text,
)

metadata = MetaData()

# What a column added by a migration holds in older rows; every statement gives a value of its own.
_EMPTY = text("''")
_ZERO = text("0")
_ONE = text("1")
_DEFAULT_AGENT = text("'default'")
_NATIVE = text("'native'")


def _text(
    name: str, *rest: ForeignKey, null: bool = False, default: TextClause | None = None
) -> Column[object]:
    return Column(name, Text, *rest, nullable=null, server_default=default)


def _integer(name: str, *, null: bool = False, default: TextClause | None = None) -> Column[object]:
    return Column(name, Integer, nullable=null, server_default=default)


def _key(name: str, *rest: ForeignKey) -> Column[object]:
    return Column(name, Text, *rest, primary_key=True, nullable=False)


conversations = Table(
    "conversations",
    metadata,
    _key("conversation_id"),
    _text("principal_id"),
    _text("title"),
    _integer("created_at"),
    _integer("updated_at"),
    _integer("last_sequence"),
    _integer("turn_count"),
    sqlite_strict=True,
)

Index("conversations_of_principal", conversations.c.principal_id, conversations.c.conversation_id)

turns = Table(
    "turns",
    metadata,
    _key("turn_id"),
    _text("conversation_id", ForeignKey("conversations.conversation_id")),
    _integer("number"),
    _text("principal_id"),
    _text("request_id"),
    _text("request_digest"),
    _integer("sequence"),
    _text("state"),
    _integer("version"),
    _integer("step"),
    _integer("attempt"),
    _text("reason"),
    _integer("created_at"),
    _integer("ended_at", null=True),
    _text("agent", default=_DEFAULT_AGENT),
    _text("model", default=_EMPTY),
    _text("backend", default=_NATIVE),
    _text("session", default=_EMPTY),
    _text("host", default=_EMPTY),
    _integer("input_tokens", default=_ZERO),
    _integer("output_tokens", default=_ZERO),
    _integer("usage_complete", default=_ONE),
    _integer("lost", default=_ZERO),
    _integer("working_since", null=True),
    _integer("changed_at", null=True),
    # Names of models, separated by blanks.
    _text("answered_by", default=_EMPTY),
    UniqueConstraint("conversation_id", "number"),
    UniqueConstraint("principal_id", "request_id"),
    sqlite_strict=True,
)
# A turn has an end exactly when its state is final: what is unfinished is found without looking at the rest.
Index("turns_unfinished", turns.c.conversation_id, turns.c.number, sqlite_where=turns.c.ended_at.is_(None))
# With the end, so that they are counted without a look at the rows.
Index("turns_unfinished_of", turns.c.principal_id, turns.c.ended_at, sqlite_where=turns.c.ended_at.is_(None))
Index("turns_of_principal", turns.c.principal_id, turns.c.turn_id)

token_days = Table(
    "token_days",
    metadata,
    _text("principal_id"),
    # Days since 1970-01-01 in UTC.
    _integer("day"),
    _integer("input_tokens"),
    _integer("output_tokens"),
    PrimaryKeyConstraint("principal_id", "day"),
    sqlite_strict=True,
)

bindings = Table(
    "bindings",
    metadata,
    _key("binding_id"),
    _text("operation_id"),
    _text("kind"),
    _text("provider"),
    _text("provider_id"),
    _text("profile"),
    _integer("contract_major"),
    _integer("contract_minor"),
    _text("contract_digest"),
    _text("implementation_version"),
    _text("artifact_digest"),
    _text("config_digest"),
    _text("instance_id"),
    _text("claims"),
    _integer("created_at"),
    _text("journal_id", default=_EMPTY),
    UniqueConstraint("operation_id"),
    sqlite_strict=True,
)

calls = Table(
    "calls",
    metadata,
    _key("call_id"),
    _text("turn_id", ForeignKey("turns.turn_id")),
    _integer("step"),
    _integer("position"),
    _text("tool"),
    _text("arguments"),
    _text("state"),
    _text("rule_id"),
    _text("approval_id", null=True),
    _text("operation_id", null=True),
    _text("process_id", null=True),
    _text("binding_id", ForeignKey("bindings.binding_id"), null=True),
    UniqueConstraint("turn_id", "step", "position"),
    UniqueConstraint("operation_id"),
    sqlite_strict=True,
)

approvals = Table(
    "approvals",
    metadata,
    _key("approval_id"),
    _text("conversation_id", ForeignKey("conversations.conversation_id")),
    _text("turn_id", ForeignKey("turns.turn_id")),
    _text("call_id", ForeignKey("calls.call_id")),
    _text("tool"),
    _text("subject_json"),
    _text("subject_summary"),
    _text("rule_id"),
    _text("requested_by"),
    _integer("created_at"),
    _integer("expires_at"),
    _text("outcome", null=True),
    _integer("resolved_at", null=True),
    _text("resolved_principal_id", null=True),
    _text("resolved_by"),
    _text("method"),
    _text("resolved_reason"),
    _text("agent", default=_DEFAULT_AGENT),
    _text("target", default=_EMPTY),
    _text("resolved_from", default=_EMPTY),
    _text("override_id", null=True),
    CheckConstraint("(outcome IS NULL) = (resolved_at IS NULL)"),
    sqlite_strict=True,
)
Index("approvals_of_conversation", approvals.c.conversation_id, approvals.c.approval_id)
Index("approvals_pending", approvals.c.approval_id, sqlite_where=approvals.c.outcome.is_(None))
Index(
    "approvals_pending_of_conversation",
    approvals.c.conversation_id,
    approvals.c.approval_id,
    sqlite_where=approvals.c.outcome.is_(None),
)
Index("approvals_expiry", approvals.c.expires_at, sqlite_where=approvals.c.outcome.is_(None))

evidence = Table(
    "evidence",
    metadata,
    _key("call_id", ForeignKey("calls.call_id")),
    _text("content"),
    _text("cause", null=True),
    _integer("exit_code", null=True),
    _integer("signal", null=True),
    _integer("duration", null=True),
    *(
        column
        for stream in ("stdout", "stderr")
        for column in (
            _integer(f"{stream}_bytes", null=True),
            _text(f"{stream}_sha256", null=True),
            Column(f"{stream}_head", LargeBinary, nullable=True),
            Column(f"{stream}_tail", LargeBinary, nullable=True),
        )
    ),
    sqlite_strict=True,
)

events = Table(
    "events",
    metadata,
    _text("conversation_id", ForeignKey("conversations.conversation_id")),
    _integer("sequence"),
    _integer("turn_number"),
    _text("turn_id", ForeignKey("turns.turn_id")),
    _text("kind"),
    _text("payload"),
    # The call whose result ends here: the text the model got is kept as evidence only.
    _text("evidence_call_id", ForeignKey("evidence.call_id"), null=True),
    _integer("created_at"),
    PrimaryKeyConstraint("conversation_id", "sequence"),
    sqlite_strict=True,
)
Index("events_of_turn", events.c.conversation_id, events.c.turn_number, events.c.sequence)

checkpoints = Table(
    "checkpoints",
    metadata,
    _key("conversation_id", ForeignKey("conversations.conversation_id")),
    _integer("through_turn"),
    _text("summary"),
    sqlite_strict=True,
)

# Each row's hash covers the row and the hash of the one before: see `domain/audit.py`.
audit = Table(
    "audit",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    _integer("at"),
    _text("kind"),
    _text("actor"),
    _text("subject"),
    _text("details"),
    _text("previous"),
    _text("hash"),
    sqlite_strict=True,
)
Index("audit_of_subject", audit.c.subject, audit.c.sequence)

overrides = Table(
    "overrides",
    metadata,
    _key("override_id"),
    _text("agent"),
    _text("rule"),
    _text("summary"),
    _text("approval_id", ForeignKey("approvals.approval_id"), null=True),
    _text("created_principal_id"),
    _text("created_by"),
    _text("created_method"),
    _text("created_from"),
    _text("created_reason"),
    _integer("created_at"),
    _integer("expires_at", null=True),
    _integer("revoked_at", null=True),
    _text("revoked_by"),
    _text("revoked_reason"),
    sqlite_strict=True,
)
Index(
    "overrides_in_force",
    overrides.c.agent,
    overrides.c.override_id,
    sqlite_where=overrides.c.revoked_at.is_(None),
)

principals = Table(
    "principals",
    metadata,
    _key("principal_id"),
    _text("name"),
    _text("roles"),
    _integer("created_at"),
    _integer("disabled_at", null=True),
    UniqueConstraint("name"),
    sqlite_strict=True,
)

tokens = Table(
    "tokens",
    metadata,
    _key("token_sha256"),
    _text("principal_id", ForeignKey("principals.principal_id")),
    _integer("created_at"),
    _integer("expires_at", null=True),
    _integer("revoked_at", null=True),
    _text("token_id", default=_EMPTY),
    _text("label", default=_EMPTY),
    sqlite_strict=True,
)
Index("tokens_of_principal", tokens.c.principal_id)
Index("tokens_by_id", tokens.c.token_id, unique=True)

for _table in (events, audit):
    for _verb in ("update", "delete"):
        _trigger = DDL(  # type: ignore[no-untyped-call]
            f"CREATE TRIGGER {_table.name}_no_{_verb} BEFORE {_verb.upper()} ON {_table.name}\n"
            f"BEGIN SELECT RAISE(ABORT, '{_table.name} is append-only'); END"
        )
        event.listen(_table, "after_create", _trigger)
