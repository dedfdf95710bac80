"""What stands before every handler: who calls, may they, and nothing but registered errors gets out.

Invariants: an RPC without a row in the authorization table is refused; no exception text reaches the wire; a
stream ends with the right to have it.
Requests are parsed in here, because gRPC would answer an undecodable one without any detail.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias

import grpc
import grpc.aio
import structlog

from tyrum_gateway.app.alarms import Alarms
from tyrum_gateway.app.identity import Identity
from tyrum_gateway.app.observer import Observer, Unobserved
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.domain.errors import (
    CertificateMissing,
    InvalidRequest,
    KernelBug,
    NotAuthorized,
    TokenMissing,
    TyrumError,
)
from tyrum_gateway.domain.ids import IncidentId
from tyrum_gateway.domain.ports import Ids
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.rpc.authorization import TABLE, AnyOf, Open
from tyrum_gateway.rpc.errors import DETAILS_KEY, MethodUnknown, code_of, status_of
from tyrum_gateway.rpc.origin import certificate_names, certified, local, origin

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

    def __init__(
        self,
        *,
        identity: Identity,
        sessions: Sessions,
        ids: Ids,
        observer: Observer | None = None,
        alarms: Alarms | None = None,
        bound: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """Prepare the guard.

        Args:
            identity: Knows whose a token is.
            sessions: Ends streams with the right to have them.
            ids: For incidents.
            observer: Counts calls.
            alarms: Hears of what an operator has to mend.
            bound: Names of principals to names of certificates: over anything but a socket their tokens count
                only together with one of these.
        """
        self.bound = bound or {}
        self.identity = identity
        self.sessions = sessions
        self.observer = observer or Unobserved()
        self._alarms = alarms or Alarms()
        self._ids = ids

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MaybeHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Replace the handler by one that checks first and fails in one shape only."""
        path = _text(handler_call_details.method)
        metadata = handler_call_details.invocation_metadata or ()
        return _Entrance(self, path, metadata, await continuation(handler_call_details)).handler()

    def known(self, error: BaseException, path: str) -> TyrumError:
        """Return what may be told about an error; what was not foreseen is logged under an incident id."""
        self._alarms.noticed(error)
        if isinstance(error, TyrumError) and not isinstance(error, KernelBug):
            return error
        if isinstance(error, NotImplementedError):
            return MethodUnknown("the gateway does not serve this method", method=path)
        incident = self._ids.new(IncidentId)
        caller = _caller.get(None)
        log.error(
            "rpc_failed",
            method=path,
            incident=incident,
            principal=caller.principal_id if caller else None,
            exc_info=error,
        )
        return KernelBug(f"internal error, incident {incident}", incident=incident)


class _Entrance:
    """One call on its way in."""

    def __init__(self, guard: Guard, path: str, metadata: Any, handler: MaybeHandler) -> None:
        self._guard = guard
        self._path = path
        self._metadata = metadata
        self._handler = handler
        service, _, self._method = path.removeprefix("/").rpartition("/")
        self._domain = service.rpartition(".")[0]
        self._access = TABLE.get((service, self._method))
        # Whatever a caller writes into a path is no name of ours.
        self._name = path if self._access is not None else "unknown"

    def handler(self) -> Handler:
        """Return the handler that gRPC is given."""
        handler = self._handler
        if handler is None or handler.request_streaming:
            # Streaming both ways answers every kind of client, also for a method that does not exist.
            serializer = handler.response_serializer if handler else None
            return grpc.stream_stream_rpc_method_handler(self._both_ways, response_serializer=serializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming, response_serializer=handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary, response_serializer=handler.response_serializer
        )

    async def _unary(self, raw: bytes, context: Context) -> Any:
        began = time.monotonic()
        async with self._answering(context):
            admitted, _ = await self._admit(context)
            behaviour: Any = admitted.unary_unary
            answer = await behaviour(_decode(admitted, raw), context)
        self._guard.observer.answered(self._name, time.monotonic() - began)
        return answer

    async def _streaming(self, raw: bytes, context: Context) -> None:
        async with self._answering(context):
            admitted, principal = await self._admit(context)
            behaviour: Any = admitted.unary_stream
            await self._send(principal, behaviour(_decode(admitted, raw), context), context)

    async def _both_ways(self, requests: AsyncIterator[bytes], context: Context) -> None:
        async with self._answering(context, requests):
            admitted, principal = await self._admit(context)
            behaviour: Any = admitted.stream_stream
            await self._send(principal, behaviour(_decoded(admitted, requests), context), context)

    async def _admit(self, context: Context) -> tuple[Handler, Principal | None]:
        access, principal = self._access, None
        if not isinstance(access, Open):
            known = await self._guard.identity.authenticate(_bearer(self._metadata))
            _require_certificate(self._guard.bound.get(known.name), context)
            principal = _from(context, known)
            _caller.set(principal)
            if isinstance(access, AnyOf) and not principal.roles & access.roles:
                wanted = ", ".join(sorted(access.roles))
                which = "the role" if len(access.roles) == 1 else "one of the roles"
                raise NotAuthorized(f"`{self._method}` needs {which} {wanted}", roles=wanted)
        if self._handler is None or access is None:
            raise MethodUnknown("the gateway does not serve this method", method=self._path)
        return self._handler, principal

    async def _send(self, principal: Principal | None, responses: Any, context: Context) -> None:
        if principal is None:
            await _send(responses, context)
            return
        async with self._guard.sessions.during(principal):
            await _send(responses, context)

    @asynccontextmanager
    async def _answering(
        self, context: Context, requests: AsyncIterator[bytes] | None = None
    ) -> AsyncGenerator[None, None]:
        """Refuse in one shape whatever is raised inside, and count how the call ended."""
        code = "OK"
        try:
            yield
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED.name  # the client went away
            raise
        except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
            known = self._guard.known(error, self._path)
            code = code_of(known).name
            if requests is not None:
                await _take_one(requests)
            status = status_of(known, self._domain)
            details = ((DETAILS_KEY, status.SerializeToString()),)
            await context.abort(code_of(known), status.message, trailing_metadata=details)
        finally:
            self._guard.observer.called(self._name, code)


def _require_certificate(names: frozenset[str] | None, context: Context) -> None:
    if names is not None and not local(context) and not names & certificate_names(context):
        raise CertificateMissing(
            "this principal's tokens count here only together with a client certificate that the operator "
            "has bound to it (`listen.tls.principals`)"
        )


def _from(context: Context, principal: Principal) -> Principal:
    """Add to a principal how and from where this call of it comes."""
    method = f"{principal.method}+certificate" if certified(context) else principal.method
    return replace(principal, method=method, origin=origin(context))


async def _send(responses: Any, context: Context) -> None:
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
