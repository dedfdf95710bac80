"""Verifying the audit log, of a gateway or in files. Invariant: it is verified here; nobody is believed."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from tyrum_gateway.cli import audit_log
from tyrum_gateway.cli.connection import Target, connect, find
from tyrum_gateway.cli.failure import ExitCode, Failure, from_error
from tyrum_gateway.cli.output import Format, emit, fields, say
from tyrum_gateway.cli.progress import counting
from tyrum_gateway.cli.state_dir import chosen_state_dir
from tyrum_gateway.domain.audit import AuditRow, SignedHead
from tyrum_gateway.domain.audit_verify import Report, Verification
from tyrum_gateway.domain.audit_verify import verify as verify_log
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.audit_agreement import Around, look_around
from tyrum_gateway.storage.audit_file import database_rows, exported_rows, read_heads, read_key
from tyrum_gateway.storage.audit_key import VerifyingKey

_SHOWN = 50
_VERIFYING = "verifying rows of the audit log"


@dataclass(frozen=True, slots=True)
class Sources:
    """What is verified against what; None is the state directory's or the gateway's own."""

    offline: bool
    database: Path | None
    rows: Path | None
    heads: Path | None
    key: Path | None


def verify(sources: Sources, state_dir: Path | None, address: str | None, output: Format) -> None:
    """Verify, print the report, and exit with 1 when anything was found or no head proves anything.

    Raises:
        Failure: A source cannot be read.
    """
    if sources.database is not None and sources.rows is not None:
        raise Failure("--database and --rows exclude each other", code=ExitCode.USAGE)
    try:
        if sources.offline or sources.database is not None or sources.rows is not None:
            report, around = _offline(sources, chosen_state_dir(state_dir))
        else:
            report, around = asyncio.run(_online(sources, find(state_dir, address))), None
    except StateUnusable as error:
        raise from_error(error) from error
    _show(report, around, trusted=sources.key is not None, output=output)
    if not report.intact or not report.heads or not _sound(around):
        raise typer.Exit(ExitCode.FAILURE)


def _offline(sources: Sources, state_dir: Path) -> tuple[Report, Around | None]:
    signed = list(read_heads(sources.heads or state_dir / "audit/heads.jsonl"))
    key = read_key(sources.key or state_dir / "audit/key.pub")
    rows: Iterable[AuditRow]
    database: Path | None = None
    if sources.rows is not None:
        rows = exported_rows(sources.rows)
    else:
        database = sources.database or state_dir / "tyrum.sqlite3"
        rows = database_rows(database)
    with counting(_VERIFYING, _last(signed)) as progress:
        report = verify_log(progress.each(rows), signed, key.authentic)
    return report, None if database is None else look_around(database)


async def _online(sources: Sources, target: Target) -> Report:
    async with connect(target) as gateway:
        pem, told = await audit_log.heads(gateway)
        signed = [SignedHead(head.sequence, head.hash, head.at, head.key_id, head.signature) for head in told]
        if sources.heads is not None:
            signed = list(read_heads(sources.heads))
        key = read_key(sources.key) if sources.key is not None else _told(pem)
        verification = Verification(signed, key.authentic)
        with counting(_VERIFYING, _last(signed)) as progress:
            async for row in audit_log.rows(gateway):
                verification.feed(
                    AuditRow(
                        row.sequence,
                        row.at,
                        row.kind,
                        row.actor,
                        row.subject,
                        row.details,
                        row.previous,
                        row.hash,
                    )
                )
                progress.step()
        return verification.finish()


def _last(signed: list[SignedHead]) -> int:
    """Return the row of the last head: about as many rows as there are."""
    return max((head.sequence for head in signed), default=0)


def _told(pem: str) -> VerifyingKey:
    try:
        return VerifyingKey.of_pem(pem.encode())
    except ValueError as error:
        raise Failure("the gateway answered with no Ed25519 public key in PEM") from error


def _sound(around: Around | None) -> bool:
    return around is None or not (around.schema or around.different)


def _verdict(report: Report, around: Around | None) -> str:
    if not report.intact or not _sound(around):
        beside = 0 if around is None else len(around.schema) + around.different
        return f"NOT INTACT, found: {report.found + beside}"
    return "intact" if report.heads else "NOT PROVED: there is no signed head, so all of it can be rewritten"


def _begun(report: Report) -> str:
    """Say what the log tells of heads that are not there."""
    told = [
        f"at row {row}, where a start found none: earlier ones are gone, or kept aside"
        for row in report.begun
    ]
    told += [f"no head is left of the start at row {row}, which signs one" for row in report.unsigned_starts]
    return "; ".join(told[:3]) + (f"; {len(told) - 3} more" if len(told) > 3 else "")


def _told_of(around: Around | None) -> str:
    """Say what was looked at besides the log."""
    if around is None:
        return "not looked at: schema, indexes, events and approvals need --offline or --database"
    old = "" if around.current else f" (schema version {around.version}: not compared)"
    if around.schema or around.different:
        return (
            f"schema and indexes: {len(around.schema)} found; events and approvals: {around.different}{old}"
        )
    return f"indexes, events and approvals agree with the log{old}"


def _show(report: Report, around: Around | None, *, trusted: bool, output: Format) -> None:
    if output is not Format.TEXT:
        value = asdict(report)
        value |= {
            "intact": report.intact,
            "unanchored": report.unanchored,
            "after_break": report.after_break,
            "key_given": trusted,
            "database": None if around is None else asdict(around),
        }
        emit(value, output)
        return
    fields(
        [
            ("verdict", _verdict(report, around)),
            ("rows", str(report.rows)),
            ("signed heads", str(report.heads)),
            ("anchored", f"rows 1 to {report.anchored}" if report.anchored else "none"),
            (
                "unanchored",
                f"{report.unanchored} rows after that: whoever writes the database can rewrite them"
                if report.unanchored
                else "none",
            ),
            (
                "after the break",
                f"not verifiable: rows {report.broken} to {report.last}, whatever was signed over them"
                if report.after_break
                else "",
            ),
            ("heads begun anew", _begun(report)),
            ("database", _told_of(around)),
            ("key", "given" if trusted else "as found beside the log: give the one you kept with --key"),
        ]
    )
    beside = () if around is None else (*around.schema, *around.differences)
    for text in beside[:_SHOWN]:
        say(f"  {text}")
    if around is not None and (more := len(around.schema) + around.different - _SHOWN) > 0:
        say(f"  … {more} more about the database")
    for problem in report.problems[:_SHOWN]:
        say(f"  {problem.finding}: {problem.message}")
    if report.found > _SHOWN:
        say(f"  … {report.found - _SHOWN} more; --output json lists up to {len(report.problems)}")
