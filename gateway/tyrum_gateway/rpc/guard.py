"""What stands before every handler: who calls, may they, and nothing but registered errors gets out.

Invariants: an RPC without a row in the authorization table is refused; no exception text reaches the wire.
Requests are parsed in here, because gRPC would answer an undecodable one without any detail.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
import structlog

from tyrum_gateway.app.identity import Identity
from tyrum_gateway.domain.errors import InvalidRequest, KernelBug, NotAuthorized, TokenMissing, TyrumError
from tyrum_gateway.domain.ids import IncidentId
from tyrum_gateway.domain.ports import Ids
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.rpc.authorization import TABLE, AnyOf, Open
from tyrum_gateway.rpc.errors import DETAILS_KEY, MethodUnknown, code_of, status_of

log = structlog.get_logger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
MaybeHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_SCHEME = "Bearer "
_FIRST_SECONDS = 1.0
_caller: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Return the authenticated principal of the RPC in whose handler this is called."""
    return _caller.get()


class Guard(grpc.aio.ServerInterceptor):
    """Wraps every handler of the server."""

    def __init__(self, *, identity: Identity, ids: Ids) -> None:
        self._identity = identity
        self._ids = ids

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MaybeHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Replace the handler by one that checks first and fails in one shape only."""
        path = _text(handler_call_details.method)
        metadata = handler_call_details.invocation_metadata or ()
        return self._serving(path, metadata, await continuation(handler_call_details))

    def _serving(self, path: str, metadata: Any, handler: MaybeHandler) -> Handler:
        service, _, method = path.removeprefix("/").rpartition("/")
        domain = service.rpartition(".")[0]

        async def admit() -> Handler:
            access = TABLE.get((service, method))
            if not isinstance(access, Open):
                principal = await self._identity.authenticate(_bearer(metadata))
                _caller.set(principal)
                if isinstance(access, AnyOf) and not principal.roles & access.roles:
                    wanted = ", ".join(sorted(access.roles))
                    raise NotAuthorized(f"`{method}` needs one of the roles: {wanted}", roles=wanted)
            if handler is None or access is None:
                raise MethodUnknown("the gateway does not serve this method", method=path)
            return handler

        async def refuse(error: BaseException, context: Context) -> NoReturn:
            known = self._known(error, path)
            status = status_of(known, domain)
            details = ((DETAILS_KEY, status.SerializeToString()),)
            await context.abort(code_of(known), status.message, trailing_metadata=details)

        async def unary(raw: bytes, context: Context) -> Any:
            try:
                admitted = await admit()
                behaviour: Any = admitted.unary_unary
                return await behaviour(_decode(admitted, raw), context)
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise  # the health servicer's own answer, or the client went away
            except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
                await refuse(error, context)

        async def streaming(raw: bytes, context: Context) -> None:
            try:
                admitted = await admit()
                behaviour: Any = admitted.unary_stream
                await _send(behaviour(_decode(admitted, raw), context), context)
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
                await refuse(error, context)

        async def both_ways(requests: AsyncIterator[bytes], context: Context) -> None:
            try:
                admitted = await admit()
                behaviour: Any = admitted.stream_stream
                await _send(behaviour(_decoded(admitted, requests), context), context)
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
                await _take_one(requests)
                await refuse(error, context)

        if handler is None or handler.request_streaming:
            # Streaming both ways answers every kind of client, also for a method that does not exist.
            serializer = handler.response_serializer if handler else None
            return grpc.stream_stream_rpc_method_handler(both_ways, response_serializer=serializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                streaming, response_serializer=handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(unary, response_serializer=handler.response_serializer)

    def _known(self, error: BaseException, path: str) -> TyrumError:
        if isinstance(error, TyrumError) and not isinstance(error, KernelBug):
            return error
        if isinstance(error, NotImplementedError):
            return MethodUnknown("the gateway does not serve this method", method=path)
        incident = self._ids.new(IncidentId)
        log.error("rpc_failed", method=path, incident=incident, exc_info=error)
        return KernelBug(f"internal error, incident {incident}", incident=incident)


async def _send(responses: Any, context: Context) -> None:
    if not isinstance(responses, AsyncGenerator):
        await responses  # a handler that writes to the context itself
        return
    async with aclosing(responses) as stream:
        async for response in stream:
            await context.write(response)


async def _take_one(requests: AsyncIterator[bytes]) -> None:
    """Let the client finish its first send: some, refused while they still send, report INTERNAL instead."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_SECONDS):
            async for _ in requests:
                return


def _decode(handler: Handler, raw: bytes) -> Any:
    if handler.request_deserializer is None:
        return raw
    try:
        return handler.request_deserializer(raw)
    except Exception as error:
        raise InvalidRequest("request", "is not a message of this method") from error


async def _decoded(handler: Handler, requests: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
    async for raw in requests:
        yield _decode(handler, raw)


def _bearer(metadata: Any) -> str:
    presented = [_text(value) for key, value in metadata if key == "authorization"]
    if not presented:
        raise TokenMissing("the call carries no bearer token: send metadata `authorization: Bearer TOKEN`")
    if len(presented) != 1 or not presented[0].startswith(_SCHEME):
        raise TokenMissing("the call carries no bearer token: send metadata `authorization: Bearer TOKEN`")
    return presented[0].removeprefix(_SCHEME)


def _text(value: str | bytes) -> str:
    return value.decode("ascii", errors="replace") if isinstance(value, bytes) else value
