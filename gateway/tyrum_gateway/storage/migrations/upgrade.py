"""Bring a database to the newest schema, in one transaction: after a failure it is what it was before."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from tyrum_gateway.domain.errors import DiskFull, StateUnusable
from tyrum_gateway.storage.connection import failure, open_writer


def upgrade(path: Path) -> None:
    """Apply the migrations that the database lacks.

    Raises:
        StateUnusable: A migration failed; nothing of it was kept.
    """
    raw = open_writer(path)
    # Alembic reads rows as tuples.
    raw.row_factory = None
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
    # The driver opens no transactions by itself: schema changes are part of ours.
    event.listen(engine, "begin", _begin)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except (SQLAlchemyError, CommandError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.Error) and isinstance(full := failure(path, cause), DiskFull):
            raise full from error
        raise StateUnusable(
            f"the database {path} could not be migrated: {error}; it was left as it was", file=str(path)
        ) from error
    finally:
        engine.dispose()
        raw.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
