"""A gateway that counts commits, rows and calls of its provider; composed for tests only.

Run as `python counting_gateway.py --state-dir DIR --config FILE`. Whenever a message is about to be accepted,
one JSON line with the counters is appended to `counters` beside the state directory.
"""

import argparse
import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.audit import AuditLog
from tyrum_gateway.domain.commit import Acceptance, Accepted
from tyrum_gateway.domain.ids import ConversationId
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.audit_log import SqliteAuditLog
from tyrum_provider_host.channel_client import ProviderChannel

_CALLS = Counter[str]()
_unary = ProviderChannel.unary


async def _counted(channel: ProviderChannel, method: Any, request: Any, *, name: str, **options: Any) -> Any:
    _CALLS[name] += 1
    return await _unary(channel, method, request, name=name, **options)


class CountingStore(SqliteStore):
    """Notes the counters at each message, without what no turn causes: tokens and the watch over expiry."""

    counters: Path
    _aside = 0
    _followed = 0

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """Note, then accept."""
        now = self.statistics
        line = {
            "commits": now.commits,
            "rows": now.rows_read - self._aside,
            "followed": self._followed,
            "calls": dict(_CALLS),
        }
        with self.counters.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return await super().accept(acceptance)

    async def principal_by_token(self, token_sha256: str, now: datetime) -> Principal | None:
        """Find it, and count its row apart."""
        found = await super().principal_by_token(token_sha256, now)
        self._aside += found is not None
        return found

    async def next_expiry(self) -> datetime | None:
        """Look it up, and count its row apart: the watch looks now and then, whatever turns do."""
        due = await super().next_expiry()
        self._aside += 1
        return due

    @property
    def audit(self) -> AuditLog:
        """Read it, and count its head apart: it is looked up for signing, whatever turns do."""
        return _AuditAside(self)

    async def events(self, conversation_id: ConversationId, after: int, limit: int) -> Sequence[Event]:
        """Read, and count what followers read."""
        found = await super().events(conversation_id, after, limit)
        self._followed += len(found)
        return found


class _AuditAside(SqliteAuditLog):
    def __init__(self, store: CountingStore) -> None:
        super().__init__(store._reads)
        self._store = store

    async def head(self) -> tuple[int, str] | None:
        found = await super().head()
        self._store._aside += found is not None
        return found


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    CountingStore.counters = chosen.state_dir.parent / "counters"
    ProviderChannel.unary = _counted  # type: ignore[assignment, method-assign]
    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    asyncio.run(
        serve(settings, version="test", ready=lambda _: None, seams=Seams(open_store=CountingStore.open))
    )


if __name__ == "__main__":
    main()
