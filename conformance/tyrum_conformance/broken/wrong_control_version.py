"""Claims, with a valid proof, a control version beyond the host's range."""

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
        """Claim another control version."""
        contract = contract_message(self._definition.contract)
        return self._proved(request, request.control_versions.max + 1, contract)


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
