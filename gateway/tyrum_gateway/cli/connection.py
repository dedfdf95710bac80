"""Finding the gateway and calling it.

Invariants: the token comes from a file that only its owner can read and leaves the machine only inside TLS;
every unary call has a deadline; an error keeps what the service said about it.
"""

import asyncio
import ipaddress
import json
import re
import shlex
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_status import rpc_status

from tyrum.approval.v1.approval_pb2_grpc import ApprovalServiceStub
from tyrum.audit.v1.audit_pb2_grpc import AuditServiceStub
from tyrum.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub
from tyrum.identity.v1.identity_pb2_grpc import IdentityServiceStub
from tyrum.policy.v1.policy_pb2_grpc import PolicyServiceStub
from tyrum.run.v1.run_pb2_grpc import RunServiceStub
from tyrum_gateway.cli.failure import ExitCode, Failure, from_reason
from tyrum_gateway.cli.remote import CREDENTIALS, given, named_file
from tyrum_gateway.cli.secure import ClientTls, client_tls
from tyrum_gateway.cli.state_dir import chosen_state_dir, state_dir_option
from tyrum_gateway.cli.typed import listing, typed
from tyrum_gateway.cli.wire import ReadingChannel, Unreadable, other_version

DEADLINE = 15.0
"""Seconds that a unary call may take."""

_MESSAGE_LIMIT = 4 * 1024 * 1024
_AUTHORITY = ("grpc.default_authority", "localhost")
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_TOKEN_LIMIT = 4096
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """Which gateway a command talks to, and as whom."""

    address: str
    token: str
    state_dir: Path
    announced: bool = True
    """Whether the state directory named the address."""
    tls: ClientTls | None = None
    """None: in the clear, which never leaves this machine."""

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Target(address={self.address!r}, state_dir={str(self.state_dir)!r})"


@dataclass(frozen=True, slots=True)
class Gateway:
    """The services of one gateway with the caller's credential."""

    chat: ChatServiceStub
    approvals: ApprovalServiceStub
    catalog: CatalogServiceStub
    policy: PolicyServiceStub
    audit: AuditServiceStub
    runs: RunServiceStub
    identity: IdentityServiceStub
    health: Any
    metadata: tuple[tuple[str, str], ...]


def find(state_dir: Path | None, address: str | None) -> Target:
    """Find the gateway of a state directory, or the one at an explicit address.

    Raises:
        Failure: No gateway runs there, or the token cannot be used.
    """
    directory = chosen_state_dir(state_dir)
    tls = client_tls() if address is not None else None
    found = checked_address(address, secure=tls is not None) if address is not None else _announced(directory)
    if found.startswith("unix:"):
        tls = None
    return Target(found, _token(directory), directory, announced=address is None, tls=tls)


class Unreachable(Failure):
    """No gateway answers, for now."""


def not_running(directory: Path) -> Unreachable:
    """Describe that no gateway answers for a state directory, and how to start one."""
    return Unreachable(
        f"no gateway runs with state directory `{directory}`",
        hint=f"start one: tyrum serve{state_dir_option(directory)}",
    )


def flags(target: Target, *, caller: bool = True) -> str:
    """Return the options under which a suggested command finds the same gateway.

    Without `caller` the command is for somebody else: what says who the caller is stays out.
    """
    explicit = "" if target.announced else f" --address {target.address}"
    named = {name: path for name, path in given().items() if caller or name not in CREDENTIALS}
    files = (f" --{name.replace('_', '-')} {shlex.quote(str(path))}" for name, path in named.items())
    return state_dir_option(target.state_dir) + explicit + "".join(files)


def checked_address(address: str, *, secure: bool = False) -> str:
    """Accept a socket, or loopback, or with TLS any host: no token crosses a network in the clear.

    Raises:
        Failure: It is none of them.
    """
    if address.startswith("/"):
        return f"unix:{address}"
    if address.startswith("unix:"):
        return address
    host = address.rpartition(":")[0].strip("[]")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and not (secure and _HOST_AND_PORT.fullmatch(address)):
        known = "HOST:PORT" if secure else "a loopback address with its port"
        raise Failure(
            f"`{address}` is neither a socket nor {known}",
            hint="use unix:PATH or 127.0.0.1:PORT; HOST:PORT elsewhere needs TLS: --ca FILE",
            code=ExitCode.USAGE,
        )
    return address


def announcement(directory: Path) -> dict[str, object] | None:
    """Read `gateway.json` of a state directory; None when there is none or it cannot be read as one."""
    try:
        value = json.loads((directory / "gateway.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _announced(directory: Path) -> str:
    value = announcement(directory)
    address = value.get("address") if value else None
    if not isinstance(address, str):
        raise not_running(directory)
    return checked_address(address)


def token_file(directory: Path) -> Path:
    """Return where the token is read from."""
    return named_file("token_file") or directory / "operator.token"


def token_problem(path: Path, directory: Path) -> tuple[str, str]:
    """Say why a token file must not be used, and what to do about it; both empty when it may be."""
    another = "name the file in which your token is: --token-file or TYRUM_TOKEN_FILE"
    try:
        status = path.stat()
    except OSError as error:
        hint = another
        if isinstance(error, FileNotFoundError) and named_file("token_file") is None:
            hint = f"a gateway writes it at its first start: tyrum serve{state_dir_option(directory)}"
        return f"cannot read `{path}`: {error.strerror}", hint
    if not stat.S_ISREG(status.st_mode):
        return f"`{path}` is not a regular file", another
    if status.st_mode & 0o077:
        mode = f"`{path}` can be read by others (mode {stat.S_IMODE(status.st_mode):04o})"
        return mode, f"chmod 600 {shlex.quote(str(path))}"
    return "", ""


def _token(directory: Path) -> str:
    path = token_file(directory)
    problem, hint = token_problem(path, directory)
    if problem:
        raise Failure(problem, hint=hint, code=ExitCode.NOT_AUTHORIZED)
    try:
        with path.open(encoding="ascii") as file:
            token = file.read(_TOKEN_LIMIT).strip()
    except (OSError, ValueError) as error:
        raise Failure(f"`{path}` cannot be read as a token", code=ExitCode.NOT_AUTHORIZED) from error
    if not token.isprintable() or not token or " " in token:
        raise Failure(f"`{path}` does not hold a token", code=ExitCode.NOT_AUTHORIZED)
    return token


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Gateway]:
    """Connect to a gateway; errors of its services leave the block as `Failure`.

    Raises:
        Unreachable: No gateway answers.
    """
    async with _channel(target) as channel:
        await _reach(channel, target)
        stubs = ReadingChannel(channel).as_channel
        try:
            yield Gateway(
                ChatServiceStub(stubs),
                ApprovalServiceStub(stubs),
                CatalogServiceStub(stubs),
                PolicyServiceStub(stubs),
                AuditServiceStub(stubs),
                RunServiceStub(stubs),
                IdentityServiceStub(stubs),
                HealthStub(stubs),
                (("authorization", f"Bearer {target.token}"),),
            )
        except Unreadable as error:
            raise other_version(_announced_version(target)) from error
        except grpc.aio.AioRpcError as error:
            raise describe(error, target) from error


def _channel(target: Target) -> grpc.aio.Channel:
    if target.tls is None:
        return grpc.aio.insecure_channel(target.address, options=(*_OPTIONS, _AUTHORITY))
    # The name that was called is the name that the certificate must have.
    return grpc.aio.secure_channel(target.address, target.tls.credentials(), options=_OPTIONS)


async def _reach(channel: grpc.aio.Channel, target: Target) -> None:
    """Wait for the connection: a call that fails afterwards was lost, not refused a connection."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise _no_answer(target)
                await channel.wait_for_state_change(state)
    except TimeoutError:
        raise _no_answer(target) from None


def _no_answer(target: Target) -> Unreachable:
    if target.tls is not None:
        return Unreachable(
            f"no gateway answers at `{target.address}` with a certificate that --ca vouches for",
            hint="check that it listens there, that --ca is its authority and that its certificate names the "
            "host; it may ask for a client certificate: --client-cert, --client-key",
        )
    return Unreachable(
        f"no gateway answers at `{target.address}`",
        hint=f"start one: tyrum serve{state_dir_option(target.state_dir)}"
        + ("" if target.address.startswith("unix:") else "; if it speaks TLS there: --ca FILE"),
    )


def describe(error: grpc.aio.AioRpcError, target: Target) -> Failure:
    """Turn an error of a call into a failure of the command."""
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return other_version(_announced_version(target))
    if reason := reason_of(error):
        failure = from_reason(reason, _typed_wrong(error) or error.details() or reason)
        if reason == "RESOURCE_NOT_FOUND" and (command := listing()):
            failure.hint = command + flags(target)
        return failure
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return _no_answer(target)
    return Failure(f"the call failed: {error.code().name}: {error.details() or 'no details'}")


def _announced_version(target: Target) -> str:
    version = (announcement(target.state_dir) or {}).get("version") if target.announced else ""
    return version if isinstance(version, str) else ""


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the registered reason of an error; empty when the service itself did not answer."""
    info = ErrorInfo()
    return str(info.reason) if _unpacked(error, info) else ""


def _typed_wrong(error: grpc.aio.AioRpcError) -> str:
    """Say what is wrong with a field, under the name by which it was typed; empty for other errors."""
    request = BadRequest()
    if not _unpacked(error, request) or not request.field_violations:
        return ""
    violation = request.field_violations[0]
    return f"`{typed(violation.field)}` {violation.description}"


def _unpacked(error: grpc.aio.AioRpcError, message: Message) -> bool:
    """Read the detail of a message's type; False when the error has none."""
    status = rpc_status.from_call(cast("grpc.Call", error))
    return any(detail.Unpack(message) for detail in (status.details if status else ()))


async def healthy(gateway: Gateway, timeout: float) -> bool:
    """Ask the health service whether the gateway serves."""
    response = await gateway.health.Check(HealthCheckRequest(), timeout=timeout)
    return bool(response.status == HealthCheckResponse.SERVING)
