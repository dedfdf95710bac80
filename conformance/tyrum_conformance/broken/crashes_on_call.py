"""Ends with status 9 in the middle of every domain call."""

import os

from tyrum.isolation.v1 import isolation_pb2
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run


class CrashingService(GoodService):
    """Takes the process along."""

    async def GetPosture(  # noqa: N802
        self, request: isolation_pb2.GetPostureRequest, context: Context
    ) -> isolation_pb2.GetPostureResponse:
        """Crash."""
        os._exit(9)

    async def StartProcess(  # noqa: N802
        self, request: isolation_pb2.StartProcessRequest, context: Context
    ) -> isolation_pb2.StartProcessResponse:
        """Crash."""
        os._exit(9)


class CrashesOnCall(GoodProvider):
    """Deviates in one member."""

    def servicer(self) -> GoodService:
        """Create the crashing servicer."""
        return CrashingService()


def main() -> int:
    """Serve."""
    return run(CrashesOnCall())
