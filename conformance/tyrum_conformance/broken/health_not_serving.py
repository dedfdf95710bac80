"""Is configured and ready, and its health stays NOT_SERVING."""

from grpc_health.v1 import health_pb2

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Never serves."""

    async def _publish(self, status: int) -> None:
        await super()._publish(health_pb2.HealthCheckResponse.NOT_SERVING)


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
