"""What stands before every handler: who calls, is it time, and nothing but registered errors gets out.

Invariants: without the bearer nothing but Handshake and health answers; no exception text reaches the wire;
every error carries one ErrorInfo, undecodable requests and unknown methods included. Requests are parsed and
single responses serialised in here, because gRPC would answer a failure of either without any detail.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from tyrum.error.v1 import error_pb2
from tyrum_provider_kit.errors import STATUS_DETAILS_KEY, ServiceError, status_of
from tyrum_provider_kit.proof import Credentials
from tyrum_provider_kit.state import InstanceState

CONTROL_SERVICE = "tyrum.provider.v1.ProviderControlService"
HEALTH_SERVICE = "grpc.health.v1.Health"
_SCHEME = "Bearer "

_log = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
MaybeHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True)
class CalledMethod:
    """The method of a call, from its path `/package.Service/Method`."""

    service: str
    name: str

    @classmethod
    def parse(cls, path: str) -> "CalledMethod":
        """Split the path."""
        service, _, name = path.removeprefix("/").rpartition("/")
        return cls(service=service, name=name)

    @property
    def package(self) -> str:
        """The proto package, which is the domain of errors."""
        return self.service.rpartition(".")[0]


class Guard(grpc.aio.ServerInterceptor):
    """Wraps every handler of the server."""

    def __init__(
        self,
        *,
        credentials: Credentials,
        state: InstanceState,
        domain_service: str,
        starting_methods: frozenset[str],
        max_concurrent: int,
    ) -> None:
        self._credentials = credentials
        self._state = state
        self._domain_service = domain_service
        self._starting_methods = starting_methods
        self._max_concurrent = max_concurrent

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MaybeHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Replace the handler by one that checks first and fails in the one shape only."""
        method = CalledMethod.parse(_text(handler_call_details.method))
        refusal = self._authenticate(method, handler_call_details.invocation_metadata or ())
        handler = await continuation(handler_call_details)
        if refusal is None and handler is None:
            refusal = _not_offered(method)
        if handler is None or refusal is not None or handler.request_streaming:
            return _refusing(method, refusal or _not_offered(method))
        if handler.response_streaming:
            return self._streaming(method, handler)
        return self._unary(method, handler)

    def _authenticate(self, method: CalledMethod, metadata: Any) -> ServiceError | None:
        if method.service == HEALTH_SERVICE or method == CalledMethod(CONTROL_SERVICE, "Handshake"):
            return None
        presented = [_text(value) for key, value in metadata if key == "authorization"]
        if not presented:
            return ServiceError(error_pb2.ERROR_REASON_TOKEN_MISSING, "the call carries no bearer token")
        well_formed = len(presented) == 1 and presented[0].startswith(_SCHEME)
        if well_formed and self._credentials.accepts(presented[0].removeprefix(_SCHEME)):
            return None
        return ServiceError(error_pb2.ERROR_REASON_TOKEN_INVALID, "the bearer token is not the instance's")

    @contextmanager
    def _admitted(self, method: CalledMethod) -> Iterator[None]:
        """Let a call in when it is its time, and count it while it is inside."""
        if method.service in {CONTROL_SERVICE, HEALTH_SERVICE}:
            yield
            return
        state = self._state
        if not state.configured:
            raise ServiceError(error_pb2.ERROR_REASON_NOT_CONFIGURED, "the provider is not configured")
        with ExitStack() as inside:
            inside.enter_context(state.domain_calls.entered())
            if method.service == self._domain_service and method.name in self._starting_methods:
                if state.draining:
                    raise ServiceError(error_pb2.ERROR_REASON_DRAINING, "the provider takes no new work")
                if state.starts.count >= self._max_concurrent:
                    limit = str(self._max_concurrent)
                    raise ServiceError(
                        error_pb2.ERROR_REASON_CONCURRENCY_LIMIT,
                        f"{limit} operations are in flight",
                        {"limit": limit},
                    )
                inside.enter_context(state.starts.entered())
            yield

    def _unary(self, method: CalledMethod, handler: Handler) -> Handler:
        behaviour: Any = handler.unary_unary

        async def answer(raw: bytes, context: Context) -> bytes:
            try:
                with self._admitted(method):
                    request = _decode(handler, raw)
                    return _encode(handler, await behaviour(request, context))
            except grpc.aio.AbortError:
                raise  # the health servicer's own NOT_FOUND
            except asyncio.CancelledError as error:
                await _fail(method, context, _unless_cancelled(method, error))
            except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
                await _fail(method, context, _as_service_error(method, error))

        return grpc.unary_unary_rpc_method_handler(answer)

    def _streaming(self, method: CalledMethod, handler: Handler) -> Handler:
        behaviour: Any = handler.unary_stream

        async def answer(raw: bytes, context: Context) -> None:
            try:
                with self._admitted(method):
                    responses: Any = behaviour(_decode(handler, raw), context)
                    if isinstance(responses, AsyncIterator):
                        await _send(responses, context)
                    else:
                        await responses  # a handler that writes to the context itself
            except grpc.aio.AbortError:
                raise
            except asyncio.CancelledError as error:
                await _fail(method, context, _unless_cancelled(method, error))
            except Exception as error:  # noqa: BLE001 - the last line of defence of every RPC
                await _fail(method, context, _as_service_error(method, error))

        return grpc.unary_stream_rpc_method_handler(
            answer,
            response_serializer=handler.response_serializer,
        )


async def _send(responses: AsyncIterator[Any], context: Context) -> None:
    async with aclosing(responses) as stream:  # type: ignore[type-var] # async generators all close
        async for response in stream:
            await context.write(response)


def _decode(handler: Handler, raw: bytes) -> Any:
    if handler.request_deserializer is None:
        return raw
    try:
        return handler.request_deserializer(raw)
    except Exception as error:
        raise ServiceError(
            error_pb2.ERROR_REASON_FIELD_INVALID, "the request is not a message of this method", {"field": ""}
        ) from error


def _encode(handler: Handler, response: Any) -> bytes:
    if handler.response_serializer is None:
        assert isinstance(response, bytes)
        return response
    return handler.response_serializer(response)


def _not_offered(method: CalledMethod) -> ServiceError:
    return ServiceError(
        error_pb2.ERROR_REASON_CAPABILITY_NOT_DECLARED,
        "the provider does not offer this method",
        {"method": f"{method.service}/{method.name}"},
    )


def _refusing(method: CalledMethod, refusal: ServiceError) -> Handler:
    async def answer(_: Any, context: Context) -> None:
        await _fail(method, context, refusal)

    # Streaming both ways reads nothing and answers every kind of client.
    return grpc.stream_stream_rpc_method_handler(answer)


def _unless_cancelled(method: CalledMethod, error: asyncio.CancelledError) -> ServiceError:
    """Let the call's cancellation pass, but not one the handler raised itself: gRPC would never answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return _incident(method, error)


def _as_service_error(method: CalledMethod, error: Exception) -> ServiceError:
    match error:
        case ServiceError():
            return error
        case NotImplementedError():  # a method the servicer inherits from the generated base
            return _not_offered(method)
        case _:
            return _incident(method, error)


def _incident(method: CalledMethod, error: BaseException) -> ServiceError:
    incident = secrets.token_hex(8)
    _log.error(
        "unexpected failure in %s/%s, incident %s", method.service, method.name, incident, exc_info=error
    )
    return ServiceError(
        error_pb2.ERROR_REASON_INTERNAL,
        f"unexpected failure, see incident {incident} in the provider's log",
        {"incident": incident},
    )


async def _fail(method: CalledMethod, context: Context, error: ServiceError) -> NoReturn:
    status = status_of(error, method.package)
    details = ((STATUS_DETAILS_KEY, status.SerializeToString()),)
    await context.abort(error.code, status.message, trailing_metadata=details)


def _text(value: str | bytes) -> str:
    return value.decode("ascii", errors="replace") if isinstance(value, bytes) else value
