"""`tyrum whoami`: whom the gateway takes the caller for."""

import asyncio

from tyrum_gateway.cli.options import Address, Output, StateDir, sub_app
from tyrum_gateway.cli.output import Format

app = sub_app("Show who you are to the gateway.")


@app.command()
def whoami(state_dir: StateDir = None, address: Address = None, output: Output = Format.TEXT) -> None:
    """Show your principal, its roles, the token that was used and from where the gateway sees you come."""
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    asyncio.run(accounts.whoami(accounts.find(state_dir, address), output))
