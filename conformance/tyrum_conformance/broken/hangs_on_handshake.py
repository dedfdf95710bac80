"""Listens and never answers a handshake."""

import asyncio

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Does not negotiate."""

    async def Handshake(  # noqa: N802
        self, request: control_pb2.HandshakeRequest, context: Context
    ) -> control_pb2.HandshakeResponse:
        """Wait until the host gives up."""
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
