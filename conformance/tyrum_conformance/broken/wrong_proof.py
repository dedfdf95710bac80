"""Answers a handshake without knowing the token: the proof is 32 other bytes."""

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Does not negotiate."""

    async def Handshake(  # noqa: N802
        self, request: control_pb2.HandshakeRequest, context: Context
    ) -> control_pb2.HandshakeResponse:
        """Prove nothing."""
        response = await super().Handshake(request, context)
        response.proof = bytes(32)
        return response


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
