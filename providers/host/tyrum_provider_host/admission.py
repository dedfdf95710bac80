"""Admission of one provider instance: every check in its order, fail closed, before anything may bind.

Invariants: built-in and external providers pass the same stages (ARCH-29, decision 3); a later stage never
runs when an earlier one failed; secrets are resolved only after everything that needs no secret has passed.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tyrum_provider_host import config as configs
from tyrum_provider_host import handshake, proof
from tyrum_provider_host.artifact import Artifact, ArtifactError, describe, measure
from tyrum_provider_host.channel_client import ProviderChannel
from tyrum_provider_host.contracts import DeploymentMode, KindContract
from tyrum_provider_host.control_client import ContractViolation, ControlClient
from tyrum_provider_host.descriptor import Descriptor, DescriptorError
from tyrum_provider_host.errors import CallError, Effect, ProviderError
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.isolation_types import Posture
from tyrum_provider_host.launch import (
    InstanceDirectory,
    LaunchError,
    ProviderProcess,
    create_directory,
    environment,
    spawn,
)
from tyrum_provider_host.logs import LogRing
from tyrum_provider_host.rejection import AUTHOR, OPERATOR, Rejected, Stage, StageResult
from tyrum_provider_host.socketpeer import Peer, belongs_to, open_connections, try_connect
from tyrum_provider_host.spec import ProviderSpec, Secret, TimeBounds
from tyrum_provider_host.states import Facts
from tyrum_provider_host.version import ImplementationRange

ISOLATION = "isolation"
_SETTLE_INTERVAL = 0.02


class SecretUnresolved(ProviderError):
    """A secret's source yields no value; the message says why without showing any."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What admission needs to know about the host."""

    state_directory: Path
    """Directory of all providers' state directories."""
    runtime_directory: Path
    contracts: Mapping[str, KindContract]
    bounds: TimeBounds
    version: str
    uid: int


class AdmissionRecord:
    """What admission has found about one instance so far; grows stage by stage."""

    def __init__(self, spec: ProviderSpec, ring: LogRing) -> None:
        self.stage = Stage.ARTIFACT
        self.stages: tuple[StageResult, ...] = ()
        self.facts = Facts(required=spec.required_capabilities)
        self.ring = ring
        self.artifact: Artifact | None = None
        self.contract: KindContract | None = None
        self.descriptor: Descriptor | None = None
        self.config_digest: str | None = None
        self.posture: Posture | None = None
        self.listening_at: float | None = None
        self.admitted_at: float | None = None

    def passed(self, stage: Stage, detail: str, **facts: Any) -> None:
        """Record that `stage` passed and what it showed, and go on to the next."""
        self.stages += (StageResult(stage, passed=True, detail=detail),)
        self.facts = replace(self.facts, **facts)
        order = list(Stage)
        self.stage = order[min(order.index(stage) + 1, len(order) - 1)]

    def failed(self, rejected: Rejected) -> None:
        """Record the refusal."""
        self.stages += (StageResult(rejected.stage, passed=False, detail=rejected.text),)
        match rejected.stage:
            case Stage.ARTIFACT | Stage.SPAWN:
                self.facts = replace(self.facts, artifact_problem=rejected.text)
            case Stage.SECRETS | Stage.CONFIG | Stage.CONFIGURE:
                self.facts = replace(self.facts, config_problem=rejected.text)
            case _:
                pass


class Instance:
    """A started provider process with everything that belongs to it."""

    def __init__(
        self, spec: ProviderSpec, process: ProviderProcess, directory: InstanceDirectory, bounds: TimeBounds
    ) -> None:
        self.process, self.directory = process, directory
        self.channel = ProviderChannel(spec.name, directory.socket)
        self.control = ControlClient(self.channel, bounds)


async def measure_artifact(spec: ProviderSpec, record: AdmissionRecord) -> None:
    """Hash what will be executed and compare it with the operator's pin.

    Raises:
        Rejected: it cannot be read, or differs from the pin.
    """
    try:
        artifact = await asyncio.to_thread(measure, spec.command)
    except ArtifactError as error:
        raise Rejected(
            Stage.ARTIFACT, str(error), action=f"{OPERATOR}: install the provider or correct its command"
        ) from None
    record.artifact = artifact
    if spec.artifact_sha256 is not None:
        pinned = "sha256:" + spec.artifact_sha256.removeprefix("sha256:")
        if artifact.digest != pinned:
            raise Rejected(
                Stage.ARTIFACT,
                f"the artifact is not the pinned one ({artifact.coverage})",
                expected=pinned,
                found=artifact.digest,
                action=f"{OPERATOR}: install the pinned build, or change the pin after reviewing this one",
            )
    record.passed(Stage.ARTIFACT, f"{artifact.digest} over {artifact.coverage}", artifact=artifact.digest)


def agree_beforehand(spec: ProviderSpec, host: HostFacts) -> KindContract:
    """Check what needs no process: the kind is known, and the operator's trust and deployment fit it.

    Raises:
        Rejected: they do not.
    """
    contract = host.contracts.get(spec.kind)
    if contract is None:
        raise Rejected(
            Stage.CONTRACT,
            "this gateway has no contract for the kind",
            expected=f"one of {', '.join(sorted(host.contracts))}",
            found=spec.kind,
            action=f"{OPERATOR}: correct the kind, or upgrade the gateway",
        )
    if spec.deployment not in contract.deployment_modes:
        raise Rejected(
            Stage.TRUST,
            f"the contract {contract.label} does not admit the configured deployment mode",
            expected=_listed(contract.deployment_modes),
            found=spec.deployment,
            action=f"{OPERATOR}: configure an admitted deployment mode",
        )
    if spec.trust not in contract.trusts:
        raise Rejected(
            Stage.TRUST,
            f"the contract {contract.label} does not admit the configured trust",
            expected=_listed(contract.trusts),
            found=spec.trust,
            action=f"{OPERATOR}: configure an admitted trust",
        )
    assert spec.deployment is DeploymentMode.LOCAL_PROCESS
    return contract


async def launch(
    spec: ProviderSpec, host: HostFacts, record: AdmissionRecord, *, instance_id: str, token: bytes
) -> Instance:
    """Create directory and process.

    Raises:
        Rejected: the directory cannot be made or the program not executed.
    """
    state = host.state_directory / spec.name
    try:
        await asyncio.to_thread(_private_directory, state)
        directory = await asyncio.to_thread(create_directory, host.runtime_directory)
    except LaunchError as error:
        raise Rejected(Stage.SPAWN, str(error), action=f"{OPERATOR}: correct the directories") from None
    record.ring.redact((proof.encode(token), proof.bearer(token)))
    try:
        process = spawn(
            spec.command,
            environment=environment(
                directory=directory, state_directory=state, instance_id=instance_id, allowed=spec.environment
            ),
            token_line=proof.encode(token).encode() + b"\n",
            ring=record.ring,
        )
    except OSError as error:
        await asyncio.to_thread(directory.remove)
        program = Path(spec.command[0])
        facts = await asyncio.to_thread(describe, program)
        raise Rejected(
            Stage.SPAWN,
            f"{program} cannot be executed: {error.strerror} ({facts})",
            action=f"{OPERATOR}: install a build for this machine and make it executable",
            transient=isinstance(error, BlockingIOError | MemoryError),
        ) from None
    record.passed(Stage.SPAWN, f"pid {process.pid}", alive=True)
    return Instance(spec, process, directory, host.bounds)


async def admit(
    spec: ProviderSpec,
    host: HostFacts,
    record: AdmissionRecord,
    instance: Instance,
    *,
    instance_id: str,
    token: bytes,
    previous_provider_id: str | None,
) -> None:
    """Pass every stage from listening to health.

    Raises:
        Rejected: a stage failed.
    """
    contract = agree_beforehand(spec, host)
    try:
        await _listen_and_peer(spec, host, record, instance)
        answer = await handshake.greet(
            instance.control, contract, instance_id=instance_id, token=token, host_version=host.version
        )
        await _own_connection(host, record, instance)
        record.passed(Stage.HANDSHAKE, "the proof over a fresh nonce is right", authenticated=True)
        handshake.agree(answer, contract)
        record.contract = contract
        record.passed(Stage.CONTRACT, f"{contract.label}, {contract.digest}")
        instance.channel.authenticate(proof.bearer(token))
        descriptor = await _descriptor(contract, record, instance, previous_provider_id)
        _trust(spec, descriptor, record)
        _implementation(spec, descriptor, record)
        await _configuration(spec, descriptor, record, instance)
        await _settle(spec, host, contract, record, instance)
    except (CallError, ContractViolation) as error:
        raise Rejected(
            record.stage,
            str(error),
            action=f"{AUTHOR}: answer as the contract says",
            transient=isinstance(error, CallError) and error.effect is Effect.UNKNOWN,
        ) from None


async def _listen_and_peer(
    spec: ProviderSpec, host: HostFacts, record: AdmissionRecord, instance: Instance
) -> None:
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


async def _own_connection(host: HostFacts, record: AdmissionRecord, instance: Instance) -> None:
    peers = await asyncio.to_thread(open_connections, instance.directory.socket)
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
    """

    def peers() -> tuple[Peer, ...]:
        path = instance.directory.socket
        try:
            listener = try_connect(path)
        except OSError:
            listener = None
        return (*open_connections(path), *(() if listener is None else (listener,)))

    for peer in await asyncio.to_thread(peers):
        _require_peer(peer, host, instance)


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


async def _descriptor(
    contract: KindContract, record: AdmissionRecord, instance: Instance, previous_provider_id: str | None
) -> Descriptor:
    try:
        descriptor = await instance.control.descriptor()
    except DescriptorError as error:
        raise Rejected(
            Stage.DESCRIPTOR,
            f"the descriptor is malformed: {error}",
            action=f"{AUTHOR}: correct these fields",
        ) from None
    if descriptor.kind != contract.kind:
        raise Rejected(
            Stage.DESCRIPTOR,
            "the descriptor names another kind than the handshake",
            expected=contract.kind,
            found=descriptor.kind[:32],
            action=f"{AUTHOR}: name the same kind in both",
        )
    if descriptor.cardinality is not contract.cardinality:
        raise Rejected(
            Stage.DESCRIPTOR,
            "the declared cardinality is not the contract's",
            expected=contract.cardinality,
            found=descriptor.cardinality,
            action=f"{AUTHOR}: declare the constant of the contract {contract.label}",
        )
    if previous_provider_id is not None and descriptor.provider_id != previous_provider_id:
        raise Rejected(
            Stage.DESCRIPTOR,
            "the restarted provider is another one",
            expected=previous_provider_id,
            found=descriptor.provider_id,
            action=f"{OPERATOR}: give another provider another name and restart the gateway",
        )
    record.descriptor = descriptor
    record.passed(
        Stage.DESCRIPTOR,
        f"{descriptor.provider_id} {descriptor.version_text}",
        declared=descriptor.capabilities,
    )
    return descriptor


def _trust(spec: ProviderSpec, descriptor: Descriptor, record: AdmissionRecord) -> None:
    for what, configured, declared in (
        ("deployment mode", spec.deployment, descriptor.deployment_mode),
        ("trust", spec.trust, descriptor.trust),
    ):
        if configured != declared:
            raise Rejected(
                Stage.TRUST,
                f"the provider declares another {what} than the operator configured",
                expected=configured,
                found=declared,
                action=f"{OPERATOR}: configure what you accept, or {AUTHOR}: declare what is true",
            )
    record.passed(Stage.TRUST, f"{spec.trust}, {spec.deployment}: contract, descriptor and operator agree")


def _implementation(spec: ProviderSpec, descriptor: Descriptor, record: AdmissionRecord) -> None:
    if spec.implementation_range is None:
        record.passed(Stage.IMPLEMENTATION, f"{descriptor.version_text}; the operator set no range")
        return
    if not ImplementationRange.parse(spec.implementation_range).admits(descriptor.implementation_version):
        raise Rejected(
            Stage.IMPLEMENTATION,
            "the implementation version is outside the operator's range",
            expected=spec.implementation_range,
            found=descriptor.version_text,
            action=f"{OPERATOR}: install a build in the range, or change implementation_range",
        )
    record.passed(Stage.IMPLEMENTATION, f"{descriptor.version_text} is in {spec.implementation_range}")


async def _configuration(
    spec: ProviderSpec, descriptor: Descriptor, record: AdmissionRecord, instance: Instance
) -> None:
    configured = set(spec.secrets)
    declared = {slot.name for slot in descriptor.secret_slots}
    required = {slot.name for slot in descriptor.secret_slots if slot.required}
    if not configured <= declared or not required <= configured:
        undeclared, missing = sorted(configured - declared), sorted(required - configured)
        problems = [f"`{slot}` is configured and not declared" for slot in undeclared]
        problems += [f"`{slot}` is required and not configured" for slot in missing]
        raise Rejected(
            Stage.SECRETS,
            f"the secret slots do not match: {'; '.join(problems)}",
            expected=_listed(required)
            + (f" and optionally {_listed(declared - required)}" if declared - required else ""),
            found=_listed(configured),
            action=f"{OPERATOR}: configure exactly the declared slots",
        )
    record.passed(Stage.SECRETS, f"slots {_listed(configured)}")
    try:
        prepared = configs.prepare(spec.config)
        findings = configs.findings(descriptor.config_schema, prepared)
    except configs.ConfigError as error:
        actor = AUTHOR if "schema" in str(error) else OPERATOR
        raise Rejected(Stage.CONFIG, str(error), action=f"{actor}: correct it") from None
    if not findings:
        answered = await instance.control.validate(prepared.canonical, tuple(sorted(configured)))
        findings = tuple(map(str, answered))
    if findings:
        raise Rejected(
            Stage.CONFIG,
            f"the configuration is not valid: {'; '.join(findings)}",
            action=f"{OPERATOR}: correct the provider's `config`",
        )
    record.passed(Stage.CONFIG, "valid by the provider's schema and by the provider itself")
    secrets = _resolved(spec)
    record.ring.redact(secret.reveal() for secret in secrets.values())
    try:
        applied = await instance.control.configure(
            prepared.canonical, prepared.digest, secrets, provider_name=spec.name
        )
    except CallError as error:
        raise Rejected(
            Stage.CONFIGURE,
            f"the provider refused the configuration: {error}"
            + "".join(f"; {key}={value}" for key, value in error.metadata.items()),
            action=f"{AUTHOR}: answer as the contract says"
            if error.effect is Effect.UNKNOWN
            else f"{OPERATOR}: correct the provider's `config` or `secrets`",
            transient=error.effect is Effect.UNKNOWN,
        ) from None
    if applied != prepared.digest:
        raise Rejected(
            Stage.CONFIGURE,
            "the provider applied another configuration than the one sent",
            expected=prepared.digest,
            found=applied,
            action=f"{AUTHOR}: return the digest of the bytes that were applied",
        )
    record.config_digest = prepared.digest
    record.passed(Stage.CONFIGURE, f"{prepared.digest} applied", applied_config=applied)


def _resolved(spec: ProviderSpec) -> dict[str, Secret]:
    secrets = {}
    for slot, source in spec.secrets.items():
        try:
            secrets[slot] = source if isinstance(source, Secret) else source()
        except SecretUnresolved as error:
            raise Rejected(
                Stage.SECRETS,
                f"the secret for the slot `{slot}` cannot be resolved: {error}",
                action=f"{OPERATOR}: make the secret available",
            ) from None
    return secrets


async def _settle(
    spec: ProviderSpec, host: HostFacts, contract: KindContract, record: AdmissionRecord, instance: Instance
) -> None:
    loop = asyncio.get_running_loop()
    declared = record.facts.declared or frozenset()
    deadline = loop.time() + host.bounds.settle
    while True:
        probe = await instance.control.probe(declared)
        if probe.ready:
            break
        if loop.time() >= deadline:
            raise Rejected(
                Stage.PROBE,
                f"the provider is not ready {host.bounds.settle:g} s after its configuration: {probe.detail}",
                action=f"{OPERATOR}: see to the failing condition",
                transient=True,
            )
        await asyncio.sleep(_SETTLE_INTERVAL)
    record.passed(Stage.PROBE, probe.detail, probe=probe)
    missing = sorted(spec.required_capabilities - declared) + sorted(
        spec.required_capabilities & probe.unavailable.keys()
    )
    if missing:
        raise Rejected(
            Stage.CAPABILITY,
            "required capabilities are not declared or not available",
            expected=_listed(spec.required_capabilities),
            found=_listed(declared - probe.unavailable.keys()),
            action=f"{OPERATOR}: select another provider for these profiles, or change what they need",
        )
    record.passed(Stage.CAPABILITY, f"declared: {_listed(declared)}")
    if contract.kind == ISOLATION:
        record.posture = await IsolationClient(instance.channel).posture(timeout=host.bounds.posture)
        record.passed(
            Stage.POSTURE,
            f"{len(record.posture.claims)} claims, commands run as uid {record.posture.run_uid}",
        )
        record.stage = Stage.HEALTH
    await _health(host, contract, record, instance, deadline)


async def _health(
    host: HostFacts, contract: KindContract, record: AdmissionRecord, instance: Instance, deadline: float
) -> None:
    loop = asyncio.get_running_loop()
    while record.facts.health.healthy is not True:
        problem = await check_health(instance.control, contract)
        health = record.facts.health
        record.facts = replace(
            record.facts, health=health.good() if problem is None else health.miss(problem)
        )
        if problem is not None:
            if loop.time() >= deadline:
                raise Rejected(
                    Stage.HEALTH,
                    f"the health is not SERVING {host.bounds.settle:g} s after the configuration: {problem}",
                    action=f"{AUTHOR}: serve SERVING for `` and `{contract.service}` once the probe is ready",
                    transient=True,
                )
            await asyncio.sleep(_SETTLE_INTERVAL)
    record.admitted_at = loop.time()
    record.passed(Stage.HEALTH, record.facts.health.detail)


async def check_health(control: ControlClient, contract: KindContract) -> str | None:
    """Ask once for the health of the server and of the domain service; None when both are SERVING."""
    for service in ("", contract.service):
        status = await control.serving(service)
        if status is not None:
            return f"health of `{service}` is {status}"
    return None


def _private_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise LaunchError(f"the state directory {path} cannot be used: {error.strerror}") from None


def _listed(names: "frozenset[Any] | set[Any]") -> str:
    return ", ".join(sorted(map(str, names))) or "none"
