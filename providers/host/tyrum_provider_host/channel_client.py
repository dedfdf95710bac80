"""One gRPC connection to one provider instance, and the only way to call over it.

Invariants: every call has a deadline; the bearer is sent only after `authenticate`; a call in flight when the
instance ends fails at once with `OutcomeUnknown`, a call begun afterwards with `ProviderUnavailable`; the
caller's own cancellation passes through.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import grpc
from grpc import aio

from tyrum_provider_host.errors import (
    ANSWERED,
    CallError,
    OutcomeUnknown,
    ProviderBug,
    ProviderUnavailable,
    translate,
)

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Without it the authority is the percent-encoded path, which strict HTTP/2 servers refuse.
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class ProviderChannel:
    """The connection to one instance."""

    def __init__(self, provider: str, path: Path, *, mask: Callable[[str], str] = str) -> None:
        """Connect to `path`; `mask` hides the secrets that the provider was given in what it says."""
        self._provider = provider
        self.mask = mask
        self.path = path
        self.channel = aio.insecure_channel(f"unix:{path}", options=_OPTIONS)
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._gone: str | None = None

    def authenticate(self, bearer: str) -> None:
        """Send `bearer` with every call from now on."""
        self._metadata = (("authorization", f"Bearer {bearer}"),)

    async def unary(
        self,
        method: "aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        *,
        name: str,
        domain: str,
        timeout: float,
    ) -> _Response:
        """Call a unary RPC.

        Raises:
            CallError: it failed; the class says how to recover.
            ProviderUnavailable: the instance has ended before the call.
        """
        self._require()
        try:
            return _readable(await method(request, timeout=timeout, metadata=self._metadata), name)
        except aio.AioRpcError as error:
            raise self._translated(error, name, domain) from None
        except asyncio.CancelledError:
            if _cancelling():
                raise
            raise self._interrupted(name) from None

    async def stream(
        self,
        method: "aio.UnaryStreamMultiCallable[_Request, _Response]",
        request: _Request,
        *,
        name: str,
        domain: str,
        timeout: float,
    ) -> AsyncIterator[_Response]:
        """Call a server-streaming RPC; leaving the iteration early cancels it.

        Raises:
            CallError: it failed; the class says how to recover.
            ProviderUnavailable: the instance has ended before the call.
        """
        self._require()
        call = method(request, timeout=timeout, metadata=self._metadata)
        try:
            async for response in call:
                yield _readable(response, name)
        except aio.AioRpcError as error:
            raise self._translated(error, name, domain) from None
        except asyncio.CancelledError:
            if _cancelling():
                raise
            raise self._interrupted(name) from None
        finally:
            call.cancel()

    async def attempt(
        self, service: str, method: str, *, timeout: float, bearer: str | None = None
    ) -> CallError | None:
        """Send an empty request, and return how the call failed; None when it did not.

        Args:
            service: Full name of the service.
            method: Any of its RPCs; of a stream the first answer is enough.
            timeout: Seconds.
            bearer: Presented instead of the instance's own.

        Raises:
            ProviderUnavailable: the instance has ended before the call.
        """
        self._require()
        metadata = self._metadata if bearer is None else (("authorization", f"Bearer {bearer}"),)
        multi: aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(f"/{service}/{method}")
        call = multi(b"", timeout=timeout, metadata=metadata)
        try:
            await call.read()
            return None
        except aio.AioRpcError as error:
            return self._translated(error, method, service.rpartition(".")[0])
        except asyncio.CancelledError:
            if _cancelling():
                raise
            return self._interrupted(method)
        finally:
            call.cancel()

    async def close(self, reason: str) -> None:
        """Fail all calls in flight and refuse further ones. Idempotent."""
        self._gone = self._gone or reason
        await self.channel.close()

    def _require(self) -> None:
        if self._gone is not None:
            raise ProviderUnavailable(self._provider, self._gone)

    def _translated(self, error: aio.AioRpcError, name: str, domain: str) -> CallError:
        return translate(error, method=name, domain=domain, mask=self.mask)

    def _interrupted(self, name: str) -> CallError:
        return OutcomeUnknown(
            method=name, code=grpc.StatusCode.CANCELLED.name, detail=self._gone or "the connection was closed"
        )


def _readable(answer: _Response, name: str) -> _Response:
    """Refuse what gRPC hands over for bytes that are no message of the method: nothing."""
    if answer is None:
        raise ProviderBug(method=name, code=ANSWERED, detail="the answer is no message of this method")
    return answer


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
