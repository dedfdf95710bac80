"""`tyrum providers`: what the operator configured and what became of it."""

import asyncio
from typing import Annotated

import typer

from tyrum_gateway.cli.options import Address, Output, StateDir, candidates, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("Show providers, their states and why.")


@app.command("list")
def list_providers(
    *,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List the configured providers with their six states."""
    from tyrum_gateway.cli import catalog  # noqa: PLC0415 - imports grpc

    asyncio.run(catalog.list_providers(catalog.find(state_dir, address), output, wide=wide))


@app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name in the configuration.", autocompletion=candidates("provider")
        ),
    ],
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Explain one provider: admission stages, states with reasons, claims and recent log."""
    from tyrum_gateway.cli import catalog  # noqa: PLC0415 - imports grpc

    asyncio.run(catalog.explain(catalog.find(state_dir, address), name, output))
