"""A conforming provider whose StartProcess never answers, so that calls are in flight when it dies."""

import asyncio
import sys

from tyrum.isolation.v1 import isolation_pb2
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run


class Slow(GoodProvider):
    """Deviates in one RPC."""

    def servicer(self) -> GoodService:
        """Create the slow servicer."""
        return _Slow()


class _Slow(GoodService):
    async def StartProcess(  # noqa: N802 - the name on the wire
        self, request: isolation_pb2.StartProcessRequest, context: Context
    ) -> isolation_pb2.StartProcessResponse:
        if not request.HasField("spec"):
            return await super().StartProcess(request, context)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(run(Slow()))
