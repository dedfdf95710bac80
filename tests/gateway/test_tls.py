"""TLS and client certificates on TCP: who is served, who is refused, and what the record says."""

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import psutil
import pytest
from cryptography import x509
from grpc import StatusCode

from tests.support import configs
from tests.support.certificates import Authority, Pair
from tests.support.client import DEADLINE, Client, connected, info_of
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import chat_pb2
from tyrum.identity.v1 import identity_pb2
from tyrum_gateway.cli.failure import ExitCode

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway with TLS on a TCP port of its own."""

    gateway: RunningGateway
    authority: Authority
    port: int


def place(directory: Path, *, client_ca: bool, address: str = "127.0.0.1:0") -> Iterator[Place]:
    """Serve with a certificate for `localhost` only."""
    authority = Authority.create(directory / "tls")
    server = authority.issue("gateway", "localhost")
    more = f", client_ca: {authority.pem}, principals: {{bound: [anna-laptop]}}" if client_ca else ""
    listen = f'listen: {{tcp: "{address}", tls: {{cert: {server.cert}, key: {server.key}{more}}}}}\n'
    with serving(directory, configs.write(directory, more=listen)) as running:
        announced = json.loads((running.state_dir / "gateway.json").read_text(encoding="utf-8"))
        yield Place(running, authority, int(announced["addresses"][1].rpartition(":")[2]))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Clients need no certificate."""
    yield from place(tmp_path_factory.mktemp("tls"), client_ca=False)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Clients need a certificate."""
    yield from place(tmp_path_factory.mktemp("mtls"), client_ca=True, address="0.0.0.0:0")


def test_every_address_of_ipv4_is_none_of_ipv6(mutual: Place) -> None:
    """`0.0.0.0` listens on IPv4 alone, where gRPC by itself takes both: a firewall for IPv4 is enough."""
    connections = psutil.Process(mutual.gateway.pid).net_connections("tcp")
    listening = [item for item in connections if item.laddr and item.laddr.port == mutual.port]
    assert {(item.family, item.laddr.ip) for item in listening if item.status == psutil.CONN_LISTEN} == {
        (socket.AF_INET, "0.0.0.0")  # noqa: S104 - what is looked for
    }


async def whoami(channel: grpc.aio.Channel, metadata: Metadata) -> identity_pb2.WhoAmIResponse:
    """Ask over a channel who one is."""
    async with channel:
        client = Client(channel, metadata)
        request = identity_pb2.WhoAmIRequest()
        return await client.identity.WhoAmI(request, metadata=metadata, timeout=DEADLINE)


def secure(
    address: str, authority: Authority, own: Pair | None = None, options: tuple[tuple[str, str], ...] = ()
) -> grpc.aio.Channel:
    """Call with TLS."""
    credentials = grpc.ssl_channel_credentials(
        authority.pem.read_bytes(),
        own.key.read_bytes() if own else None,
        own.cert.read_bytes() if own else None,
    )
    return grpc.aio.secure_channel(
        address, credentials, options=[("grpc.use_local_subchannel_pool", 1), *options]
    )


async def refused(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    """Nothing is served over the channel, whoever one claims to be."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await whoami(channel, metadata)
    assert caught.value.code() is StatusCode.UNAVAILABLE


async def test_tls_serves_with_the_right_authority(plain: Place) -> None:
    """With the gateway's authority the call arrives, and the record says that it came over TLS."""
    me = await whoami(secure(f"localhost:{plain.port}", plain.authority), plain.gateway.metadata)
    assert (me.principal.name, me.method, me.origin) == ("operator", "token", "tls 127.0.0.1")


async def test_the_wrong_authority_the_wrong_name_and_plain_text_get_nowhere(
    plain: Place, tmp_path: Path
) -> None:
    """A client that trusts somebody else, calls another name, or speaks without TLS sends no token."""
    metadata = plain.gateway.metadata
    await refused(secure(f"localhost:{plain.port}", Authority.create(tmp_path)), metadata)
    await refused(secure(f"127.0.0.1:{plain.port}", plain.authority), metadata)
    await refused(grpc.aio.insecure_channel(f"127.0.0.1:{plain.port}"), metadata)


async def test_a_token_is_needed_inside_tls_too(plain: Place) -> None:
    """TLS alone authenticates nobody."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await whoami(secure(f"localhost:{plain.port}", plain.authority), ())
    assert caught.value.code() is StatusCode.UNAUTHENTICATED


async def test_a_client_certificate_is_required_and_named(mutual: Place, tmp_path: Path) -> None:
    """Without a certificate of the authority nothing is served; with one its name stands in the record."""
    address, metadata = f"localhost:{mutual.port}", mutual.gateway.metadata
    await refused(secure(address, mutual.authority), metadata)
    stranger = Authority.create(tmp_path).issue("stranger", "client.example")
    await refused(secure(address, mutual.authority, stranger), metadata)
    own = mutual.authority.issue("ops-laptop", "client.example")
    me = await whoami(secure(address, mutual.authority, own), metadata)
    assert me.method == "token+certificate"
    assert me.origin == "tls 127.0.0.1, certificate ops-laptop"


async def test_a_certificate_alone_is_nobody(mutual: Place) -> None:
    """A client certificate opens the connection; without a token no call is answered."""
    own = mutual.authority.issue("no-token", "client.example")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await whoami(secure(f"localhost:{mutual.port}", mutual.authority, own), ())
    assert caught.value.code() is StatusCode.UNAUTHENTICATED


async def test_a_principal_is_bound_to_a_certificate(mutual: Place) -> None:
    """On TCP its token counts only with the certificate that the operator named, for calls and for streams;
    by common name or alternative name, and over the socket without any.
    """
    async with connected(mutual.gateway) as admin:
        metadata = await issued(admin, "bound")
        over_socket = await admin.identity.WhoAmI(
            identity_pb2.WhoAmIRequest(), metadata=metadata, timeout=DEADLINE
        )
    assert over_socket.principal.name == "bound"
    address, issue = f"localhost:{mutual.port}", mutual.authority.issue
    for own in (issue("anna-laptop", "client.example"), issue("somebody", "anna-laptop")):
        me = await whoami(secure(address, mutual.authority, own), metadata)
        assert (me.principal.name, me.method) == ("bound", "token+certificate")
    async with secure(address, mutual.authority, issue("bert-laptop", "client.example")) as channel:
        client = Client(channel, metadata)
        watch = chat_pb2.WatchRequest(conversation_id=f"conv_{'0' * 26}")
        for attempt in (
            client.identity.WhoAmI(identity_pb2.WhoAmIRequest(), metadata=metadata, timeout=DEADLINE),
            anext(aiter(client.chat.Watch(watch, metadata=metadata, timeout=DEADLINE))),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match=r"listen\.tls\.principals") as caught:
                await attempt
            assert caught.value.code() is StatusCode.UNAUTHENTICATED
            assert info_of(caught.value).reason == "TOKEN_INVALID"
        metadata = mutual.gateway.metadata
        unbound = await client.identity.WhoAmI(
            identity_pb2.WhoAmIRequest(), metadata=metadata, timeout=DEADLINE
        )
        assert unbound.principal.name == "operator"


async def issued(admin: Client, name: str) -> Metadata:
    """Make a principal that may chat; return what authenticates it."""
    create = identity_pb2.CreatePrincipalRequest(name=name, roles=[identity_pb2.ROLE_CHAT])
    await admin.identity.CreatePrincipal(create, metadata=admin.metadata, timeout=DEADLINE)
    request = identity_pb2.IssueTokenRequest(principal=name, label="test", expires_in_seconds=3600)
    token = await admin.identity.IssueToken(request, metadata=admin.metadata, timeout=DEADLINE)
    return (("authorization", f"Bearer {token.secret}"),)


def presented(port: int) -> int:
    """Serial number of the certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as raw,
        context.wrap_socket(raw) as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def serial(pair: Pair) -> int:
    """Serial number of a certificate in its file."""
    return x509.load_pem_x509_certificates(pair.cert.read_bytes())[0].serial_number


def test_a_renewed_certificate_is_served_without_a_restart_and_a_broken_one_never(plain: Place) -> None:
    """New connections get what the files hold; while these do not fit, what was served before, and the log
    tells once what is wrong and what to do.
    """
    before = presented(plain.port)
    renewed = plain.authority.issue("gateway", "localhost")
    second = serial(renewed)
    assert presented(plain.port) == second != before
    renewed.key.write_bytes(plain.authority.issue("other", "localhost").key.read_bytes())
    for _ in range(2):
        assert presented(plain.port) == second
    refusals = [line for line in plain.gateway.log.splitlines() if "certificate_not_renewed" in line]
    assert len(refusals) == 1
    assert "listen.tls.key: this key is not that of the certificate in `cert`" in refusals[0]
    assert "files there that fit together" in refusals[0]
    renewed.key.unlink()
    assert presented(plain.port) == second
    assert "listen.tls.key: this file cannot be read" in plain.gateway.log
    plain.authority.issue("gateway", "localhost").key.chmod(0o644)
    assert presented(plain.port) == second
    assert "chmod 600 it" in plain.gateway.log
    renewed.key.chmod(0o600)
    assert presented(plain.port) == serial(renewed) != second
    again = plain.authority.issue("gateway", "localhost")
    assert presented(plain.port) == serial(again) != second


async def test_a_renewed_authority_of_clients_counts_without_a_restart(mutual: Place, tmp_path: Path) -> None:
    """A client of an authority that is added is served from then on, and one that is removed no more."""
    address, metadata = f"localhost:{mutual.port}", mutual.gateway.metadata
    other, only = Authority.create(tmp_path), mutual.authority.pem.read_bytes()
    own = other.issue("late", "client.example")
    channel = partial(secure, address, mutual.authority, own)
    await refused(channel(), metadata)
    mutual.authority.pem.write_bytes(only + other.pem.read_bytes())
    assert (await whoami(channel(), metadata)).origin == "tls 127.0.0.1, certificate late"
    mutual.authority.pem.write_bytes(only)
    await refused(channel(), metadata)


def test_the_command_line_reaches_a_distant_gateway(mutual: Place, tmp_path: Path) -> None:
    """`--ca` and a client certificate do; without them, or with another authority, the command says what to
    check and nothing else, and nor does the gateway's log repeat what strangers tried.
    """
    gateway, authority = mutual.gateway, mutual.authority
    own = authority.issue("cli", "client.example")
    address = ("--address", f"localhost:{mutual.port}", "--ca", str(authority.pem))
    certificate = ("--client-cert", str(own.cert), "--client-key", str(own.key))
    token = ("--token-file", str(gateway.state_dir / "operator.token"))
    done = gateway.tyrum("whoami", *address, *certificate, *token, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["origin"] == "tls 127.0.0.1, certificate cli"
    stranger = Authority.create(tmp_path)
    for lacking in (address, (*address[:-1], str(stranger.pem), *certificate)):
        failed = gateway.tyrum("whoami", *lacking)
        assert failed.returncode == ExitCode.FAILURE
        assert [line.partition(":")[0] for line in failed.stderr.splitlines()] == ["error", "hint"]
        assert "--client-cert" in failed.stderr
    assert "Handshake failed" not in gateway.log
    own.key.chmod(0o640)
    failed = gateway.tyrum("whoami", *address, *certificate)
    assert failed.returncode == ExitCode.NOT_AUTHORIZED
    assert f"chmod 600 {own.key}" in failed.stderr


def test_unix_stays_without_tls(mutual: Place) -> None:
    """The socket of the same gateway needs no certificate: only its owner can open it."""
    done = mutual.gateway.tyrum("whoami", "--output", "json")
    assert json.loads(done.stdout)["origin"] == "unix socket"
