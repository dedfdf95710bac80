"""Admission by what the provider says about itself: descriptor, trust, version, configuration, secrets.

Invariant: contract, descriptor and operator agree on every value that more than one of them states, before
any secret is resolved.
"""

import asyncio
import re
from collections.abc import Mapping

from tyrum_provider_host import config as configs
from tyrum_provider_host.contracts import KindContract
from tyrum_provider_host.control_client import Applied
from tyrum_provider_host.descriptor import Descriptor, DescriptorError
from tyrum_provider_host.errors import CallError, Effect, ProviderError, Transient
from tyrum_provider_host.logs import sanitise
from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import AUTHOR, OPERATOR, Rejected, Stage, listed
from tyrum_provider_host.spec import ProviderSpec, Secret
from tyrum_provider_host.version import ImplementationRange

_RETRY_INTERVAL = 0.1
_JOURNAL_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")


class SecretUnresolved(ProviderError):
    """A secret's source yields no value; the message says why without showing any."""


async def check_descriptor(
    contract: KindContract, record: AdmissionRecord, instance: Instance, previous_provider_id: str | None
) -> Descriptor:
    """Read the descriptor and check it against contract and predecessor.

    Raises:
        Rejected: a field is malformed or is not what the contract or the earlier instance says.
    """
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
            found=sanitise(descriptor.kind, 32),
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


def check_trust(spec: ProviderSpec, descriptor: Descriptor, record: AdmissionRecord) -> None:
    """Compare trust and deployment mode with the operator's.

    Raises:
        Rejected: they differ.
    """
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


def check_implementation(spec: ProviderSpec, descriptor: Descriptor, record: AdmissionRecord) -> None:
    """Compare the implementation version with the operator's range.

    Raises:
        Rejected: it is outside.
    """
    if spec.implementation_range is None:
        record.passed(Stage.IMPLEMENTATION, f"{descriptor.version_text}; the operator set no range")
        return
    if not ImplementationRange.parse(spec.implementation_range).admits(descriptor.implementation_version):
        raise Rejected(
            Stage.IMPLEMENTATION,
            "the implementation version is outside the operator's range",
            expected=spec.implementation_range,
            found=descriptor.version_text,
            action=f"{OPERATOR}: install a build in the range, or change implementation_version",
        )
    record.passed(Stage.IMPLEMENTATION, f"{descriptor.version_text} is in {spec.implementation_range}")


async def check_configuration(
    spec: ProviderSpec,
    host: HostFacts,
    descriptor: Descriptor,
    record: AdmissionRecord,
    instance: Instance,
) -> None:
    """Validate and apply the configuration, and project the secrets.

    Raises:
        Rejected: slots or configuration are not valid, or the provider does not confirm them.
    """
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
            expected=listed(required)
            + (f" and optionally {listed(declared - required)}" if declared - required else ""),
            found=listed(configured),
            action=f"{OPERATOR}: configure exactly the declared slots",
        )
    record.passed(Stage.SECRETS, f"slots {listed(configured)}")
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
        applied = await _applied(spec, prepared, secrets, instance, within=host.bounds.configure)
    except CallError as error:
        raise Rejected(
            Stage.CONFIGURE,
            f"the provider refused the configuration: {error}"
            + "".join(f"; {key}={value}" for key, value in error.metadata.items()),
            action=_who_acts(error),
            transient=error.passing,
            passes=isinstance(error, Transient),
        ) from None
    if applied.digest != prepared.digest:
        raise Rejected(
            Stage.CONFIGURE,
            "the provider applied another configuration than the one sent",
            expected=prepared.digest,
            found=applied.digest,
            action=f"{AUTHOR}: return the digest of the bytes that were applied",
        )
    _check_journal(host.contracts[descriptor.kind], applied)
    record.config_digest, record.journal_id = prepared.digest, applied.journal_id
    record.passed(Stage.CONFIGURE, f"{prepared.digest} applied", applied_config=applied.digest)


def _check_journal(contract: KindContract, applied: Applied) -> None:
    """Insist on the identity of the journal that operations will be resolved from."""
    if not contract.resolves_operations or _JOURNAL_ID.fullmatch(applied.journal_id):
        return
    raise Rejected(
        Stage.CONFIGURE,
        f"the provider names no journal, from which a provider of {contract.label} resolves operations",
        expected="16 to 64 characters of [A-Za-z0-9_-] in `journal_id`",
        found=applied.journal_id,
        action=f"{AUTHOR}: name the journal in ConfigureResponse, as control.proto says",
    )


def _who_acts(error: CallError) -> str:
    if error.effect is Effect.UNKNOWN:
        return f"{AUTHOR}: answer as the contract says"
    if error.passing:
        return f"{OPERATOR}: see to what the provider waits for"
    return f"{OPERATOR}: correct the provider's `config` or `secrets`"


async def _applied(
    spec: ProviderSpec,
    prepared: configs.PreparedConfig,
    secrets: Mapping[str, Secret],
    instance: Instance,
    *,
    within: float,
) -> Applied:
    """Configure, again while the provider says that it cannot yet.

    After the death of a gateway its provider may hold the state directory for some seconds more.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        try:
            return await instance.control.configure(
                prepared.canonical, prepared.digest, secrets, provider_name=spec.name
            )
        except Transient:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(_RETRY_INTERVAL)


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
                transient=True,
            ) from None
    return secrets
