"""ProviderControlService of a real process, over raw stubs."""

import asyncio
import hashlib
import json
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2

from tests.kit.processes import (
    BEARER,
    CREDENTIALS,
    DEADLINE,
    INSTANCE_ID,
    NONCE,
    SECRET,
    Started,
    configure_request,
    handshake_request,
    refusal,
)
from tests.kit.sample_provider import SCHEMA
from tyrum.provider.v1 import control_pb2
from tyrum_provider_kit.definition import installed_contract
from tyrum_provider_kit.proof import Transcript

SERVICE = "tyrum.isolation.v1.IsolationService"
CONTROL = "tyrum.provider.v1"


async def test_handshake_proves_the_token_over_the_choice(shared: Started) -> None:
    """The provider picks the highest common versions and proves the token over them, for every nonce anew."""
    contract = installed_contract("isolation")
    for nonce in (NONCE, NONCE[::-1]):
        answer = await shared.control.Handshake(handshake_request(nonce=nonce), timeout=DEADLINE)
        assert answer.control_version == 1
        assert (answer.contract.kind, answer.contract.digest) == ("isolation", contract.digest)
        transcript = Transcript(nonce, INSTANCE_ID, "isolation", 1, contract.version, contract.digest)
        assert answer.proof == CREDENTIALS.proof(transcript)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"control_versions": {"min": 2, "max": 9}}, "control version"),
        ({"contracts": [{"kind": "memory", "major": 1, "digest": "sha256:" + "0" * 64}]}, "kind"),
        ({"contracts": [{"kind": "isolation", "major": 1, "digest": "sha256:" + "0" * 64}]}, "contract"),
        (
            {
                "contracts": [
                    {"kind": "isolation", "major": 9, "digest": installed_contract("isolation").digest}
                ]
            },
            "contract",
        ),
    ],
)
async def test_incompatible_hosts_learn_both_sides(
    shared: Started, changes: dict[str, Any], what: str
) -> None:
    """Without common versions the answer names both sides, and the process stays and answers again."""
    refused = await refusal(shared.control.Handshake(handshake_request(**changes), timeout=DEADLINE))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_INCOMPATIBLE")
    assert what in refused.message
    assert refused.metadata["provider_control_versions"] == "1-1"
    assert refused.metadata["provider_contracts"].startswith("isolation 1.0 sha256:")
    request = handshake_request(**changes)
    assert (
        refused.metadata["host_control_versions"]
        == f"{request.control_versions.min}-{request.control_versions.max}"
    )
    assert request.contracts[0].kind in refused.metadata["host_contracts"]
    assert (await shared.control.Handshake(handshake_request(), timeout=DEADLINE)).proof


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nonce": b"x" * 31}, "nonce"),
        ({"nonce": b"x" * 33}, "nonce"),
        ({"nonce": b""}, "nonce"),
        ({"instance_id": "inst_" + "0" * 26}, "instance_id"),
        ({"instance_id": "x"}, "instance_id"),
        ({"control_versions": None}, "control_versions"),
        ({"control_versions": {"min": 2, "max": 1}}, "control_versions"),
        ({"contracts": []}, "contracts"),
        ({"contracts": [{"kind": "a", "major": 1, "digest": "sha256:" + "0" * 64}] * 65}, "contracts"),
        ({"contracts": [{"kind": "", "major": 1, "digest": "sha256:" + "0" * 64}]}, "contracts[0].kind"),
        ({"contracts": [{"kind": "a", "major": 0, "digest": "sha256:" + "0" * 64}]}, "contracts[0].major"),
        ({"contracts": [{"kind": "a", "major": 1, "digest": "md5:0"}]}, "contracts[0].digest"),
        ({"host_version": "v" * 65}, "host_version"),
    ],
)
async def test_handshake_limits(shared: Started, changes: dict[str, Any], field: str) -> None:
    """Every field of a handshake is held to its limits and named when it breaks them."""
    refused = await refusal(shared.control.Handshake(handshake_request(**changes), timeout=DEADLINE))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert refused.metadata["field"] == field
    assert refused.bad_requests[0].field_violations[0].field == field


async def test_descriptor_is_constant(sample: Started) -> None:
    """The descriptor says what the definition says, before and after Configure."""
    request = control_pb2.GetDescriptorRequest()
    before = await sample.control.GetDescriptor(request, timeout=DEADLINE, metadata=BEARER)
    await sample.configure()
    after = await sample.control.GetDescriptor(request, timeout=DEADLINE, metadata=BEARER)
    assert before.SerializeToString() == after.SerializeToString()
    descriptor = before.provider_descriptor
    assert json.loads(descriptor.config_schema) == SCHEMA
    assert [(slot.name, slot.required) for slot in descriptor.secret_slots] == [
        ("api_key", True),
        ("spare", False),
    ]
    assert descriptor.limits.max_concurrent_operations == 2
    assert descriptor.cardinality == control_pb2.CARDINALITY_EXCLUSIVE


@pytest.mark.parametrize(
    ("config", "slots", "expected"),
    [
        ({"mode": "plain"}, ["api_key"], []),
        ({"mode": "plain"}, [], [("/secrets/api_key", "required")]),
        ({"mode": "plain"}, ["api_key", "other"], [("/secrets/other", "declared")]),
        ({"mode": SECRET}, ["api_key"], [("/mode", "enum")]),
        ({"mode": "odd"}, ["api_key"], [("/mode", "needs_spare")]),
        ({"mode": "odd"}, ["api_key", "spare"], []),
        (
            {"count": 10, "x": SECRET},
            ["api_key"],
            [("/count", "maximum"), ("/mode", "required"), ("/x", "additionalProperties")],
        ),
    ],
)  # fmt: skip
async def test_findings_are_data(
    shared: Started, config: dict[str, Any], slots: list[str], expected: list[tuple[str, str]]
) -> None:
    """ValidateConfig lists place and rule of every finding, repeats no value and configures nothing."""
    request = control_pb2.ValidateConfigRequest(config=json.dumps(config).encode(), secret_slots=slots)
    answer = await shared.control.ValidateConfig(request, timeout=DEADLINE, metadata=BEARER)
    assert [(item.path, item.rule) for item in answer.violations] == expected
    assert SECRET not in str(answer)
    assert not (shared.directory / "configured").exists()


@pytest.mark.parametrize(
    ("config", "slots", "field"),
    [
        (b"", [], "config"),
        (b"[]", [], "config"),
        (b"\xff", [], "config"),
        (b'{"mode":"' + b"x" * 65_536 + b'"}', [], "config"),
        (b"{}", ["s"] * 33, "secret_slots"),
    ],
)
async def test_validate_limits(shared: Started, config: bytes, slots: list[str], field: str) -> None:
    """What is no configuration at all is the host's mistake, not a finding."""
    request = control_pb2.ValidateConfigRequest(config=config, secret_slots=slots)
    refused = await refusal(shared.control.ValidateConfig(request, timeout=DEADLINE, metadata=BEARER))
    assert (refused.reason, refused.metadata["field"]) == ("FIELD_INVALID", field)


async def test_configure_applies_once(sample: Started) -> None:
    """The same configuration again is OK without effect, another one is refused for ever."""
    request = configure_request({"mode": "plain"}, {"api_key": SECRET})
    answer = await sample.control.Configure(request, timeout=DEADLINE, metadata=BEARER)
    assert answer.applied_digest == request.config_digest
    mark = sample.directory / "configured"
    assert mark.read_text() == "sample"
    mark.unlink()
    again = await sample.control.Configure(request, timeout=DEADLINE, metadata=BEARER)
    assert again == answer
    assert not mark.exists()
    other = configure_request({"mode": "plain", "count": 2}, {"api_key": SECRET})
    refused = await refusal(sample.control.Configure(other, timeout=DEADLINE, metadata=BEARER))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONFIG_IMMUTABLE")
    assert refused.metadata["applied_digest"] == request.config_digest


async def test_concurrent_configures_apply_once(sample: Started) -> None:
    """Of two different configurations at the same time exactly one is applied."""
    requests = [configure_request({"mode": "plain", "count": count}, {"api_key": SECRET}) for count in (1, 2)]
    calls = [sample.control.Configure(item, timeout=DEADLINE, metadata=BEARER) for item in requests]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, control_pb2.ConfigureResponse) for result in results) == 1


async def test_invalid_configuration_is_listed(sample: Started) -> None:
    """Configure refuses what does not validate and lists path and rule, as much as fits into an error."""
    config = {"names": ["UPPER"] * 2000, "count": SECRET}
    refused = await refusal(
        sample.control.Configure(
            configure_request(config, {"api_key": SECRET}), timeout=DEADLINE, metadata=BEARER
        )
    )
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONFIG_INVALID")
    listed = json.loads(refused.metadata["violations"])
    assert {"path": "/count", "rule": "type"} in listed
    assert refused.metadata["count"] == "2002"
    assert SECRET not in str(refused)
    await sample.configure()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"config_digest": "sha256:" + "0" * 64}, "config_digest"),
        ({"config_digest": hashlib.sha256(b"{}").hexdigest()}, "config_digest"),
        ({"config_digest": ""}, "config_digest"),
        ({"provider_name": ""}, "provider_name"),
        ({"provider_name": "n" * 65}, "provider_name"),
        ({"secrets": {}}, "secrets.api_key"),
        ({"secrets": {"api_key": ""}}, "secrets.api_key"),
        ({"secrets": {"api_key": "x", "other": SECRET}}, "secrets.other"),
        ({"secrets": {"api_key": "x" * 65_537}}, "secrets.api_key"),
        ({"secrets": {f"s{n}": "x" for n in range(33)}}, "secrets"),
    ],
)
async def test_configure_limits(shared: Started, changes: dict[str, Any], field: str) -> None:
    """Digest, name and secrets are held to their limits; a missing secret is named by its slot."""
    request = configure_request({"mode": "plain"}, {"api_key": SECRET})
    for name in changes:
        request.ClearField(name)  # type: ignore[arg-type] # names from the table
    request.MergeFrom(control_pb2.ConfigureRequest(**changes))
    refused = await refusal(shared.control.Configure(request, timeout=DEADLINE, metadata=BEARER))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert refused.metadata["field"] == field
    assert SECRET not in str(refused)


async def test_failed_configure_may_be_repeated(sample: Started) -> None:
    """A provider that could not apply a configuration stays unconfigured and can be asked again."""
    refused = await refusal(sample.configure(mode="fails_once"))
    assert refused.reason == "BACKEND_UNAVAILABLE"
    assert await sample.health(SERVICE) == health_pb2.HealthCheckResponse.NOT_SERVING
    await sample.configure(mode="fails_once")
    assert await sample.health(SERVICE) == health_pb2.HealthCheckResponse.SERVING


async def test_health_follows_the_life(sample: Started) -> None:
    """Both health entries are NOT_SERVING before Configure and after Drain; unknown ones are NOT_FOUND."""
    for service in ("", SERVICE):
        assert await sample.health(service) == health_pb2.HealthCheckResponse.NOT_SERVING
    await sample.configure()
    for service in ("", SERVICE):
        assert await sample.health(service) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await sample.health("no.such.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    await sample.control.Drain(control_pb2.DrainRequest(), timeout=DEADLINE, metadata=BEARER)
    for service in ("", SERVICE):
        assert await sample.health(service) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_probe_before_and_after_configure(sample: Started) -> None:
    """Nothing is ready before Configure; afterwards every declared capability has its state."""
    before = await sample.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE, metadata=BEARER)
    assert not before.ready
    await sample.configure()
    after = await sample.control.Probe(control_pb2.ProbeRequest(deep=True), timeout=DEADLINE, metadata=BEARER)
    assert after.ready
    assert {state.capability: state.availability for state in after.capabilities} == {
        "durable": control_pb2.CAPABILITY_AVAILABILITY_AVAILABLE,
        "resume": control_pb2.CAPABILITY_AVAILABILITY_UNAVAILABLE,
    }
    assert after.conditions[0].status == control_pb2.CONDITION_STATUS_TRUE
    assert after.conditions[0].observed_at.seconds > 0
    assert after.in_flight == 5


async def test_probe_answers_in_time_whatever_the_provider_does(sample: Started) -> None:
    """A provider whose own probe hangs is reported as not ready, long before that probe would end."""
    await sample.configure(mode="slow_probe")
    answer = await sample.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE, metadata=BEARER)
    assert not answer.ready
    assert answer.conditions[0].reason == "TIMEOUT"


@pytest.mark.parametrize(("seconds", "nanos"), [(31, 0), (-1, 0), (1, -1), (30, 1), (0, 2_000_000_000)])
async def test_shutdown_limits(shared: Started, seconds: int, nanos: int) -> None:
    """A grace out of its range is refused and ends nothing."""
    grace = duration_pb2.Duration(seconds=seconds, nanos=nanos)
    refused = await refusal(
        shared.control.Shutdown(control_pb2.ShutdownRequest(grace=grace), timeout=DEADLINE, metadata=BEARER)
    )
    assert refused.metadata["field"] == "grace"
    assert shared.process.poll() is None
