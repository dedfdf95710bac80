"""The audit log over gRPC. Invariant: an export holds rows exactly as they are stored, in order."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tyrum.audit.v1.audit_pb2 import (
    AuditRow,
    ExportAuditRequest,
    ExportHeadsRequest,
    ListAuditRequest,
    SignedHead,
)
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find
from tyrum_gateway.cli.destination import destination
from tyrum_gateway.cli.output import Format, as_json, counted, emit_all, more, note, on_terminal
from tyrum_gateway.cli.progress import counting
from tyrum_gateway.cli.tables import Cell, Column, table
from tyrum_gateway.cli.terminal import shortened

__all__ = ["Chosen", "Files", "export", "find", "heads", "list_rows", "rows"]

_PAGE = 500
_COLUMNS = (
    Column("ROW"),
    Column("WHEN", leaves=1),
    Column("KIND"),
    Column("ACTOR", leaves=2),
    Column("SUBJECT"),
    Column("DETAILS", leaves=3, least=30),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows."""

    subject: str
    kind_prefix: str
    actor: str
    after: int
    """0: the newest."""
    limit: int


@dataclass(frozen=True, slots=True)
class Files:
    """Where an export goes; None is stdout for rows and nowhere for the others."""

    rows: Path | None
    heads: Path | None
    key: Path | None


async def list_rows(target: Target, chosen: Chosen, output: Format, *, wide: bool) -> None:
    """Print rows, oldest first."""
    found: list[AuditRow] = []
    names: dict[str, str] = {}
    token = ""
    newest_first = chosen.after == 0
    async with connect(target) as gateway:
        while len(found) < chosen.limit:
            page = await gateway.audit.ListAudit(
                ListAuditRequest(
                    page_size=min(_PAGE, chosen.limit - len(found)),
                    page_token=token,
                    newest_first=newest_first,
                    subject=chosen.subject,
                    kind_prefix=chosen.kind_prefix,
                    actor=chosen.actor,
                    after_sequence=chosen.after,
                ),
                metadata=gateway.metadata,
                timeout=DEADLINE,
            )
            found += page.rows
            names.update(page.actor_names)
            token = page.next_page_token
            if not token:
                break
    if newest_first:
        found.reverse()
    if output is not Format.TEXT:
        emit_all(found, output)
    elif not found:
        note("there are no such rows")
    else:
        _print(found, names, wide=wide)
    if token:
        note(more("older rows" if newest_first else "later rows", chosen.limit))


def _print(found: list[AuditRow], names: Mapping[str, str], *, wide: bool) -> None:
    table(
        _COLUMNS,
        [
            (
                str(row.sequence),
                Cell(when(row.at), when(row.at)[11:]),
                row.kind,
                names.get(row.actor, row.actor),
                row.subject,
                shortened(row.details, 100),
            )
            for row in found
        ],
        wide=wide,
    )


async def rows(gateway: Gateway, after: int = 0) -> AsyncIterator[AuditRow]:
    """Yield all rows after a number, up to the newest."""
    async for response in gateway.audit.ExportAudit(
        ExportAuditRequest(after_sequence=after), metadata=gateway.metadata
    ):
        for row in response.rows:
            yield row


async def heads(gateway: Gateway) -> tuple[str, list[SignedHead]]:
    """Read the public key and all signed heads."""
    key, found = "", list[SignedHead]()
    async for response in gateway.audit.ExportHeads(ExportHeadsRequest(), metadata=gateway.metadata):
        key = response.public_key or key
        found += response.heads
    return key, found


async def export(target: Target, files: Files, after: int) -> None:
    """Write rows, and heads and key where asked."""
    count = 0
    async with connect(target) as gateway:
        with ExitStack() as stack:
            # Heads first: one that is signed meanwhile would be over rows that are not in the export.
            if files.heads is not None or files.key is not None:
                key, signed = await heads(gateway)
                if files.key is not None:
                    stack.enter_context(destination(files.key)).write(key)
                if files.heads is not None:
                    file = stack.enter_context(destination(files.heads))
                    for head in signed:
                        file.write(_head(head) + "\n")
            out = stack.enter_context(destination(files.rows))
            alone = files.rows is not None or not on_terminal()
            progress = stack.enter_context(counting("rows of the audit log", alone=alone))
            async for row in rows(gateway, after):
                out.write(json.dumps(as_json(row)) + "\n")
                count += 1
                progress.step()
    if files.rows is not None:
        note(f"{counted(count, 'row')} written to {files.rows}")


def _head(head: SignedHead) -> str:
    fields = {
        "sequence": head.sequence,
        "hash": head.hash,
        "at": head.at,
        "key_id": head.key_id,
        "signature": head.signature,
    }
    return json.dumps(fields, separators=(",", ":"))


def when(at: int) -> str:
    """Write a row's time in UTC, to the second; one that no calendar has stays a number."""
    try:
        return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return str(at)
