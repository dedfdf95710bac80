"""Its posture names the claim `net.none` and gives it no status."""

from tyrum.isolation.v1 import isolation_pb2
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run


class Service(GoodService):
    """Deviates in the posture."""

    async def GetPosture(  # noqa: N802
        self, request: isolation_pb2.GetPostureRequest, context: Context
    ) -> isolation_pb2.GetPostureResponse:
        """Leave one status out."""
        response = await super().GetPosture(request, context)
        claim = next(claim for claim in response.claims if claim.name == "net.none")
        claim.status = isolation_pb2.CLAIM_STATUS_UNSPECIFIED
        return response


class Provider(GoodProvider):
    """Deviates in its service."""

    def servicer(self) -> GoodService:
        """Create the deviating servicer."""
        return Service()


def main() -> int:
    """Serve."""
    return run(Provider())
