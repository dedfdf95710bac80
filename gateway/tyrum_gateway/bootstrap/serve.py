"""Running a gateway: admit providers, take up unfinished work, serve, drain."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from tyrum_gateway.app.approval_watch import watch_approvals
from tyrum_gateway.app.audit_heads import HeadKeeper
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.identity import new_token
from tyrum_gateway.app.runs import RunDesk
from tyrum_gateway.bootstrap import collector
from tyrum_gateway.bootstrap.compose import Composition, Seams, compose
from tyrum_gateway.bootstrap.evidence import Anchor, recorded, require_database
from tyrum_gateway.bootstrap.leaving import leave
from tyrum_gateway.bootstrap.operations import operations
from tyrum_gateway.bootstrap.state_directory import (
    StateDirectory,
    free_socket,
    gateway_socket,
    remove_stale_sockets,
    runtime_directory,
)
from tyrum_gateway.bootstrap.system import forbid_core_dumps
from tyrum_gateway.bootstrap.tls import CertificateFiles
from tyrum_gateway.config.profiles import profile_problems
from tyrum_gateway.config.settings import Settings
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.principal import Role
from tyrum_gateway.rpc.approvals import ApprovalServicer
from tyrum_gateway.rpc.audit import AuditServicer
from tyrum_gateway.rpc.catalog import CatalogServicer
from tyrum_gateway.rpc.chat import ChatServicer
from tyrum_gateway.rpc.guard import Guard
from tyrum_gateway.rpc.identity import IdentityServicer
from tyrum_gateway.rpc.policy import PolicyServicer
from tyrum_gateway.rpc.runs import RunServicer
from tyrum_gateway.rpc.server import GatewayServer, Services
from tyrum_gateway.telemetry.logging import configure_logging
from tyrum_gateway.telemetry.metrics import Metrics
from tyrum_gateway.telemetry.ops import Readiness
from tyrum_gateway.telemetry.redaction import Redactor
from tyrum_provider_host.status import ProviderStatus

log = structlog.get_logger(__name__)

ADMISSION_SECONDS = 30.0
"""How long the start waits for providers to be admitted or refused."""

DRAIN_SECONDS = 10.0
"""How long turns in work get to reach a durable rest after the first signal."""

GRACE_SECONDS = 2.0
"""How long calls in flight get at the end."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What is known once the gateway serves."""

    addresses: Sequence[str]
    providers: Mapping[str, str]
    """Provider name to its lifecycle, with the reason when it is not admitted."""
    warnings: Sequence[str]
    """Profiles that can run nothing, and permissions that were superseded; with the reason."""


async def serve(
    settings: Settings,
    *,
    version: str,
    ready: Callable[[Serving], None],
    seams: Seams | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain; another SIGTERM or SIGINT ends the draining.

    SIGHUP is what a terminal sends when it is closed; where it is ignored at the start, it stays so.

    Turns in work get `DRAIN_SECONDS` to reach a durable rest; whatever is left then, and every turn that
    waits or is queued, is continued from its rows by the next gateway. Work that ignores its cancellation
    does not hold the end up: then the process ends here, with 0.

    Args:
        settings: The operator's configuration, bound to a state directory.
        version: Of the gateway.
        ready: Called once clients can be served.
        seams: What a bench or a test puts in the place of a part.

    Raises:
        StateUnusable: The state directory is in use, not private, damaged or of a newer version; or an
            address cannot be listened on.
    """
    seams = seams or Seams()
    forbid_core_dumps()
    redactor = Redactor()
    configure_logging(redactor)
    directory = StateDirectory.prepare(settings.state_dir)
    with directory.locked():
        runtime = runtime_directory()
        socket = settings.listen.unix or gateway_socket(runtime, directory.path)
        free_socket(socket)
        for stale in remove_stale_sockets(runtime):
            log.info("removed_stale_socket", path=str(stale))
        addresses = [f"unix:{socket}"]
        if settings.listen.tcp is not None:
            addresses.append(settings.listen.tcp.text)
        tls = settings.listen.tls
        certificates = None if tls is None else CertificateFiles(tls)
        metrics = None if settings.listen.ops is None else Metrics()
        require_database(directory.database, directory.audit, settings.audit_heads)
        store = await seams.open_store(directory.database)
        try:
            parts = compose(
                settings,
                store=store,
                runtime=runtime,
                redactor=redactor,
                version=version,
                seams=seams,
                observer=metrics,
            )
            anchor = Anchor(directory.audit, settings.audit_heads)
            async with recorded(settings, store, anchor, version, parts.alarms) as keeper:
                superseded = [_superseded(item) for item in await parts.overrides.supersede()]
                token = directory.operator_token(new_token)
                if not await parts.identity.ensure("operator", list(Role), token):
                    fix = "delete it to get a new one, unless the principal `operator` is disabled"
                    log.warning("operator_token_unusable", file=str(directory.token_file), fix=fix)
                server = GatewayServer(
                    guard=Guard(
                        identity=parts.identity,
                        sessions=parts.sessions,
                        ids=parts.ids,
                        observer=metrics,
                        alarms=parts.alarms,
                        bound=None if tls is None else tls.principals,
                    ),
                    services=Services(
                        ChatServicer(parts.chat),
                        ApprovalServicer(
                            parts.approvals,
                            store,
                            partial(watch_approvals, store, store.audit, parts.engine.approvals),
                        ),
                        CatalogServicer(
                            parts.host,
                            parts.profiles,
                            store,
                            partial(_problems_of, settings),
                            parts.restart,
                        ),
                        PolicyServicer(parts.overrides),
                        AuditServicer(
                            store.audit,
                            store.principals,
                            heads=anchor.file.read,
                            public_key=anchor.public.pem.decode(),
                        ),
                        RunServicer(RunDesk(store.runs, store.principals)),
                        IdentityServicer(parts.principals),
                    ),
                    addresses=addresses,
                    certificates=certificates,
                )
                async with operations(settings, parts, store, metrics) as (readiness, ops), parts.host:
                    await parts.host.wait_settled(ADMISSION_SECONDS)
                    announce = partial(directory.announced, version=version, config=settings.source, ops=ops)
                    await _run(
                        parts,
                        server,
                        settings,
                        announce=announce,
                        ready=ready,
                        keeper=keeper,
                        readiness=readiness,
                        superseded=superseded,
                    )
        finally:
            await store.close()
            socket.unlink(missing_ok=True)
    await leave()


async def _run(
    parts: Composition,
    server: GatewayServer,
    settings: Settings,
    *,
    announce: Callable[[Sequence[str]], contextlib.AbstractContextManager[None]],
    ready: Callable[[Serving], None],
    keeper: HeadKeeper,
    readiness: Readiness,
    superseded: Sequence[str],
) -> None:
    terminated, hurried = asyncio.Event(), asyncio.Event()
    stopping, started = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurried if terminated.is_set() else terminated).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    # `nohup` has it ignored. Shell and kernel both send it when a terminal is closed: two do not hurry.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, terminated.set)
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.engine.run(started, stopping))
        expiry = group.create_task(parts.approvals.expire())
        anchoring = group.create_task(keeper.run())
        leftovers = group.create_task(parts.leftovers.run())
        await started.wait()
        bound = await server.start()
        with announce(bound):
            log.info("serving", addresses=list(bound))
            problems = profile_problems(settings, parts.host.statuses())
            for problem in problems:
                log.warning("profile_unusable", profile=problem.profile, reason=problem.message)
            warnings = [*superseded, *(problem.message for problem in problems)]
            ready(Serving(bound, _lifecycles(parts), warnings))
            readiness.phase = ""
            collector.settle()
            await terminated.wait()
        log.info("draining")
        readiness.phase = "draining"
        parts.chat.drain()
        parts.engine.drain()
        server.drain()
        rested = await _rest(parts.engine, hurried)
        log.info("drained", rested=rested, hurried=hurried.is_set())
        parts.streams.close()
        parts.engine.approvals.close()
        await server.stop(0 if hurried.is_set() else GRACE_SECONDS)
        expiry.cancel()
        anchoring.cancel()
        leftovers.cancel()
        stopping.set()


async def _rest(engine: Engine, hurried: asyncio.Event) -> bool:
    """Let turns in work reach a durable rest until time is up or somebody hurries; tell whether all did."""
    rest, hurry = asyncio.ensure_future(engine.idle()), asyncio.ensure_future(hurried.wait())
    await asyncio.wait([rest, hurry], timeout=DRAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    rest.cancel()
    hurry.cancel()
    return rest.done()


def _superseded(override: Override) -> str:
    """Say which permission a start ended, for log and terminal."""
    why = "" if override.revocation is None else override.revocation.reason
    log.warning("override_superseded", override=override.override_id, permits=override.summary, reason=why)
    return f"permission {override.override_id} ({override.summary}) {why}"


def _problems_of(settings: Settings, status: ProviderStatus) -> list[str]:
    return [problem.message for problem in profile_problems(settings, [status])]


def _lifecycles(parts: Composition) -> dict[str, str]:
    return {
        status.name: status.lifecycle.value + (f": {status.reason}" if status.reason else "")
        for status in parts.host.statuses()
    }
