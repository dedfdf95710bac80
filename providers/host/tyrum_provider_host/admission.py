"""Admission of one provider instance: every check in its order, fail closed, before anything may bind.

Invariants: built-in and external providers pass the same stages (ARCH-29, decision 3); a later stage never
runs when an earlier one failed; secrets are resolved only after everything that needs no secret has passed.
"""

import asyncio
from dataclasses import replace

from tyrum_provider_host import claims, handshake, proof
from tyrum_provider_host.agreement import (
    check_configuration,
    check_descriptor,
    check_implementation,
    check_trust,
)
from tyrum_provider_host.contracts import KindContract
from tyrum_provider_host.control_client import ContractViolation, ControlClient
from tyrum_provider_host.errors import ANSWERED, CallError, ProviderBug, Transient
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.isolation_types import Posture
from tyrum_provider_host.listening import check_connection, wait_for_listener
from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import AUTHOR, OPERATOR, Rejected, Stage, listed
from tyrum_provider_host.service_check import check_bearer, check_methods
from tyrum_provider_host.spec import ProviderSpec

ISOLATION = "isolation"
_SETTLE_INTERVAL = 0.02
_NAMED = 20
"""Unknown claims that a refusal names."""


async def admit(
    spec: ProviderSpec,
    host: HostFacts,
    record: AdmissionRecord,
    instance: Instance,
    *,
    contract: KindContract,
    instance_id: str,
    token: bytes,
    previous_provider_id: str | None,
) -> None:
    """Pass every stage from listening to health.

    Raises:
        Rejected: a stage failed.
    """
    try:
        await wait_for_listener(spec, host, record, instance)
        answer = await handshake.greet(
            instance.control, contract, instance_id=instance_id, token=token, host_version=host.version
        )
        await check_connection(host, record, instance)
        record.passed(Stage.HANDSHAKE, "the proof over a fresh nonce is right", authenticated=True)
        handshake.agree(answer, contract)
        record.contract = contract
        record.passed(Stage.CONTRACT, f"{contract.label}, {contract.digest}")
        await check_bearer(host, contract, record, instance)
        instance.channel.authenticate(proof.bearer(token))
        descriptor = await check_descriptor(contract, record, instance, previous_provider_id)
        check_trust(spec, descriptor, record)
        check_implementation(spec, descriptor, record)
        await check_configuration(spec, host, descriptor, record, instance)
        await _settle(spec, host, contract, record, instance)
    except (CallError, ContractViolation) as error:
        raise Rejected(
            record.stage,
            str(error),
            action=f"{AUTHOR}: answer as the contract says",
            transient=isinstance(error, CallError) and error.passing,
            passes=isinstance(error, Transient),
        ) from None


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
            expected=listed(spec.required_capabilities),
            found=listed(declared - probe.unavailable.keys()),
            action=f"{OPERATOR}: select another provider for these profiles, or change what they need",
            transient=spec.required_capabilities <= declared,
        )
    record.passed(Stage.CAPABILITY, f"declared: {listed(declared)}")
    await check_methods(host, contract, record, instance)
    if contract.kind == ISOLATION:
        record.posture = await _posture(host, contract, instance)
        record.passed(
            Stage.POSTURE,
            f"all {len(claims.CLAIMS)} claims are stated, commands run as uid {record.posture.run_uid}",
        )
        record.stage = Stage.HEALTH
    await _health(host, contract, record, instance, deadline)


async def _posture(host: HostFacts, contract: KindContract, instance: Instance) -> Posture:
    """Ask for the posture, which states exactly the claims of the registry."""
    action = f"{AUTHOR}: state every claim that `Claim.name` in isolation.proto lists once, and no other"
    try:
        posture = await IsolationClient(instance.channel).posture(timeout=host.bounds.posture)
    except ProviderBug as bug:
        if bug.code != ANSWERED:
            raise
        raise Rejected(Stage.POSTURE, bug.detail, action=action) from None
    missing, unknown = claims.missing(posture), claims.unknown(posture)
    if missing or unknown:
        raise Rejected(
            Stage.POSTURE,
            f"the posture does not state exactly the {len(claims.CLAIMS)} claims of {contract.label}: "
            f"missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown[:_NAMED]) or 'none'}",
            action=action,
        )
    return posture


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
