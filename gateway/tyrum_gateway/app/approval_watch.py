"""Watching the inbox: what waits, then every approval that is asked or resolved.

Invariants: what a watcher gets is read from rows, by its own position in the audit log; a signal only says
when to look again. A watcher holds at most one page, and its going away resolves nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.audit import AuditLog
from tyrum_gateway.domain.errors import Draining
from tyrum_gateway.domain.ids import ApprovalId, ConversationId
from tyrum_gateway.domain.ports import Store

PAGE = 100
"""Most rows of the log that are read at a time."""

ASKED = 32
"""Most approvals that are read at a time: one has up to 2 MB."""

LOOK_SECONDS = 30.0
"""A watch looks at the log also unsignalled: it is never far behind, however much else is recorded."""

_KINDS = frozenset({"approval.requested", "approval.resolved"})
"""Audit entries about what a watcher wants to know."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything that waited when the watch began has been given."""


class ApprovalSignal:
    """Wakes those who watch approvals."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        self.closed = False

    def changed(self) -> None:
        """Note that an approval was asked or resolved."""
        for watcher in self._watchers:
            watcher.set()

    def close(self) -> None:
        """End all watches: the gateway stops."""
        self.closed = True
        self.changed()

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever there may be something new."""
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            yield event
        finally:
            self._watchers.discard(event)


async def watch_approvals(
    store: Store, log: AuditLog, signal: ApprovalSignal, conversation_id: ConversationId | None
) -> AsyncGenerator[Approval | CaughtUp, None]:
    """Yield the approvals that wait, `CaughtUp`, then those that are asked or resolved, as they are then.

    Args:
        store: Holds the approvals.
        log: Tells in which order they changed.
        signal: Wakes this watch.
        conversation_id: Only approvals of this conversation; None watches all.

    Raises:
        Draining: The gateway is shutting down.
    """
    with signal.subscribe() as woken:
        head = await log.head()
        position = head[0] if head else 0
        last: ApprovalId | None = None
        while True:
            page = await store.approvals(
                conversation_id=conversation_id, include_resolved=False, after=last, limit=ASKED
            )
            for approval in page:
                last = approval.approval_id
                yield approval
            if len(page) < ASKED:
                break
        yield CaughtUp()
        while True:
            closed = signal.closed  # asked first: what was recorded before the close is still handed out
            woken.clear()
            rows = await log.rows(position, PAGE)
            for row in rows:
                position = row.sequence
                if row.kind in _KINDS:
                    approval = await store.approval(ApprovalId(row.subject))
                    if conversation_id in {None, approval.conversation_id}:
                        yield approval
            if len(rows) < PAGE:
                if closed:
                    raise Draining("the gateway is shutting down: reconnect")
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await woken.wait()
