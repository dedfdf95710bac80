"""A conforming provider whose backend is not available for the first two configurations."""

import sys
from collections.abc import Mapping
from typing import Any

from tyrum.error.v1 import error_pb2
from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import Environment, ServiceError, run


class Busy(GoodProvider):
    """Deviates in one member."""

    refusals = 2

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> None:
        """Refuse for now."""
        if self.refusals:
            self.refusals -= 1
            raise ServiceError(error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, "the predecessor still runs")


if __name__ == "__main__":
    sys.exit(run(Busy()))
