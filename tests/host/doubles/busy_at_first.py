"""A conforming provider whose backend is away for the first two configurations, and while a file exists.

The file is `away` in the directory that the argument names; while it exists there is no posture.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import Environment, ServiceError, run

SWITCH = Path(sys.argv[1]) / "away"


class Busy(GoodProvider):
    """Deviates in two members."""

    refusals = 2

    def servicer(self) -> GoodService:
        """Create the servicer that may have no posture."""
        return _Busy()

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Refuse for now."""
        if self.refusals:
            self.refusals -= 1
            raise ServiceError(error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, "the predecessor still runs")
        return await super().configure(config, secrets, environment)


class _Busy(GoodService):
    async def GetPosture(  # noqa: N802 - the name on the wire
        self, request: isolation_pb2.GetPostureRequest, context: Context
    ) -> isolation_pb2.GetPostureResponse:
        if SWITCH.exists():
            raise ServiceError(error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, "the backend is away")
        return await super().GetPosture(request, context)


if __name__ == "__main__":
    sys.exit(run(Busy()))
