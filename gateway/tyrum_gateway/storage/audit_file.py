"""Reading an audit log without a gateway: from a database, read-only, or from exported JSON lines.

Invariant: nothing is written and nothing is trusted: rows come out as they lie there, for the verifier.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tyrum_gateway.domain.audit import AuditRow, SignedHead
from tyrum_gateway.domain.audit_verify import Report, verify
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.audit_heads import HeadsFile
from tyrum_gateway.storage.audit_key import LARGEST_KEY, VerifyingKey
from tyrum_gateway.storage.connection import BUSY_MILLISECONDS, failure

_TEXTS = ("kind", "actor", "subject", "details", "previous", "hash")
_COLUMNS = ("sequence", "at", *_TEXTS)
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM audit NOT INDEXED ORDER BY sequence"  # noqa: S608 - constants only
"""By the table itself: an index may have been made to leave rows out."""


def verify_database(database: Path, heads: Path, key: Path) -> Report:
    """Verify the log in a database, of a gateway that runs or of none.

    Args:
        database: The SQLite file, with its log beside it if it has one.
        heads: The file of signed heads.
        key: The public key in PEM.

    Raises:
        StateUnusable: One of the files cannot be read as what it is.
    """
    # Heads first: one that is signed meanwhile would be over rows that were not read.
    signed = list(read_heads(heads))
    return verify(database_rows(database), signed, read_key(key).authentic)


def read_key(path: Path) -> VerifyingKey:
    """Read a public key.

    Raises:
        StateUnusable: The file holds none.
    """
    try:
        with path.open("rb") as file:
            return VerifyingKey.of_pem(file.read(LARGEST_KEY))
    except OSError as error:
        raise StateUnusable(f"cannot read the key `{path}`: {error.strerror}") from error
    except ValueError as error:
        raise StateUnusable(f"`{path}` holds no Ed25519 public key in PEM") from error


def read_heads(path: Path) -> Iterator[SignedHead]:
    """Yield the heads of a file.

    Raises:
        StateUnusable: The file cannot be read.
    """
    try:
        yield from HeadsFile(path).read()
    except OSError as error:
        raise StateUnusable(f"cannot read the heads `{path}`: {error.strerror}") from error


def database_rows(path: Path) -> Iterator[AuditRow]:
    """Yield all rows of a database, in order.

    Raises:
        StateUnusable: The file cannot be read, or holds no audit log with a chain.
    """
    log = path.with_name(f"{path.name}-wal")
    logged = log.exists()
    try:
        with closing(open_database(path)) as connection:
            # Text that is no Unicode was put there by somebody else: the verifier must see it, not stumble.
            connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            for row in connection.execute(_QUERY):
                if not _stored(row):
                    raise StateUnusable(f"`{path}`: audit row {row[0]!r} holds what no gateway writes")
                yield AuditRow(*row)
        if log.exists() and not logged:
            raise StateUnusable(f"a gateway began to write to `{path}` meanwhile: verify again")
    except sqlite3.OperationalError as error:
        raise StateUnusable(f"`{path}` holds no audit log that can be read: {error}") from error
    except sqlite3.Error as error:
        raise failure(path, error) from error


def _stored(row: tuple[object, ...]) -> bool:
    """Tell whether a row has the types of its columns, which SQLite checks in a table of the gateway only."""
    sequence, at, *texts = row
    return type(sequence) is type(at) is int and all(isinstance(text, str) for text in texts)


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database to read, of a gateway that runs or of none; nothing appears beside it.

    Raises:
        StateUnusable: There is no such file.
    """
    if not path.is_file():
        raise StateUnusable(f"no database `{path}`")
    logged = path.with_name(f"{path.name}-wal").exists()
    # Beside a database at rest, SQLite would leave a log and its index, as files of whoever verifies: the
    # next gateway may not be allowed to open them.
    how = "mode=ro" if logged else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_MILLISECONDS / 1_000)


def exported_rows(path: Path) -> Iterator[AuditRow]:
    """Yield the rows of an export, in the order of its lines.

    Raises:
        StateUnusable: The file cannot be read, or a line is no row; the line is named.
    """
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                yield _row(line, f"{path}:{number}")
    except OSError as error:
        raise StateUnusable(f"cannot read `{path}`: {error.strerror}") from error


def _row(line: str, place: str) -> AuditRow:
    try:
        value: Any = json.loads(line, object_pairs_hook=_members)
        if set(value) != set(_COLUMNS):
            raise ValueError("other members")
        texts = [value[name] for name in _TEXTS]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("other types")
        return AuditRow(_number(value["sequence"]), _number(value["at"]), *texts)
    except (ValueError, TypeError, RecursionError) as error:
        raise StateUnusable(f"{place}: not a row of an audit export") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a member that is there twice: other readers would show the one that is not verified."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member twice")
    return members


def _number(value: object) -> int:
    """Read a number of 64 bits, which protobuf writes as text, in the one form that it is written in."""
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int or str(number) != str(value):
        raise ValueError("other numbers")
    return number
