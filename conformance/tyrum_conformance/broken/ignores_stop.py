"""Acknowledges Shutdown and goes on; ignores SIGTERM too. Only SIGKILL or the end of standard input helps."""

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit import Environment
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Stubborn(GoodProvider):
    """Ignores SIGTERM once it is configured."""

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Stop listening to SIGTERM."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return await super().configure(config, secrets, environment)


class Control(ControlService):
    """Lies about stopping."""

    async def Shutdown(  # noqa: N802
        self, request: control_pb2.ShutdownRequest, context: Context
    ) -> control_pb2.ShutdownResponse:
        """Acknowledge, and do nothing."""
        return control_pb2.ShutdownResponse()


def main() -> int:
    """Serve."""
    return run_with(Stubborn(), Control)
