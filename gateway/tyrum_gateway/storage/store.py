"""The store port on one SQLite file.

Invariant: every write is one commit of the writing thread, every read is query-only and bounded by an index.
"""

import asyncio
import functools
import sqlite3
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Self

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.audit import AuditLog
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Acceptance, Accepted, AuditEntry, Commit, Committed, Conversation
from tyrum_gateway.domain.errors import NotFound
from tyrum_gateway.domain.ids import ApprovalId, BindingId, ConversationId, PrincipalId, TurnId
from tyrum_gateway.domain.past_turn import past_turns
from tyrum_gateway.domain.ports import BoundOperation, ExecutedCall, OverrideStore, Store, TurnView, Window
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.domain.run import RunLog
from tyrum_gateway.domain.token_day import TokenDay
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import damaged_turn, principal_writes, rows, statements, writes
from tyrum_gateway.storage.audit_log import SqliteAuditLog
from tyrum_gateway.storage.backlog import Backlog, backlog
from tyrum_gateway.storage.connection import open_writer
from tyrum_gateway.storage.log_room import make_room
from tyrum_gateway.storage.overrides import SqliteOverrides
from tyrum_gateway.storage.principals import SqlitePrincipals
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.run_log import SqliteRunLog
from tyrum_gateway.storage.schema import prepare
from tyrum_gateway.storage.statistics import Statistics
from tyrum_gateway.storage.times import from_microseconds, to_days, to_microseconds
from tyrum_gateway.storage.writer import Writer


class SqliteStore(Store):
    """Implements `Store`. One per file and process; use as a context manager or call `close`.

    A caller that is cancelled during a write loses the answer, not the write. Every method raises
    `StateUnusable` when the database fails or does not answer, and `Draining` once it closes.
    """

    def __init__(self, writer: Writer, reads: Reads) -> None:
        self._writer = writer
        self._reads = reads

    @classmethod
    async def open(cls, path: Path, *, log_room: bool = False) -> Self:
        """Open the database, creating or migrating it first; an existing one is copied before a migration.

        Args:
            path: The file.
            log_room: Whether to grow the log ahead of the commits: worth it for who is to serve.

        Raises:
            StateUnusable: The file is damaged, another program's, of a newer version, or cannot be created.
                It is left as it was.
        """
        path, connection = await asyncio.to_thread(_open, path, log_room=log_room)
        return cls(Writer(connection, path), Reads(path))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what is under way, then close; everything later is refused."""
        # The writer goes last: whoever closes last folds the log into the file.
        try:
            await self._reads.close()
        finally:
            await self._writer.close()

    @property
    def audit(self) -> AuditLog:
        """The audit log, for reading."""
        return SqliteAuditLog(self._reads)

    @property
    def runs(self) -> RunLog:
        """The run registry, for reading."""
        return SqliteRunLog(self._reads)

    @property
    def overrides(self) -> OverrideStore:
        """See `Store.overrides`."""
        return SqliteOverrides(self._writer, self._reads)

    @property
    def principals(self) -> SqlitePrincipals:
        """Principals and tokens, for those who manage them."""
        return SqlitePrincipals(self._writer, self._reads)

    async def backlog(self) -> Backlog:
        """Count what waits."""
        return await backlog(self._reads)

    @property
    def statistics(self) -> Statistics:
        """What this store has done since it was opened."""
        return Statistics(
            commits=self._writer.commits,
            transactions=self._writer.transactions,
            reads=self._reads.reads,
            rows_read=self._reads.rows,
        )

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """See `Store.accept`; a repeat returns the turn as it is now."""
        return await self._writer.run(functools.partial(writes.accept, acceptance=acceptance))

    async def commit(self, commit: Commit) -> Committed:
        """See `Store.commit`."""
        return await self._writer.run(functools.partial(writes.commit, change=commit))

    def follow(self, unheard: Callable[[Accepted | Committed], None]) -> None:
        """See `Store.follow`."""

        def applied(result: object) -> None:
            if isinstance(result, Accepted | Committed):
                unheard(result)

        self._writer.unheard = applied

    async def record(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """See `Store.record`."""
        await self._writer.run(functools.partial(writes.record, entries=entries, at=at))

    async def abandon(self, conversation_id: ConversationId, reason: str, at: datetime) -> bool:
        """See `Store.abandon`."""
        return await self._writer.run(
            functools.partial(damaged_turn.abandon, conversation_id=conversation_id, reason=reason, at=at)
        )

    async def rewrite(self) -> None:
        """Write what is there already: it tells whether the database takes writes, and counts as no commit.

        Raises:
            StateUnusable: It takes none: the disk is full, say, or does not answer.
        """
        await self._writer.run(writes.rewrite)

    async def ensure_principal(
        self, principal_id: PrincipalId, name: str, roles: Sequence[str], token_sha256: str, now: datetime
    ) -> PrincipalId:
        """See `Store.ensure_principal`."""
        return await self._writer.run(
            functools.partial(
                principal_writes.ensure,
                principal_id=principal_id,
                name=name,
                roles=roles,
                token_sha256=token_sha256,
                now=now,
            )
        )

    async def turn(self, turn_id: TurnId) -> TurnView:
        """See `Store.turn`."""
        (found,) = await self._reads.fetch((statements.TURN, {"turn": turn_id}))
        if not found:
            raise NotFound("turn", turn_id)
        return rows.turn_view(found)

    async def next_turn(self, conversation_id: ConversationId) -> Turn | None:
        """See `Store.next_turn`."""
        (found,) = await self._reads.fetch((statements.NEXT_TURN, {"conversation": conversation_id}))
        return rows.turn_view(found).turn if found else None

    async def token_day(self, principal_id: PrincipalId, day: date) -> TokenDay:
        """See `Store.token_day`."""
        parameters = {"principal": principal_id, "day": to_days(day)}
        (found,) = await self._reads.fetch((statements.TOKENS_OF_DAY, parameters))
        return TokenDay(principal_id, day, found[0]["used"] if found else 0)

    async def unfinished(self) -> Sequence[tuple[ConversationId, PrincipalId]]:
        """See `Store.unfinished`."""
        (found,) = await self._reads.fetch((statements.UNFINISHED, {}))
        return [(ConversationId(row["conversation_id"]), PrincipalId(row["principal_id"])) for row in found]

    async def window(self, turn: Turn, size: int) -> Window:
        """See `Store.window`.

        Two statements without a transaction around them suffice: earlier turns are final, and the checkpoint
        changes only when a turn ends, which the turns of a conversation do one after another.
        """
        conversation = {"conversation": turn.conversation_id}
        found, checkpoints = await self._reads.fetch(
            (statements.WINDOW, {**conversation, "number": turn.number, "size": size}),
            (statements.CHECKPOINT, conversation),
        )
        ordered = sorted(found, key=lambda row: (row["turn_number"], row["sequence"]))
        earlier = tuple(rows.event(row) for row in ordered if row["turn_number"] < turn.number)
        own = tuple(rows.event(row) for row in ordered if row["turn_number"] == turn.number)
        # The first event of a conversation is the message of its first turn.
        complete = turn.number == 1 or (bool(earlier) and earlier[0].sequence == 1)
        checkpoint = Checkpoint()
        if checkpoints:
            checkpoint = Checkpoint(checkpoints[0]["through_turn"], checkpoints[0]["summary"])
        return Window(checkpoint, past_turns(earlier), complete, own)

    async def events(self, conversation_id: ConversationId, after: int, limit: int) -> Sequence[Event]:
        """See `Store.events`."""
        (found,) = await self._reads.fetch(
            (statements.EVENTS, {"conversation": conversation_id, "after": after, "size": limit})
        )
        return [rows.event(row) for row in found]

    async def conversation(self, conversation_id: ConversationId) -> Conversation:
        """See `Store.conversation`."""
        (found,) = await self._reads.fetch((statements.CONVERSATION, {"conversation": conversation_id}))
        if not found:
            raise NotFound("conversation", conversation_id)
        return rows.conversation(found[0])

    async def conversations(
        self, owner: PrincipalId | None, before: ConversationId | None, limit: int
    ) -> Sequence[Conversation]:
        """See `Store.conversations`."""
        match owner, before:
            case None, None:
                statement = statements.NEWEST_CONVERSATIONS
            case None, _:
                statement = statements.CONVERSATIONS_BEFORE
            case _, None:
                statement = statements.NEWEST_CONVERSATIONS_OF
            case _:
                statement = statements.CONVERSATIONS_OF_BEFORE
        parameters = {"owner": owner, "before": before, "size": limit}
        (found,) = await self._reads.fetch((statement, parameters))
        return [rows.conversation(row) for row in found]

    async def approval(self, approval_id: ApprovalId) -> Approval:
        """See `Store.approval`."""
        (found,) = await self._reads.fetch((statements.APPROVAL, {"approval": approval_id}))
        if not found:
            raise NotFound("approval", approval_id)
        return rows.approval(found[0])

    async def approvals(
        self,
        *,
        conversation_id: ConversationId | None,
        include_resolved: bool,
        after: ApprovalId | None,
        limit: int,
    ) -> Sequence[Approval]:
        """See `Store.approvals`."""
        if conversation_id is None:
            statement = statements.APPROVALS if include_resolved else statements.APPROVALS_PENDING
        else:
            statement = statements.APPROVALS_OF if include_resolved else statements.APPROVALS_PENDING_OF
        parameters = {"conversation": conversation_id, "after": after or "", "size": limit}
        (found,) = await self._reads.fetch((statement, parameters))
        return [rows.approval(row) for row in found]

    async def next_expiry(self) -> datetime | None:
        """See `Store.next_expiry`."""
        (found,) = await self._reads.fetch((statements.NEXT_EXPIRY, {}))
        first = found[0]["expires_at"]
        return None if first is None else from_microseconds(first)

    async def expired(self, now: datetime, limit: int) -> Sequence[Approval]:
        """See `Store.expired`."""
        (found,) = await self._reads.fetch((statements.EXPIRED, {"now": to_microseconds(now), "size": limit}))
        return [rows.approval(row) for row in found]

    async def binding(self, binding_id: BindingId) -> Binding:
        """See `Store.binding`."""
        (found,) = await self._reads.fetch((statements.BINDING, {"binding": binding_id}))
        if not found:
            raise NotFound("binding", binding_id)
        return rows.bound_operation(found[0]).binding

    async def executed(self, operation_id: str) -> ExecutedCall | None:
        """See `Store.executed`."""
        (found,) = await self._reads.fetch((statements.EXECUTED, {"operation": operation_id}))
        return rows.executed_call(found[0]) if found else None

    async def bindings(self, before: str, limit: int) -> Sequence[BoundOperation]:
        """See `Store.bindings`."""
        query = (
            (statements.BINDINGS_BEFORE, {"before": before, "size": limit})
            if before
            else (statements.NEWEST_BINDINGS, {"size": limit})
        )
        (found,) = await self._reads.fetch(query)
        return [rows.bound_operation(row) for row in found]

    async def principal_by_token(self, token_sha256: str, now: datetime) -> Principal | None:
        """See `Store.principal_by_token`."""
        (found,) = await self._reads.fetch(
            (statements.PRINCIPAL_BY_TOKEN, {"token": token_sha256, "now": to_microseconds(now)})
        )
        return rows.principal(found[0]) if found else None


def _open(path: Path, *, log_room: bool) -> tuple[Path, sqlite3.Connection]:
    path = path.absolute()
    prepare(path)
    connection = open_writer(path)
    try:
        if log_room:
            make_room(connection, path)
    except BaseException:
        connection.close()
        raise
    return path, connection
