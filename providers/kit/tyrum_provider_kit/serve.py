"""A provider process from start to exit: environment, token, server, lifeline, orderly end.

Invariant: whatever ends it (Shutdown, SIGTERM, the host's death), the process drains, lets the provider end
what it runs, removes its socket and exits 0; if that takes too long it exits all the same.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from urllib.parse import quote

import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from tyrum.provider.v1 import control_pb2_grpc
from tyrum_provider_kit import lifeline
from tyrum_provider_kit._fork_support import restart_if_too_late
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.environment import (
    SOCKET,
    Environment,
    Misconfigured,
    free_socket_path,
    read_environment,
)
from tyrum_provider_kit.guard import Guard
from tyrum_provider_kit.invalid_definition import EXIT_MISCONFIGURED
from tyrum_provider_kit.log import JsonLines, log_to_stderr
from tyrum_provider_kit.proof import Credentials
from tyrum_provider_kit.provider import Provider
from tyrum_provider_kit.state import InstanceState

EXIT_OK = 0
EXIT_FAILED = 1

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
SIGTERM_GRACE = 5.0
LIFELINE_GRACE = 2.0
"""Seconds for running operations when the host is gone: the whole end has five."""
PROVIDER_MARGIN = 1.0
"""Seconds beyond the grace in which the provider's own shutdown must return."""
HARD_EXIT_MARGIN = 3.0
LAST_REPLIES = 0.2
"""Seconds for replies that are on their way when the server stops."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

_log = logging.getLogger(__name__)


def run(provider: Provider) -> int:
    """Serve one provider instance until its end and return the exit status for `sys.exit`.

    0 after an orderly end, 1 when serving or ending failed, 2 when the process was started wrongly (the log
    names the variable or stream). Call it from the main thread, before any event loop or thread of your own.
    """
    return run_with(provider, ControlService)


def run_with(provider: Provider, control: Callable[..., ControlService]) -> int:
    """Do what `run` does with another control service, for conformance's deliberately bad providers."""
    restart_if_too_late()
    formatter = log_to_stderr()
    # A handler instead of SIG_IGN, which children would inherit: the terminal's Ctrl-C is for the host alone.
    signal.signal(signal.SIGINT, lambda *_: None)
    os.umask(0o077)
    try:
        environment = read_environment(os.environ)
        free_socket_path(environment.socket)
        descriptor = lifeline.take_stdin()
        token = lifeline.read_token(descriptor)
        credentials = Credentials.derive(token)
        formatter.conceal([credentials.bearer])
        return asyncio.run(_Instance(provider, environment, credentials, formatter, control).live(descriptor))
    except Misconfigured as error:
        _log.error("cannot start: %s", error)
        return EXIT_MISCONFIGURED
    except Exception:  # noqa: BLE001 - the log is the only place to say why
        _log.exception("the provider failed")
        return EXIT_FAILED


class _Instance:
    """One life."""

    def __init__(
        self,
        provider: Provider,
        environment: Environment,
        credentials: Credentials,
        formatter: JsonLines,
        control: Callable[..., ControlService],
    ) -> None:
        self._provider = provider
        self._environment = environment
        self._state = InstanceState()
        self._stopping = asyncio.Event()
        self._grace = 0.0
        self._patience: asyncio.Timeout | None = None
        self._control = control(
            provider=provider,
            environment=environment,
            credentials=credentials,
            state=self._state,
            conceal=formatter.conceal,
            stop=self._on_shutdown,
        )
        guard = Guard(
            credentials=credentials,
            state=self._state,
            domain_service=provider.service_name,
            starting_methods=frozenset(provider.starting_methods),
            max_concurrent=provider.definition.max_concurrent_operations,
        )
        self._guard = guard

    async def live(self, descriptor: int) -> int:
        """Serve until something ends the instance."""
        loop = asyncio.get_running_loop()
        lifeline.watch(
            descriptor,
            on_end=lambda: _call(loop, self._on_host_gone),
            before_exit=self._remove_socket,
        )
        loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        server = grpc.aio.server(interceptors=[self._guard], options=_OPTIONS)
        control_pb2_grpc.add_ProviderControlServiceServicer_to_server(self._control, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._control.health, server)
        self._provider.add_services(server)
        await self._control.start()
        try:
            self._listen(server)
            await server.start()
            _log.info("listening as %s", self._environment.instance_id)
            await self._stopping.wait()
            orderly = await self._let_go()
            await server.stop(LAST_REPLIES)
        finally:
            self._remove_socket()
        return EXIT_OK if orderly else EXIT_FAILED

    def _listen(self, server: grpc.aio.Server) -> None:
        try:
            server.add_insecure_port("unix:" + quote(str(self._environment.socket)))
        except RuntimeError as error:
            raise Misconfigured(f"{SOCKET}: cannot listen on {self._environment.socket}") from error

    async def _let_go(self) -> bool:
        """Drain, end what runs, wait for open calls; tell whether the provider's own part succeeded."""
        loop = asyncio.get_running_loop()
        await self._control.begin_drain()
        until = loop.time() + self._grace
        try:
            async with asyncio.timeout_at(until + PROVIDER_MARGIN) as self._patience:
                await self._provider.drain()
                await self._provider.shutdown(max(until - loop.time(), 0.0))
                await self._state.domain_calls.wait_empty(max(until - loop.time(), 0.0))
        except Exception:  # noqa: BLE001 - the end goes on whatever the author's code does
            _log.exception("the provider's own end failed")
            return False
        finally:
            self._patience = None
        return True

    def _on_shutdown(self, grace: float) -> None:
        self._stop("the host asked for the end", grace)
        lifeline.exit_hard_after(grace + HARD_EXIT_MARGIN, self._remove_socket)

    def _on_sigterm(self) -> None:
        self._stop("SIGTERM", SIGTERM_GRACE)
        lifeline.exit_hard_after(SIGTERM_GRACE + HARD_EXIT_MARGIN, self._remove_socket)

    def _on_host_gone(self) -> None:
        self._stop("the host is gone", LIFELINE_GRACE)

    def _stop(self, reason: str, grace: float) -> None:
        """Begin the end, or hurry an end that was begun with more patience."""
        if not self._stopping.is_set():
            _log.info("stopping: %s", reason)
            self._grace = grace
            self._stopping.set()
        elif self._patience is None:
            self._grace = min(self._grace, grace)
        else:
            sooner = asyncio.get_running_loop().time() + grace
            planned = self._patience.when()
            if planned is None or sooner < planned:
                self._patience.reschedule(sooner)

    def _remove_socket(self) -> None:
        with contextlib.suppress(OSError):
            self._environment.socket.unlink()


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself in the meantime
        loop.call_soon_threadsafe(callback)
