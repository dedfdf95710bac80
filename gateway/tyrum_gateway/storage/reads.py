"""Query-only connections for reading, from SQLAlchemy's async engine over aiosqlite.

Invariant: nothing here can write, and no call into SQLite happens on the loop's thread. A statement that was
compiled once runs in one hop to the connection's thread; each sees everything acknowledged before it began.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import aiosqlite
from sqlalchemy import URL, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from tyrum_gateway.domain.errors import Draining, StateUnusable
from tyrum_gateway.storage.connection import BUSY_MILLISECONDS, READER, configure, failure
from tyrum_gateway.storage.statements import Statement

ANSWER_SECONDS = 10.0
"""How long a reader waits, for a connection and for the rows."""

_CONNECTIONS = 4


class Reads:
    """Runs reading statements."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = _engine(path)
        # Connections stay checked out between reads: the pool's own ceremony costs as much as a read.
        self._free: list[tuple[AsyncConnection, aiosqlite.Connection]] = []
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._closing = False
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.reads = 0
        self.rows = 0

    async def fetch(self, *queries: tuple[Statement, dict[str, Any]]) -> list[Sequence[sqlite3.Row]]:
        """Run statements one after another on one connection and return the rows of each.

        Raises:
            Draining: The store is closing.
            StateUnusable: The database failed or did not answer in time.
        """
        if self._closing:
            raise Draining("the gateway is shutting down")
        self._active += 1
        self._idle.clear()
        try:
            results = await self._fetch(queries)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()
        self.reads += 1
        self.rows += sum(map(len, results))
        return results

    async def close(self) -> None:
        """Wait for the reads under way, then close the connections; again is harmless."""
        self._closing = True
        async with asyncio.timeout(2 * ANSWER_SECONDS):
            await self._idle.wait()
        while self._free:
            await self._free.pop()[0].close()
        await self._engine.dispose()

    async def _fetch(
        self, queries: Sequence[tuple[Statement, dict[str, Any]]]
    ) -> list[Sequence[sqlite3.Row]]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._slots, self._connection() as driver:
                return [
                    list(await driver.execute_fetchall(statement.sql, statement.parameters(values)))
                    for statement, values in queries
                ]
        except sqlite3.Error as error:
            raise failure(self._path, error) from error
        except DBAPIError as error:
            raise StateUnusable(
                f"the database {self._path} cannot be opened: {error.orig}", file=str(self._path)
            ) from error
        except (TimeoutError, PoolTimeoutError) as error:
            raise StateUnusable(
                f"the database {self._path} did not answer within {ANSWER_SECONDS:.0f} s",
                file=str(self._path),
            ) from error

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncGenerator[aiosqlite.Connection, None]:
        """Lend a connection; a read that did not end well is interrupted, for whoever gets it next."""
        connection, driver = self._free.pop() if self._free else await self._connected()
        try:
            yield driver
        except BaseException:
            await driver.interrupt()
            await asyncio.shield(connection.close())
            raise
        self._free.append((connection, driver))

    async def _connected(self) -> tuple[AsyncConnection, aiosqlite.Connection]:
        connection = await self._engine.connect()
        driver = (await connection.get_raw_connection()).driver_connection
        assert isinstance(driver, aiosqlite.Connection)
        return connection, driver


def _engine(path: Path) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={
            "isolation_level": None,
            "cached_statements": 256,
            "timeout": BUSY_MILLISECONDS / 1_000,
        },
        poolclass=AsyncAdaptedQueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=ANSWER_SECONDS,
        # Nothing is ever left open: each statement is its own read transaction.
        pool_reset_on_return=None,
        isolation_level="AUTOCOMMIT",
    )

    def prepare(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        try:

            def first_row(sql: str) -> tuple[object, ...] | None:
                cursor.execute(sql)
                row: tuple[object, ...] | None = cursor.fetchone() if cursor.description else None
                return row

            configure(first_row, READER, path)
        finally:
            cursor.close()
        driver = connection.driver_connection
        assert isinstance(driver, aiosqlite.Connection)
        driver.row_factory = sqlite3.Row

    event.listen(engine.sync_engine, "connect", prepare)
    return engine
