"""Between the kit's values and the messages of `tyrum.provider.v1`.

Invariant: every field of a request is held to the limits its comment states; what breaks one is FIELD_INVALID
with the field's path.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import duration_pb2

from tyrum.provider.v1 import control_pb2
from tyrum_provider_kit import definition as values
from tyrum_provider_kit.environment import INSTANCE_ID_PATTERN
from tyrum_provider_kit.errors import clip, field_invalid
from tyrum_provider_kit.proof import NONCE_BYTES
from tyrum_provider_kit.report import CapabilityState, Condition, ConditionStatus, ProbeReport
from tyrum_provider_kit.schema import MAX_CONFIG_BYTES, Violation, clipped, encode_schema, parse_config

MAX_CONTRACTS = 64
MAX_SLOTS = 32
MAX_SECRET_BYTES = 64 * 1024
MAX_GRACE_SECONDS = 30
MAX_REPORTED = 64

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_CARDINALITY = {
    values.Cardinality.EXCLUSIVE: control_pb2.CARDINALITY_EXCLUSIVE,
    values.Cardinality.ORDERED_MANY: control_pb2.CARDINALITY_ORDERED_MANY,
}
_DEPLOYMENT_MODE = {
    values.DeploymentMode.LOCAL_PROCESS: control_pb2.DEPLOYMENT_MODE_LOCAL_PROCESS,
    values.DeploymentMode.REMOTE: control_pb2.DEPLOYMENT_MODE_REMOTE,
}
_TRUST = {
    values.Trust.OPERATOR_INSTALLED: control_pb2.TRUST_OPERATOR_INSTALLED,
    values.Trust.EXTERNAL_PARTY: control_pb2.TRUST_EXTERNAL_PARTY,
}
_CONDITION_STATUS = {
    ConditionStatus.TRUE: control_pb2.CONDITION_STATUS_TRUE,
    ConditionStatus.FALSE: control_pb2.CONDITION_STATUS_FALSE,
    ConditionStatus.UNKNOWN: control_pb2.CONDITION_STATUS_UNKNOWN,
}


def check_handshake(request: control_pb2.HandshakeRequest, instance_id: str) -> None:
    """Hold a handshake to its limits.

    Raises:
        ServiceError: FIELD_INVALID.
    """
    if len(request.nonce) != NONCE_BYTES:
        raise field_invalid("nonce", f"must have exactly {NONCE_BYTES} bytes")
    if not INSTANCE_ID_PATTERN.fullmatch(request.instance_id):
        raise field_invalid("instance_id", "must be `inst_` and 26 characters")
    if request.instance_id != instance_id:
        raise field_invalid("instance_id", "is not the id this instance was started with")
    if not 1 <= request.control_versions.min <= request.control_versions.max:
        raise field_invalid("control_versions", "must be a range with 1 <= min <= max")
    if not 1 <= len(request.contracts) <= MAX_CONTRACTS:
        raise field_invalid("contracts", f"must have 1 to {MAX_CONTRACTS} entries")
    for index, contract in enumerate(request.contracts):
        place = f"contracts[{index}]"
        if not 1 <= len(contract.kind.encode()) <= 32:
            raise field_invalid(f"{place}.kind", "must have 1 to 32 bytes")
        if contract.major < 1:
            raise field_invalid(f"{place}.major", "must be at least 1")
        if not _DIGEST.fullmatch(contract.digest):
            raise field_invalid(f"{place}.digest", "must be `sha256:` and 64 hexadecimal digits")
    if len(request.host_version.encode()) > 64:
        raise field_invalid("host_version", "must have at most 64 bytes")


def read_config(config: bytes) -> dict[str, Any]:
    """Parse the bytes of a configuration.

    Raises:
        ServiceError: FIELD_INVALID for `config`.
    """
    if not 1 <= len(config) <= MAX_CONFIG_BYTES:
        raise field_invalid("config", f"must have 1 to {MAX_CONFIG_BYTES} bytes")
    try:
        return parse_config(config)
    except ValueError as error:
        raise field_invalid("config", str(error)) from error


def read_slots(names: list[str]) -> frozenset[str]:
    """Read the names of the slots that will be filled.

    Raises:
        ServiceError: FIELD_INVALID for `secret_slots`.
    """
    if len(names) > MAX_SLOTS:
        raise field_invalid("secret_slots", f"must have at most {MAX_SLOTS} entries")
    return frozenset(names)


def check_digest(config: bytes, digest: str) -> None:
    """Compare a configuration with the digest that came along.

    Raises:
        ServiceError: FIELD_INVALID for `config_digest`.
    """
    if not _DIGEST.fullmatch(digest):
        raise field_invalid("config_digest", "must be `sha256:` and 64 hexadecimal digits")
    if digest != "sha256:" + hashlib.sha256(config).hexdigest():
        raise field_invalid("config_digest", "is not the digest of `config`")


def read_secrets(secrets: Mapping[str, str], slots: Mapping[str, values.SecretSlot]) -> dict[str, str]:
    """Take the secrets of declared slots.

    Raises:
        ServiceError: FIELD_INVALID that names the slot: undeclared, too large, or required and missing.
    """
    if len(secrets) > MAX_SLOTS:
        raise field_invalid("secrets", f"must have at most {MAX_SLOTS} entries")
    for name, value in secrets.items():
        if name not in slots:
            raise field_invalid(f"secrets.{clip(name, 64)}", "is not a declared slot")
        if len(value.encode()) > MAX_SECRET_BYTES:
            raise field_invalid(f"secrets.{name}", f"must have at most {MAX_SECRET_BYTES} bytes")
    for slot in slots.values():
        if slot.required and not secrets.get(slot.name):
            raise field_invalid(f"secrets.{slot.name}", "is required and missing")
    return dict(secrets)


def check_provider_name(name: str) -> None:
    """Hold the operator's name to its limits.

    Raises:
        ServiceError: FIELD_INVALID for `provider_name`.
    """
    if not 1 <= len(name.encode()) <= 64:
        raise field_invalid("provider_name", "must have 1 to 64 bytes")


def read_grace(grace: duration_pb2.Duration) -> float:
    """Read a grace in seconds.

    Raises:
        ServiceError: FIELD_INVALID for `grace`.
    """
    seconds = grace.seconds + grace.nanos / 1e9
    if not (0 <= grace.nanos < 10**9 and 0 <= seconds <= MAX_GRACE_SECONDS):
        raise field_invalid("grace", f"must be 0 to {MAX_GRACE_SECONDS} s")
    return seconds


def contract_message(contract: values.Contract) -> control_pb2.ContractVersion:
    """Spell a contract version."""
    return control_pb2.ContractVersion(
        kind=contract.kind, major=contract.major, minor=contract.minor, digest=contract.digest
    )


def names_contract(offered: control_pb2.ContractVersion, own: values.Contract) -> bool:
    """Tell whether the host offers exactly this contract."""
    return (offered.kind, offered.major, offered.minor, offered.digest) == (
        own.kind,
        own.major,
        own.minor,
        own.digest,
    )


def descriptor_message(definition: values.ProviderDefinition) -> control_pb2.ProviderDescriptor:
    """Spell the descriptor."""
    return control_pb2.ProviderDescriptor(
        provider_id=definition.provider_id,
        implementation_version=definition.implementation_version,
        kind=definition.kind,
        cardinality=_CARDINALITY[definition.cardinality],
        deployment_mode=_DEPLOYMENT_MODE[definition.deployment_mode],
        trust=_TRUST[definition.trust],
        config_schema=encode_schema(definition.config_schema),
        secret_slots=[
            control_pb2.SecretSlot(name=slot.name, required=slot.required, purpose=slot.purpose)
            for slot in definition.secret_slots
        ],
        capabilities=definition.capabilities,
        limits=control_pb2.Limits(max_concurrent_operations=definition.max_concurrent_operations),
        handle_versions=definition.handle_versions,
        cache_directories=definition.cache_directories,
    )


def violation_messages(found: list[Violation]) -> list[control_pb2.ConfigViolation]:
    """Spell findings, within the limits of the contract."""
    return [
        control_pb2.ConfigViolation(path=item.path, rule=item.rule, message=item.message)
        for item in clipped(found)
    ]


def probe_message(
    report: ProbeReport, *, declared: tuple[str, ...], configured: bool, open_calls: int
) -> control_pb2.ProbeResponse:
    """Spell a report; every declared capability gets a state, and nothing is ready before Configure."""
    ready = report.ready and configured
    stated = {state.capability: state for state in report.capabilities}
    return control_pb2.ProbeResponse(
        ready=ready,
        conditions=[_condition_message(condition) for condition in report.conditions[:MAX_REPORTED]],
        capabilities=[
            _capability_message(stated.get(name, CapabilityState(name, available=ready))) for name in declared
        ],
        in_flight=open_calls + report.running,
    )


def _condition_message(condition: Condition) -> control_pb2.Condition:
    message = control_pb2.Condition(
        type=condition.type,
        status=_CONDITION_STATUS[condition.status],
        reason=clip(condition.reason, 64),
        message=clip(condition.message, 512),
    )
    message.observed_at.FromDatetime(condition.observed_at)
    return message


def _capability_message(state: CapabilityState) -> control_pb2.CapabilityState:
    availability = (
        control_pb2.CAPABILITY_AVAILABILITY_AVAILABLE
        if state.available
        else control_pb2.CAPABILITY_AVAILABILITY_UNAVAILABLE
    )
    return control_pb2.CapabilityState(
        capability=state.capability, availability=availability, reason=clip(state.reason, 512)
    )
