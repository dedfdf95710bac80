"""`tyrum providers`: what the operator configured and what became of it."""

import asyncio
from typing import Annotated

import typer

from tyrum_gateway.cli.options import Address, Output, StateDir, candidates, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("Show providers, their states and why; start one anew.")


ProviderArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name in the configuration.", autocompletion=candidates("provider")),
]


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
    name: ProviderArgument,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Explain one provider: admission stages, states with reasons, claims and recent log."""
    from tyrum_gateway.cli import catalog  # noqa: PLC0415 - imports grpc

    asyncio.run(catalog.explain(catalog.find(state_dir, address), name, output))


@app.command()
def restart(
    name: ProviderArgument,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Start one provider anew, also a quarantined or rejected one, and wait until it is admitted or not.

    An instance that lives is drained and ended first; the commands that it runs end with it. The
    configuration is the one that the gateway was started with.
    """
    from tyrum_gateway.cli import catalog  # noqa: PLC0415 - imports grpc

    asyncio.run(catalog.restart(catalog.find(state_dir, address), name, output))
