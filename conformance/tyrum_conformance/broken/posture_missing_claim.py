"""Its posture is silent about the claim `net.none`."""

from tyrum.isolation.v1 import isolation_pb2
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run


class Service(GoodService):
    """Deviates in the posture."""

    async def GetPosture(  # noqa: N802
        self, request: isolation_pb2.GetPostureRequest, context: Context
    ) -> isolation_pb2.GetPostureResponse:
        """Leave one claim out."""
        response = await super().GetPosture(request, context)
        kept = [claim for claim in response.claims if claim.name != "net.none"]
        del response.claims[:]
        response.claims.extend(kept)
        return response


class Provider(GoodProvider):
    """Deviates in its service."""

    def servicer(self) -> GoodService:
        """Create the deviating servicer."""
        return Service()


def main() -> int:
    """Serve."""
    return run(Provider())
