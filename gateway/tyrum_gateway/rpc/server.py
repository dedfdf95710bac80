"""The gateway's gRPC server: its services behind one guard, with health and reflection."""

import contextlib
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tyrum.approval.v1 import approval_pb2_grpc
from tyrum.audit.v1 import audit_pb2_grpc
from tyrum.catalog.v1 import catalog_pb2_grpc
from tyrum.chat.v1 import chat_pb2_grpc
from tyrum.identity.v1 import identity_pb2_grpc
from tyrum.policy.v1 import policy_pb2_grpc
from tyrum.run.v1 import run_pb2_grpc
from tyrum_gateway.app.sessions import MOST_STREAMS
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.rpc.approvals import ApprovalServicer
from tyrum_gateway.rpc.audit import AuditServicer
from tyrum_gateway.rpc.authorization import APPROVAL, AUDIT, CATALOG, CHAT, IDENTITY, POLICY, RUNS
from tyrum_gateway.rpc.catalog import CatalogServicer
from tyrum_gateway.rpc.chat import ChatServicer
from tyrum_gateway.rpc.guard import Guard
from tyrum_gateway.rpc.health import Health
from tyrum_gateway.rpc.identity import IdentityServicer
from tyrum_gateway.rpc.policy import PolicyServicer
from tyrum_gateway.rpc.reflection import Symbols
from tyrum_gateway.rpc.runs import RunServicer
from tyrum_gateway.rpc.wildcard import IPV4_WILDCARD, ipv4_alone

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Bytes of the largest message in either direction."""

STREAMS_PER_CONNECTION = 2 * MOST_STREAMS
"""Calls that a connection may have open; what is more waits at the client. Twice what one principal may have
as streams, so that one that is at its bound is told so, and can still call."""

IDLE_MILLISECONDS = 600_000
"""For how long a connection without a call is kept; whoever is still there connects again by itself."""

MOST_CONNECTIONS = 1024
"""Connections that one address may have open, at most; what is more is closed as it comes. All addresses
together take at most half of the process's descriptors: the rest is for the database and the providers."""

HANDSHAKE_MILLISECONDS = 20_000
"""How long a connection may take to become one, of TLS and of HTTP/2: who says nothing keeps no place."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
    ("grpc.max_connection_idle_ms", IDLE_MILLISECONDS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
    ("grpc.so_reuseport", 0),
)
_FREE_PORT_ATTEMPTS = 8
_SOCKET_UMASK = 0o177
"""A socket is its owner's alone, wherever it lies and whatever the gateway was started with."""

_OWN_SERVICES = (CHAT, APPROVAL, CATALOG, POLICY, AUDIT, RUNS, IDENTITY)


@dataclass(frozen=True, slots=True)
class Services:
    """What the server offers."""

    chat: ChatServicer
    approvals: ApprovalServicer
    catalog: CatalogServicer
    policy: PolicyServicer
    audit: AuditServicer
    runs: RunServicer
    identity: IdentityServicer


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """Who the server is on addresses that are no sockets, in PEM."""

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    """Authorities of client certificates, which are then required."""


class Certificates(Protocol):
    """Where the server's certificate comes from."""

    @property
    def current(self) -> ServerCertificate:
        """Return what is served now."""
        ...

    def renewed(self) -> ServerCertificate | None:
        """Return what is to be served from now on, if that has changed; called for each new connection.

        gRPC calls it in threads of its own.
        """
        ...


class GatewayServer:
    """Serves clients between `start` and `stop`."""

    def __init__(
        self,
        *,
        guard: Guard,
        services: Services,
        addresses: Sequence[str],
        certificates: Certificates | None = None,
    ) -> None:
        """Prepare the server.

        Args:
            guard: Stands before every handler.
            services: What is offered.
            addresses: `unix:PATH` or `HOST:PORT`; port 0 takes a free one.
            certificates: For TLS on every `HOST:PORT`; without them they are served in the clear.
        """
        connections = ("grpc.max_allowed_incoming_connections", _most_connections(len(addresses)))
        self._server = grpc.aio.server(interceptors=[guard], options=(*_OPTIONS, connections))
        self._health = Health(("", *_OWN_SERVICES))
        chat_pb2_grpc.add_ChatServiceServicer_to_server(services.chat, self._server)
        approval_pb2_grpc.add_ApprovalServiceServicer_to_server(services.approvals, self._server)
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(services.catalog, self._server)
        policy_pb2_grpc.add_PolicyServiceServicer_to_server(services.policy, self._server)
        audit_pb2_grpc.add_AuditServiceServicer_to_server(services.audit, self._server)
        run_pb2_grpc.add_RunServiceServicer_to_server(services.runs, self._server)
        identity_pb2_grpc.add_IdentityServiceServicer_to_server(services.identity, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*_OWN_SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        symbols = cast("DescriptorPool", Symbols())
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._server, pool=symbols)
        self._addresses = addresses
        self._credentials = _credentials(certificates)

    async def start(self) -> list[str]:
        """Listen; return the addresses in the order given, with the ports that were taken.

        Raises:
            StateUnusable: An address cannot be listened on.
        """
        bound = []
        for address in self._addresses:
            before = os.umask(_SOCKET_UMASK)
            try:
                port = self._listen(address)
            except RuntimeError as error:
                unix = address.startswith("unix:")
                cause = "" if unix else ": another program does, or it is no address of this machine"
                raise StateUnusable(f"cannot listen on `{address}`{cause}", detail=str(error)) from error
            finally:
                os.umask(before)
            host = address.rpartition(":")[0]
            bound.append(address if address.startswith("unix:") else f"{host}:{port}")
        await self._server.start()
        return bound

    def _listen(self, address: str) -> int:
        if not address.startswith(IPV4_WILDCARD):
            return self._add(address)
        wanted = int(address.removeprefix(IPV4_WILDCARD))
        for attempt in range(_FREE_PORT_ATTEMPTS):
            with ipv4_alone(wanted) as port, contextlib.suppress(RuntimeError):
                return self._add(f"{IPV4_WILDCARD}{port}")
            if wanted or attempt == _FREE_PORT_ATTEMPTS - 1:
                break
        raise RuntimeError(f"cannot bind {address}")

    def _add(self, address: str) -> int:
        if self._credentials is None or address.startswith("unix:"):
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, self._credentials)

    def drain(self) -> None:
        """Tell health checks that the gateway takes no new work."""
        self._health.drain()

    async def stop(self, grace: float) -> None:
        """Stop listening; calls in flight get `grace` seconds."""
        await self._server.stop(grace)


def _most_connections(addresses: int) -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, descriptors // 2 // max(1, addresses)))


def _credentials(certificates: Certificates | None) -> grpc.ServerCredentials | None:
    if certificates is None:
        return None

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        renewed = certificates.renewed()
        return None if renewed is None else _configuration(renewed)

    first = certificates.current
    # Connections that are open stay as they are; each new one asks.
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first),
        fetch,  # type: ignore[arg-type]  # None is documented, and missing in the types
        require_client_authentication=first.client_ca is not None,
    )


def _configuration(certificate: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], root_certificates=certificate.client_ca
    )
