"""Health, the one service that is open to everybody, and therefore bounded for everybody together.

Invariant: without a token nobody makes the gateway hold more than `MOST_WATCHES` streams.
"""

from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from tyrum_gateway.domain.errors import InvalidRequest, QuotaExceeded

MOST_WATCHES = 64
"""Watches at the same time, of all callers: supervisors need a few, and anybody else can `Check`."""

LONGEST_NAME = 256
"""Characters of the longest service that is asked for; a watch holds its name."""


class Health(HealthServicer):
    """The standard servicer within bounds; what it raises is put on the wire by the guard."""

    def __init__(self) -> None:
        super().__init__()
        self._watches = 0

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        """Tell the state of a service, and each change.

        Raises:
            InvalidRequest: The service's name is too long.
            QuotaExceeded: There are `MOST_WATCHES` already.
        """
        if len(request.service) > LONGEST_NAME:
            raise InvalidRequest("service", f"must be at most {LONGEST_NAME} characters")
        if self._watches >= MOST_WATCHES:
            raise QuotaExceeded(
                f"{MOST_WATCHES} watches of health are open, as many as the gateway serves: use `Check`, or "
                "close one"
            )
        self._watches += 1
        try:
            await super().Watch(request, context)
        finally:
            self._watches -= 1
