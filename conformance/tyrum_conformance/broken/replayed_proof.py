"""Proves its first handshake and repeats that proof for every later nonce."""

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Does not negotiate."""

    async def Handshake(  # noqa: N802
        self, request: control_pb2.HandshakeRequest, context: Context
    ) -> control_pb2.HandshakeResponse:
        """Repeat the first proof."""
        response = await super().Handshake(request, context)
        self._first_proof = getattr(self, "_first_proof", response.proof)
        response.proof = self._first_proof
        return response


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
