"""The statements, compiled once when the module is imported.

Invariant: every reading statement finds its rows by an index and returns a bounded number of them; no text
from outside is ever part of a statement.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, Table, bindparam, func, literal_column, select, union_all
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import BindParameter, ClauseElement

from tyrum_gateway.storage.tables import (
    approvals,
    audit,
    bindings,
    calls,
    checkpoints,
    conversations,
    events,
    evidence,
    overrides,
    principals,
    token_days,
    tokens,
    turns,
)

_DIALECT = SQLiteDialect_pysqlite(paramstyle="named")


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text with named parameters."""

    sql: str
    constants: Mapping[str, Any]
    """Parameters that the statement brings along."""

    def parameters(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete the caller's values."""
        return {**self.constants, **values} if self.constants else values

    def run(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Execute it on the writing connection."""
        return connection.execute(self.sql, self.parameters(values))


def compiled(statement: ClauseElement) -> Statement:
    """Compile a statement whose parameters are all named."""
    compiler = statement.compile(dialect=_DIALECT)
    assert isinstance(compiler, SQLCompiler)
    constants = {name: bind.value for name, bind in compiler.binds.items() if not bind.required}
    return Statement(str(compiler), constants)


def _insert(table: Table) -> Statement:
    return compiled(insert(table).values({column.name: bindparam(column.name) for column in table.columns}))


_size: BindParameter[int] = bindparam("size")

# --- writing ---

INSERT_CONVERSATION = _insert(conversations)
INSERT_TURN = _insert(turns)
INSERT_APPROVAL = _insert(approvals)
INSERT_OVERRIDE = _insert(overrides)
AUDIT_HEAD = compiled(
    select(audit.c.sequence, audit.c.hash).order_by(audit.c.sequence.desc()).limit(literal_column("1"))
)
INSERT_PRINCIPAL = _insert(principals)

_added = insert(token_days).values({column.name: bindparam(column.name) for column in token_days.columns})
ADD_TOKENS = compiled(
    _added.on_conflict_do_update(
        index_elements=["principal_id", "day"],
        set_={name: token_days.c[name] + _added.excluded[name] for name in ("input_tokens", "output_tokens")},
    ).returning((token_days.c.input_tokens + token_days.c.output_tokens).label("used"))
)
"""Add to a principal's day; tells the sum."""

OPEN_TURN = compiled(
    conversations.update()
    .where(conversations.c.conversation_id == bindparam("conversation"))
    .values(
        last_sequence=bindparam("new_last_sequence"),
        turn_count=bindparam("new_turn_count"),
        updated_at=bindparam("at"),
    )
)

TAKE_SEQUENCES = compiled(
    conversations.update()
    .where(conversations.c.conversation_id == bindparam("conversation"))
    .values(last_sequence=conversations.c.last_sequence + bindparam("count"), updated_at=bindparam("at"))
    .returning(conversations.c.last_sequence)
)

_move = (
    turns.update()
    .where(turns.c.turn_id == bindparam("turn"), turns.c.version == bindparam("expected"))
    .values(
        version=turns.c.version + literal_column("1"),
        **{
            name: bindparam(f"new_{name}")
            for name in (
                *("state", "step", "attempt", "reason", "ended_at"),
                *("input_tokens", "output_tokens", "usage_complete"),
                *("lost", "working_since", "changed_at", "answered_by"),
            )
        },
    )
)
MOVE_TURN = compiled(_move)
"""The comparison that guards every transition."""

_other = turns.alias("other")
END_TURN = compiled(
    _move.returning(
        select(_other.c.turn_id)
        .where(
            # Named by parameters: what is returned cannot tell the rows of both apart.
            _other.c.conversation_id == bindparam("conversation"),
            _other.c.ended_at.is_(None),
            _other.c.turn_id != bindparam("turn"),
        )
        .exists()
        .label("followed")
    )
)
"""The same for the end of a turn; tells whether another turn of the conversation is unfinished."""

RESOLVE_APPROVAL = compiled(
    approvals.update()
    .where(approvals.c.approval_id == bindparam("approval"), approvals.c.outcome.is_(None))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in (
                "outcome",
                "resolved_at",
                "resolved_principal_id",
                "resolved_by",
                "method",
                "resolved_reason",
                "resolved_from",
                "override_id",
            )
        }
    )
)

SUPERSEDE_APPROVAL = compiled(
    approvals.update()
    .where(approvals.c.approval_id == bindparam("approval"), approvals.c.outcome == bindparam("approved"))
    .values(outcome=bindparam("superseded"))
)
"""An approval that no longer fits what would run: who gave it, when and how stays."""

OVERRIDE_IN_FORCE = compiled(
    select(overrides.c.override_id).where(
        overrides.c.override_id == bindparam("override"),
        overrides.c.revoked_at.is_(None),
        overrides.c.expires_at.is_(None) | (overrides.c.expires_at > bindparam("at")),
    )
)

_earlier = turns.alias("earlier")
_counted = (
    select(literal_column("1"))
    .where(turns.c.principal_id == bindparam("principal"), turns.c.ended_at.is_(None))
    .limit(_size)
    .subquery()
)
ADMISSION = compiled(
    select(
        _earlier.c.turn_id,
        _earlier.c.sequence,
        _earlier.c.request_digest,
        conversations.c.principal_id.label("owner"),
        conversations.c.last_sequence,
        conversations.c.turn_count,
        select(func.count())
        .where(turns.c.conversation_id == bindparam("conversation"), turns.c.ended_at.is_(None))
        .scalar_subquery()
        .label("in_conversation"),
        select(func.count()).select_from(_counted).scalar_subquery().label("of_principal"),
    ).select_from(
        select(literal_column("1"))
        .subquery()
        .outerjoin(conversations, conversations.c.conversation_id == bindparam("conversation"))
        .outerjoin(
            _earlier,
            (_earlier.c.principal_id == bindparam("principal"))
            & (_earlier.c.request_id == bindparam("request")),
        )
    )
)
"""One row about a message: the turn of the same request, its conversation as it is, and how many turns are
unfinished in that conversation and, up to `size`, of the principal anywhere."""

PRINCIPAL_BY_NAME = compiled(
    select(principals.c.principal_id).where(principals.c.name == bindparam("wanted"))
)

# --- reading ---

# A turn that rests has no present step, so nothing is joined to it.
_turn_with_calls = (
    select(
        turns.c.turn_id,
        turns.c.conversation_id,
        turns.c.principal_id,
        turns.c.state,
        turns.c.created_at,
        turns.c.number,
        turns.c.version,
        turns.c.step,
        turns.c.attempt,
        turns.c.reason,
        turns.c.ended_at,
        turns.c.input_tokens,
        turns.c.output_tokens,
        turns.c.usage_complete,
        turns.c.lost,
        turns.c.working_since,
        turns.c.changed_at,
        turns.c.answered_by,
        calls.c.call_id,
        calls.c.position,
        calls.c.tool,
        calls.c.arguments,
        calls.c.state.label("call_state"),
        calls.c.rule_id,
        calls.c.approval_id,
        calls.c.operation_id,
        calls.c.process_id,
        calls.c.binding_id,
    )
    .select_from(
        turns.outerjoin(
            calls,
            (calls.c.turn_id == turns.c.turn_id)
            & (calls.c.step == turns.c.step)
            & turns.c.ended_at.is_(None),
        )
    )
    .order_by(calls.c.position)
)
TURN = compiled(_turn_with_calls.where(turns.c.turn_id == bindparam("turn")))
_next = (
    select(turns.c.turn_id)
    .where(turns.c.conversation_id == bindparam("conversation"), turns.c.ended_at.is_(None))
    .order_by(turns.c.number)
    .limit(literal_column("1"))
    .scalar_subquery()
)
NEXT_TURN = compiled(_turn_with_calls.where(turns.c.turn_id == _next))

TOKENS_OF_DAY = compiled(
    select((token_days.c.input_tokens + token_days.c.output_tokens).label("used")).where(
        token_days.c.principal_id == bindparam("principal"), token_days.c.day == bindparam("day")
    )
)

_before = turns.alias("before")
UNFINISHED = compiled(
    select(turns.c.conversation_id, turns.c.principal_id)
    .where(
        turns.c.ended_at.is_(None),
        turns.c.state != literal_column("'waiting_approval'"),
        ~select(_before.c.turn_id)
        .where(
            _before.c.conversation_id == turns.c.conversation_id,
            _before.c.ended_at.is_(None),
            _before.c.number < turns.c.number,
        )
        .exists(),
    )
    .order_by(turns.c.conversation_id)
)
"""Conversations whose next turn has work: one that waits holds back those behind it."""

_with_content = select(
    events.c.conversation_id,
    events.c.sequence,
    events.c.turn_number,
    events.c.turn_id,
    events.c.kind,
    events.c.payload,
    events.c.created_at,
    evidence.c.content,
).select_from(events.outerjoin(evidence, evidence.c.call_id == events.c.evidence_call_id))
EVENTS = compiled(
    _with_content.where(
        events.c.conversation_id == bindparam("conversation"), events.c.sequence > bindparam("after")
    )
    .order_by(events.c.sequence)
    .limit(_size)
)


def _leg(statement: Select[Any]) -> Select[Any]:
    return select(statement.subquery())


WINDOW = compiled(
    union_all(
        _leg(
            _with_content.where(
                events.c.conversation_id == bindparam("conversation"),
                events.c.turn_number < bindparam("number"),
            )
            .order_by(events.c.turn_number.desc(), events.c.sequence.desc())
            .limit(_size)
        ),
        _leg(
            _with_content.where(
                events.c.conversation_id == bindparam("conversation"),
                events.c.turn_number == bindparam("number"),
            )
        ),
    )
)
"""Newest events of earlier turns, and all events of the turn, in no particular order."""

CHECKPOINT = compiled(
    select(checkpoints.c.through_turn, checkpoints.c.summary).where(
        checkpoints.c.conversation_id == bindparam("conversation")
    )
)

_owner = select(principals.c.name).where(principals.c.principal_id == conversations.c.principal_id)
_opened = select(conversations, _owner.scalar_subquery().label("principal"))
CONVERSATION = compiled(_opened.where(conversations.c.conversation_id == bindparam("conversation")))
_conversations = _opened.order_by(conversations.c.conversation_id.desc()).limit(_size)
_conversations_before = _conversations.where(conversations.c.conversation_id < bindparam("before"))
_owned = conversations.c.principal_id == bindparam("owner")
NEWEST_CONVERSATIONS = compiled(_conversations)
CONVERSATIONS_BEFORE = compiled(_conversations_before)
NEWEST_CONVERSATIONS_OF = compiled(_conversations.where(_owned))
CONVERSATIONS_OF_BEFORE = compiled(_conversations_before.where(_owned))

_requester = select(principals.c.name).where(principals.c.principal_id == approvals.c.requested_by)
_asked = select(approvals, _requester.scalar_subquery().label("requester"))
APPROVAL = compiled(_asked.where(approvals.c.approval_id == bindparam("approval")))
_approvals = (
    _asked.where(approvals.c.approval_id > bindparam("after")).order_by(approvals.c.approval_id).limit(_size)
)
_of_conversation = approvals.c.conversation_id == bindparam("conversation")
_pending = approvals.c.outcome.is_(None)
APPROVALS = compiled(_approvals)
APPROVALS_PENDING = compiled(_approvals.where(_pending))
APPROVALS_OF = compiled(_approvals.where(_of_conversation))
APPROVALS_PENDING_OF = compiled(_approvals.where(_of_conversation, _pending))

NEXT_EXPIRY = compiled(select(func.min(approvals.c.expires_at).label("expires_at")).where(_pending))
EXPIRED = compiled(
    _asked.where(_pending, approvals.c.expires_at <= bindparam("now"))
    .order_by(approvals.c.expires_at)
    .limit(_size)
)

BINDING = compiled(select(bindings).where(bindings.c.binding_id == bindparam("binding")))
EXECUTED = compiled(
    select(bindings, calls.c.state.label("call_state"), calls.c.process_id, turns.c.principal_id)
    .join(calls, calls.c.operation_id == bindings.c.operation_id)
    .join(turns, turns.c.turn_id == calls.c.turn_id)
    .where(bindings.c.operation_id == bindparam("operation"))
)
NEWEST_BINDINGS = compiled(select(bindings).order_by(bindings.c.binding_id.desc()).limit(_size))
BINDINGS_BEFORE = compiled(
    select(bindings)
    .where(bindings.c.binding_id < bindparam("before"))
    .order_by(bindings.c.binding_id.desc())
    .limit(_size)
)

PRINCIPAL_BY_TOKEN = compiled(
    select(principals, tokens.c.token_id, tokens.c.expires_at)
    .join(tokens, tokens.c.principal_id == principals.c.principal_id)
    .where(
        tokens.c.token_sha256 == bindparam("token"),
        tokens.c.revoked_at.is_(None),
        tokens.c.expires_at.is_(None) | (tokens.c.expires_at > bindparam("now")),
        principals.c.disabled_at.is_(None),
    )
)
