"""Asks the server of each configured model one harmless thing."""

import asyncio
from typing import TYPE_CHECKING

from tyrum_gateway.bootstrap.compose import Vault
from tyrum_gateway.bootstrap.model_transport import endpoint_of
from tyrum_gateway.config.settings import RemoteModelSettings, Settings
from tyrum_gateway.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from tyrum_gateway.models.probe import Probed


async def probe_models(settings: Settings, version: str) -> "tuple[Probed, ...]":
    """Ask them at the same time, within seconds; models without a server are left out."""
    remote = [model for model in settings.models.values() if isinstance(model, RemoteModelSettings)]
    if not remote:
        return ()
    from tyrum_gateway.models.probe import probe  # noqa: PLC0415 - an extra, and heavy

    redactor = Redactor()
    reveal = Vault(settings.secrets, redactor).reveal
    return tuple(
        await asyncio.gather(
            *(probe(endpoint_of(model, reveal, version, redactor.text), model.kind) for model in remote)
        )
    )
