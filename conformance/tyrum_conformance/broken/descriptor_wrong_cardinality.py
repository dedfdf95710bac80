"""Its descriptor has a cardinality that the kind does not admit."""

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
        response.provider_descriptor.cardinality = control_pb2.CARDINALITY_ORDERED_MANY
        return response


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
