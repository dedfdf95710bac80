"""From settings to objects: every adapter is chosen here, once, and handed to what needs it."""

import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.alarms import Alarms
from tyrum_gateway.app.approvals import ApprovalDesk
from tyrum_gateway.app.chat import ChatDesk
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.identity import Identity
from tyrum_gateway.app.leftovers import Leftovers
from tyrum_gateway.app.observer import Observer
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.app.principals import PrincipalDesk
from tyrum_gateway.app.provider_restart import ProviderRestart
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.model_transport import transport
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.config.providers import provider_specs
from tyrum_gateway.config.secrets import SecretReference, SecretValue
from tyrum_gateway.config.secrets import SecretUnavailable as ReferenceUnavailable
from tyrum_gateway.config.settings import AgentSettings, Settings
from tyrum_gateway.domain.commit import Origin
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.model import Model
from tyrum_gateway.domain.policy import DEPLOYMENT, together
from tyrum_gateway.domain.process import RunLimits
from tyrum_gateway.domain.tool import Tool
from tyrum_gateway.domain.turn import TurnLimits
from tyrum_gateway.models.first_available import FirstAvailable
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.telemetry.redaction import Redactor
from tyrum_gateway.tools.hosted_isolation import HostedIsolation
from tyrum_gateway.tools.process_run import ProcessRunTool, SecretUnavailable
from tyrum_gateway.tools.programs import SearchPath
from tyrum_gateway.tools.run_call import NAME as PROCESS_RUN
from tyrum_gateway.tools.run_call import RunSettings
from tyrum_gateway.tools.workspace import prepare_workspace
from tyrum_provider_host.host import ProviderHost

_OPEN = partial(SqliteStore.open, log_room=True)


@dataclass(frozen=True, slots=True)
class Seams:
    """Where a bench or a test composes a gateway of its own; the command line always uses the defaults."""

    open_store: Callable[[Path], Awaitable[SqliteStore]] = _OPEN
    """Opens the durable truth."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Tools beside the configured ones."""
    around_model: Callable[[Model], Model] = lambda model: model
    """Wraps the configured model, or takes its place."""
    around_tool: Callable[[Tool], Tool] = lambda tool: tool
    """Wraps each configured tool."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A gateway's parts, wired, not yet running."""

    host: ProviderHost
    identity: Identity
    sessions: Sessions
    principals: PrincipalDesk
    streams: Streams
    engine: Engine
    chat: ChatDesk
    approvals: ApprovalDesk
    overrides: Overrides
    ids: RandomIds
    alarms: Alarms
    leftovers: Leftovers
    restart: ProviderRestart
    profiles: Mapping[str, tuple[str, ...]]
    """Provider name to the profiles that select it."""


def compose(
    settings: Settings,
    *,
    store: SqliteStore,
    runtime: Path,
    redactor: Redactor,
    version: str,
    seams: Seams,
    observer: Observer | None = None,
) -> Composition:
    """Wire a gateway.

    Args:
        settings: The operator's configuration.
        store: The durable truth, open.
        runtime: Private directory for sockets.
        redactor: Learns every secret that is resolved.
        version: Of the gateway, told to providers.
        seams: What a bench or a test puts in the place of a part.
        observer: Is told what happens; nobody by default.

    Raises:
        StateUnusable: The workspace cannot be prepared.
        ScriptInvalid: The script of a scripted model cannot be used.
    """
    clock, ids, streams, alarms = SystemClock(), RandomIds(), Streams(), Alarms()
    identity, sessions = Identity(store=store, clock=clock, ids=ids), Sessions(clock)
    vault = Vault(settings.secrets, redactor)
    host = ProviderHost(
        provider_specs(settings, vault.resolve),
        state_dir=settings.state_dir,
        runtime_dir=runtime,
        version=version,
        concealed=vault.known,
    )
    chosen = settings.agents["default"]
    isolation = _isolation(settings, chosen, host)
    tools = _tools(settings, chosen, isolation, vault)
    agent = Agent(
        instructions=chosen.instructions,
        model=seams.around_model(_model(settings, chosen, vault, version, redactor)),
        policy=together(settings.policies.get(DEPLOYMENT), settings.policies[chosen.policy]),
        tools={
            **{name: seams.around_tool(tool) for name, tool in tools.items()},
            **seams.tools,
        },
        name=chosen.name,
        model_name=chosen.models[0],
    )
    limits = _limits(settings)
    overrides = Overrides(store=store.overrides, clock=clock)
    engine = Engine(
        agent=agent,
        store=store,
        clock=clock,
        ids=ids,
        streams=streams,
        limits=limits,
        permissions=overrides,
        observer=observer,
        alarms=alarms,
    )
    return Composition(
        host=host,
        identity=identity,
        sessions=sessions,
        principals=PrincipalDesk(
            store=store.principals, clock=clock, ids=ids, identity=identity, sessions=sessions
        ),
        streams=streams,
        engine=engine,
        chat=ChatDesk(
            store=store,
            clock=clock,
            ids=ids,
            engine=engine,
            streams=streams,
            limits=limits,
            origin=Origin(
                agent=chosen.name, model=chosen.models[0], backend="native", host=socket.gethostname()
            ),
        ),
        approvals=ApprovalDesk(
            store=store,
            clock=clock,
            ids=ids,
            engine=engine,
            overrides=overrides,
            limits=limits,
            requester_may_approve=settings.requester_may_approve,
            alarms=alarms,
        ),
        overrides=overrides,
        ids=ids,
        alarms=alarms,
        restart=ProviderRestart(store=store, clock=clock, restart=host.restart),
        leftovers=Leftovers(store, () if isolation is None else (isolation,)),
        profiles={
            provider: tuple(
                f"isolation.{profile.name}"
                for profile in settings.isolation_profiles.values()
                if profile.provider == provider
            )
            for provider in settings.providers
        },
    )


class Vault:
    """Resolves references at projection, and has every value masked in logs from the start on."""

    def __init__(self, references: Mapping[str, SecretReference], redactor: Redactor) -> None:
        self._references = references
        self._redactor = redactor
        # Before anything is logged that may repeat a value which was not used yet.
        self.known()

    def known(self) -> tuple[str, ...]:
        """Return every value that can be had now, of all agents; all are masked in logs from now on."""
        values = []
        for reference in self._references.values():
            with contextlib.suppress(ReferenceUnavailable):
                values.append(self.resolve(reference).reveal())
        return tuple(values)

    def reveal(self, name: str) -> str:
        """Return a value for the one place that projects it.

        Raises:
            SecretUnavailable: The reference leads nowhere now.
        """
        try:
            return self.resolve(self._references[name]).reveal()
        except ReferenceUnavailable as error:
            raise SecretUnavailable(str(error)) from None

    def resolve(self, reference: SecretReference) -> SecretValue:
        """Resolve a reference and have its value masked from now on.

        Raises:
            ReferenceUnavailable: It leads nowhere now.
        """
        value = reference.resolve()
        self._redactor.register([value.reveal()])
        return value


def _model(settings: Settings, agent: AgentSettings, vault: Vault, version: str, redactor: Redactor) -> Model:
    models = [
        (name, transport(settings.models[name], vault.reveal, version, redactor.text))
        for name in agent.models
    ]
    if len(models) == 1:
        return models[0][1]
    return FirstAvailable(models, settings.limits.step_time.total_seconds())


def _isolation(settings: Settings, agent: AgentSettings, host: ProviderHost) -> HostedIsolation | None:
    if agent.isolation_profile is None:
        return None
    profile = settings.isolation_profiles[agent.isolation_profile]
    return HostedIsolation(
        host, provider=profile.provider, profile=profile.name, required_claims=profile.required_claims
    )


def _tools(
    settings: Settings, agent: AgentSettings, isolation: HostedIsolation | None, vault: Vault
) -> dict[str, Tool]:
    """Without an isolation profile there are no process tools."""
    if agent.isolation_profile is None or isolation is None:
        return {}
    profile = settings.isolation_profiles[agent.isolation_profile]
    try:
        workspace = prepare_workspace(agent.workspace)
    except OSError as error:
        raise StateUnusable(f"cannot use the workspace `{agent.workspace}`: {error.strerror}") from error
    run = RunSettings(
        workspace=workspace,
        search=SearchPath(tuple(str(directory) for directory in profile.path)),
        limits=RunLimits(profile.wall_time, profile.output_bytes, profile.kill_grace),
        required_claims=profile.required_claims,
        secrets=frozenset(agent.secrets),
        concealed=frozenset(settings.secrets),
    )
    return {PROCESS_RUN: ProcessRunTool(run, isolation, vault.reveal)}


def _limits(settings: Settings) -> EngineLimits:
    limits = settings.limits
    return EngineLimits(
        turn=TurnLimits(limits.steps_per_turn, limits.attempts_per_step, limits.tokens_per_turn),
        step_time=limits.step_time,
        turn_time=limits.turn_time,
        approval_expiry=settings.approval_expiry,
        queued_per_conversation=limits.queued_per_conversation,
        unfinished_per_principal=limits.unfinished_turns_per_principal,
        concurrent_turns=limits.concurrent_turns,
        daily_tokens_per_principal=limits.daily_tokens_per_principal,
    )
