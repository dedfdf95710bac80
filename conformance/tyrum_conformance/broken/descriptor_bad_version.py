"""Its descriptor has an implementation version that is no semantic version."""

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import Context, GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Deviates in the descriptor."""

    async def GetDescriptor(  # noqa: N802
        self, request: control_pb2.GetDescriptorRequest, context: Context
    ) -> control_pb2.GetDescriptorResponse:
        """Return the changed descriptor."""
        response = await super().GetDescriptor(request, context)
        response.provider_descriptor.implementation_version = "latest"
        return response


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
