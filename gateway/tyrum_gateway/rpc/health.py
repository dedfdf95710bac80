"""Health, the one service that is open to everybody, and therefore bounded for everybody together.

Invariants: without a token nobody makes the gateway hold more than `MOST_WATCHES` streams, and nobody who
does not read what is sent holds up anybody else: not another watch, and not the end of the gateway.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from tyrum_gateway.domain.errors import InvalidRequest, NotFound, QuotaExceeded

MOST_WATCHES = 64
"""Watches at the same time, of all callers: supervisors need a few, and anybody else can `Check`."""

LONGEST_NAME = 256
"""Characters of the longest service that is asked for; a watch holds its name."""


class Health(health_pb2_grpc.HealthServicer):
    """Says that services serve, until the gateway drains; the library's own holds a lock while it sends."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        self._draining = asyncio.Event()
        self._watches = 0

    def drain(self) -> None:
        """Say from now on that nothing serves."""
        self._draining.set()

    async def Check(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        """Tell the state of a service.

        Raises:
            InvalidRequest: The service's name is too long.
            NotFound: There is no such service.
        """
        if _name(request) not in self._services:
            raise NotFound("service", request.service)
        return self._answer(request.service)

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        """Tell the state of a service, and its change.

        Raises:
            InvalidRequest: The service's name is too long.
            QuotaExceeded: There are `MOST_WATCHES` already.
        """
        service = _name(request)
        if self._watches >= MOST_WATCHES:
            raise QuotaExceeded(
                f"{MOST_WATCHES} watches of health are open, as many as the gateway serves: use `Check`, or "
                "close one"
            )
        self._watches += 1
        try:
            last = self._answer(service)
            yield last
            await self._draining.wait()
            if (answer := self._answer(service)) != last:
                yield answer
            await asyncio.Event().wait()
        finally:
            self._watches -= 1

    def _answer(self, service: str) -> health_pb2.HealthCheckResponse:
        if service not in self._services:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        if self._draining.is_set():
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


def _name(request: health_pb2.HealthCheckRequest) -> str:
    if len(request.service) > LONGEST_NAME:
        raise InvalidRequest("service", f"must be at most {LONGEST_NAME} characters")
    return request.service
