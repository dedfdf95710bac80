"""`tyrum policy overrides`: what humans permitted for good, and its end."""

import asyncio
from typing import Annotated

import typer

from tyrum_gateway.cli.options import Address, Output, StateDir, candidates, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("List and revoke what humans permitted for good.")


@app.command("list")
def list_overrides(
    every: Annotated[bool, typer.Option("--all", help="Show revoked and expired ones too.")] = False,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List the permissions in force, newest first."""
    from tyrum_gateway.cli import override_client  # noqa: PLC0415 - imports grpc

    target = override_client.find(state_dir, address)
    asyncio.run(override_client.list_overrides(target, output, ended=every, wide=wide))


@app.command()
def revoke(
    override: Annotated[
        str,
        typer.Argument(
            metavar="OVERRIDE",
            help="Id, such as over_…, or its beginning.",
            autocompletion=candidates("override", waiting=True),
        ),
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """End a permission at once: what rests on it and has not begun is asked about."""
    from tyrum_gateway.cli import override_client  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.identifiers import whole  # noqa: PLC0415

    target = override_client.find(state_dir, address)
    asyncio.run(override_client.revoke(target, whole(target, "override", override), reason, output))
