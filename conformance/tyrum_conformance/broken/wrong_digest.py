"""Claims, with a valid proof, a contract digest that the host never offered."""

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.convert import contract_message
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Does not negotiate."""

    async def Handshake(  # noqa: N802
        self, request: control_pb2.HandshakeRequest, context: Context
    ) -> control_pb2.HandshakeResponse:
        """Claim another digest."""
        contract = contract_message(self._definition.contract)
        contract.digest = "sha256:" + "0" * 64
        return self._proved(request, request.control_versions.max, contract)


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
