"""`tyrum audit`: what was decided and done, by whom; and whether the log still says what it said."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tyrum_gateway.cli.audit_kind import require_known
from tyrum_gateway.cli.options import Address, Output, StateDir, after, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("Read, export and verify the audit log.")

After = Annotated[int, after("Only rows after this one.")]


@app.command("list")
def list_rows(
    *,
    subject: Annotated[
        str, typer.Option(metavar="ID", help="Only rows about this id, such as turn_… or call_….")
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            metavar="PREFIX", help="Only kinds that begin so, such as `approval.` or `call.decided`."
        ),
    ] = "",
    actor: Annotated[
        str, typer.Option(metavar="NAME", help="Only what this principal did, by name or id, or `kernel`.")
    ] = "",
    after: After = 0,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most this many.")] = 50,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List the newest rows, or with --after the first ones after a number.

    Text names the principals that acted. JSON is the rows as they are stored, with ids alone.
    """
    require_known(kind)
    from tyrum_gateway.cli import audit_log  # noqa: PLC0415 - imports grpc

    chosen = audit_log.Chosen(subject=subject, kind_prefix=kind, actor=actor, after=after, limit=limit)
    asyncio.run(audit_log.list_rows(audit_log.find(state_dir, address), chosen, output, wide=wide))


@app.command()
def export(
    *,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="New file, instead of stdout.")] = None,
    heads: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write the signed heads to this new file.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write the public key to this new file.")
    ] = None,
    after: After = 0,
    state_dir: StateDir = None,
    address: Address = None,
) -> None:
    """Write the whole log as JSON lines, one row each, as `audit verify --rows` reads them."""
    from tyrum_gateway.cli import audit_log  # noqa: PLC0415 - imports grpc

    target = audit_log.find(state_dir, address)
    asyncio.run(audit_log.export(target, audit_log.Files(file, heads, key), after))


@app.command()
def verify(
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Read the state directory instead of asking the gateway.")
    ] = False,
    database: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify this database, without a gateway.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify this export, without a gateway.")
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Signed heads. Default: those of the state directory or gateway."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public key that you kept. Default: that of the state directory or "
            "gateway, which proves less.",
        ),
    ] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Verify every row against its hash, the row before it, and the signed heads; exit with 1 on a finding.

    What is verified here is verified by this command, not by the gateway. Rows after the last signed head are
    reported as unanchored, and rows from a break on as not verifiable. Whoever has the private key can forge
    heads: keep copies of them elsewhere. Of a database, schema and indexes are checked besides, and whether
    events and approvals say what the log says.
    """
    from tyrum_gateway.cli import audit_check  # noqa: PLC0415 - imports grpc

    sources = audit_check.Sources(offline=offline, database=database, rows=rows, heads=heads, key=key)
    audit_check.verify(sources, state_dir, address, output)
