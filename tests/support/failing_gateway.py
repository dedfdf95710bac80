"""A gateway whose lists fail in a way that nobody foresaw; composed for tests only.

Run as `python failing_gateway.py --state-dir DIR --config FILE`.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.audit import AuditLog
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.ports import OverrideStore
from tyrum_gateway.domain.run import RunLog
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.audit_log import SqliteAuditLog
from tyrum_gateway.storage.overrides import SqliteOverrides
from tyrum_gateway.storage.principals import SqlitePrincipals
from tyrum_gateway.storage.run_log import SqliteRunLog

CAUSE = "no such column: planted-canary"
"""What the failure says; it belongs into the log and nowhere else."""


class FailingStore(SqliteStore):
    """Works but for its lists."""

    @property
    def principals(self) -> SqlitePrincipals:
        """Those that fail."""
        return FailingPrincipals(self._writer, self._reads)

    async def conversations(self, *_: Any, **__: Any) -> NoReturn:
        """Fail."""
        raise RuntimeError(CAUSE)

    async def approvals(self, *_: Any, **__: Any) -> NoReturn:
        """Fail."""
        raise RuntimeError(CAUSE)

    async def bindings(self, *_: Any, **__: Any) -> NoReturn:
        """Fail."""
        raise RuntimeError(CAUSE)

    @property
    def overrides(self) -> OverrideStore:
        """Work but for their list."""
        return _FailingOverrides(self._writer, self._reads)

    @property
    def audit(self) -> AuditLog:
        """Read it, but not in lists."""
        return _FailingAudit(self._reads)

    @property
    def runs(self) -> RunLog:
        """Fail in lists."""
        return _FailingRuns(self._reads)


class FailingPrincipals(SqlitePrincipals):
    """Works but for its list."""

    async def accounts(self, *_: Any, **__: Any) -> NoReturn:
        """Fail."""
        raise RuntimeError(CAUSE)


class _FailingOverrides(SqliteOverrides):
    asked = False
    """By the start, which reads what is in force once."""

    async def page(self, *arguments: Any, **options: Any) -> Sequence[Override]:
        if _FailingOverrides.asked:
            raise RuntimeError(CAUSE)
        _FailingOverrides.asked = True
        return await super().page(*arguments, **options)


class _FailingAudit(SqliteAuditLog):
    async def rows(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(CAUSE)


class _FailingRuns(SqliteRunLog):
    async def entries(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(CAUSE)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    asyncio.run(
        serve(settings, version="test", ready=lambda _: None, seams=Seams(open_store=FailingStore.open))
    )


if __name__ == "__main__":
    main()
