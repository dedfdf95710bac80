"""Admission from the start of the process to a connection whose other end is known.

Invariant: no byte that authenticates the host is sent to a process that the host did not start.
"""

import asyncio
import errno

from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import AUTHOR, OPERATOR, Rejected, Stage
from tyrum_provider_host.socketpeer import CannotLook, Peer, belongs_to, open_connections, try_connect
from tyrum_provider_host.spec import ProviderSpec


async def wait_for_listener(
    spec: ProviderSpec, host: HostFacts, record: AdmissionRecord, instance: Instance
) -> None:
    """Wait until the provider listens, and check who does.

    Raises:
        Rejected: nobody listens in time, or another process does.
    """
    loop = asyncio.get_running_loop()
    path, started = instance.directory.socket, loop.time()
    peer: Peer | None = None
    try:
        async with asyncio.timeout(spec.start_timeout):
            while (peer := try_connect(path)) is None:  # noqa: ASYNC110 - nothing signals a foreign listen
                await asyncio.sleep(host.bounds.connect_interval)
    except TimeoutError:
        raise Rejected(
            Stage.LISTEN,
            f"the provider did not listen on TYRUM_PROVIDER_SOCKET within {spec.start_timeout:g} s",
            action=f"{AUTHOR}: listen there, or {OPERATOR}: raise start_timeout",
            transient=True,
        ) from None
    except CannotLook as error:
        raise _blind(error) from error
    except OSError as error:
        raise Rejected(
            Stage.LISTEN,
            f"the socket path cannot be connected to: {error.strerror}",
            action=f"{AUTHOR}: listen on the path itself and create nothing else there",
        ) from None
    record.listening_at = loop.time()
    record.passed(Stage.LISTEN, f"listening {record.listening_at - started:.3f} s after the start")
    _require_peer(peer, host, instance)
    record.passed(Stage.PEER, f"{peer} is the started process or in its session")


async def check_connection(host: HostFacts, record: AdmissionRecord, instance: Instance) -> None:
    """Check the other end of the open connection, and that the artifact was not replaced meanwhile.

    Raises:
        Rejected: either is not as it must be.
    """
    try:
        peers = await asyncio.to_thread(open_connections, instance.directory.socket)
    except CannotLook as error:
        raise _blind(error) from error
    if not peers:
        raise Rejected(
            Stage.PEER,
            "the connection was lost before its other end could be checked",
            action=f"{AUTHOR}: keep the connection open",
            transient=True,
        )
    for peer in peers:
        _require_peer(peer, host, instance)
    artifact = record.artifact
    changed = None if artifact is None else await asyncio.to_thread(artifact.changed)
    if changed is not None:
        raise Rejected(
            Stage.ARTIFACT,
            f"{changed} was replaced while the provider started, so that the measured digest says nothing",
            action=f"{OPERATOR}: start again once the installation is complete",
            transient=True,
        )


async def verify_listener(host: HostFacts, instance: Instance) -> None:
    """Check again who listens on the socket, for new connections and for the open one.

    Raises:
        Rejected: another process took the path over.
        CannotLook: who listens cannot be told now.
    """

    def peers() -> tuple[Peer, ...]:
        path = instance.directory.socket
        try:
            listener = try_connect(path)
        except CannotLook:
            raise
        except OSError:
            listener = None
        return (*open_connections(path), *(() if listener is None else (listener,)))

    try:
        found = await asyncio.to_thread(peers)
    except RuntimeError as error:  # no thread can be started to look
        raise CannotLook(errno.EAGAIN, str(error)) from error
    for peer in found:
        _require_peer(peer, host, instance)


def _blind(error: CannotLook) -> Rejected:
    return Rejected(
        Stage.PEER,
        f"the host cannot see who listens on the provider's socket: {error.strerror}",
        action=f"{OPERATOR}: raise the gateway's limit of open files",
        transient=True,
    )


def _require_peer(peer: Peer, host: HostFacts, instance: Instance) -> None:
    leader = instance.process.pid
    if not belongs_to(peer, leader=leader, uid=host.uid):
        raise Rejected(
            Stage.PEER,
            "another process listens on the provider's socket",
            expected=f"uid {host.uid}, pid {leader} or one in its session",
            found=str(peer),
            action=f"{OPERATOR}: find out what that process is; {AUTHOR}: listen in the started process",
            transient=True,
        )
