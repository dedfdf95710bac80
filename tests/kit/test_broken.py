"""Each deliberately bad provider is bad in the one way its name says, and good otherwise."""

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.kit.processes import (
    BEARER,
    CREDENTIALS,
    DEADLINE,
    NONCE,
    SECRET,
    Started,
    answers,
    configure_request,
    handshake_request,
    hang_up,
    refusal,
    until,
)
from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import CLAIMS, DEFINITION
from tyrum_provider_kit.convert import contract_message, descriptor_message
from tyrum_provider_kit.proof import Transcript

Check = Callable[[Started], Awaitable[None]]
names: Callable[[], list[str]] = import_module("tyrum_conformance.broken.__main__").names


async def _handshake(started: Started, nonce: bytes = NONCE) -> control_pb2.HandshakeResponse:
    return await started.control.Handshake(handshake_request(nonce=nonce), timeout=DEADLINE)


def _proves(answer: control_pb2.HandshakeResponse, nonce: bytes = NONCE) -> bool:
    contract = answer.contract
    version = f"{contract.major}.{contract.minor}"
    transcript = Transcript(
        nonce,
        handshake_request().instance_id,
        contract.kind,
        answer.control_version,
        version,
        contract.digest,
    )
    return answer.proof == CREDENTIALS.proof(transcript)


async def _configure(started: Started, secrets: dict[str, str] | None = None, config: bytes = b"{}") -> Any:
    request = configure_request(config, secrets or {})
    return await started.control.Configure(request, timeout=DEADLINE, metadata=BEARER)


async def _probe(started: Started) -> control_pb2.ProbeResponse:
    return await started.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE, metadata=BEARER)


async def _works(started: Started) -> None:
    assert _proves(await _handshake(started))
    await _configure(started)
    assert (await _probe(started)).ready
    assert await started.health("") == health_pb2.HealthCheckResponse.SERVING
    answer = await started.domain.GetPosture(
        isolation_pb2.GetPostureRequest(), timeout=DEADLINE, metadata=BEARER
    )
    assert {claim.status for claim in answer.claims} == {isolation_pb2.CLAIM_STATUS_NOT_ENFORCED}


def _claims(*, control_version: int = 3, **deviation: Any) -> Check:
    """A valid proof over the given deviation from the contract."""

    async def check(started: Started) -> None:
        answer = await _handshake(started)
        expected = contract_message(DEFINITION.contract)
        for field, value in deviation.items():
            setattr(expected, field, value)
        assert (answer.control_version, answer.contract) == (control_version, expected)
        assert _proves(answer)

    return check


def _describes(*fields: str) -> Check:
    """A descriptor that differs from the good one in these fields."""

    async def check(started: Started) -> None:
        assert _proves(await _handshake(started))
        request = control_pb2.GetDescriptorRequest()
        answer = await started.control.GetDescriptor(request, timeout=DEADLINE, metadata=BEARER)
        good = descriptor_message(DEFINITION)
        differing = [
            field.name
            for field in good.DESCRIPTOR.fields
            if getattr(good, field.name) != getattr(answer.provider_descriptor, field.name)
        ]
        assert sorted(differing) == sorted(fields)

    return check


def _refuses_configure(reason: str) -> Check:
    async def check(started: Started) -> None:
        assert _proves(await _handshake(started))
        assert (await refusal(_configure(started))).reason == reason

    return check


async def _needs_secret(started: Started) -> None:
    assert (await refusal(_configure(started))).metadata == {"field": "secrets.api_key"}
    await _configure(started, {"api_key": SECRET})


async def _proves_nothing(started: Started) -> None:
    assert not _proves(await _handshake(started))


async def _repeats_its_proof(started: Started) -> None:
    assert _proves(await _handshake(started))
    assert not _proves(await _handshake(started, NONCE[::-1]), NONCE[::-1])


async def _never_answers(started: Started) -> None:
    refused = await refusal(started.control.Handshake(handshake_request(), timeout=0.3))
    assert refused.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def _no_grpc(started: Started) -> None:
    refused = await refusal(started.control.Handshake(handshake_request(), timeout=0.5))
    assert refused.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


async def _never_ready(started: Started) -> None:
    await _configure(started)
    assert not (await _probe(started)).ready


async def _unknown(started: Started) -> None:
    await _configure(started)
    assert (await _probe(started)).conditions[0].status == control_pb2.CONDITION_STATUS_UNKNOWN


async def _not_serving(started: Started) -> None:
    await _configure(started)
    assert (await _probe(started)).ready
    assert await started.health("") == health_pb2.HealthCheckResponse.NOT_SERVING


async def _incompatible(started: Started) -> None:
    refused = await refusal(_handshake(started))
    assert refused.reason == "CONTRACT_INCOMPATIBLE"
    assert refused.metadata["provider_contracts"].startswith("isolation 2.0 ")


async def _bare_error(started: Started) -> None:
    refused = await refusal(_configure(started))
    assert (refused.code, refused.infos) == (grpc.StatusCode.INTERNAL, ())


async def _exits_with_seven(started: Started) -> None:
    assert await started.ended() == 7
    assert "license" in started.log()


async def _listens_never(started: Started) -> None:
    hang_up(started)
    assert await started.ended() == 0
    assert not started.socket.exists()


async def _noisy(started: Started) -> None:
    await _works(started)
    assert len(started.log()) > 4_000_000


async def _leaks(started: Started) -> None:
    await _configure(started, {"api_key": SECRET})
    assert f"api_key={SECRET}" in started.log()


def _states(*, number: int, distinct: int, unspecified: int = 0) -> Check:
    async def check(started: Started) -> None:
        await _configure(started)
        request = isolation_pb2.GetPostureRequest()
        claims = (await started.domain.GetPosture(request, timeout=DEADLINE, metadata=BEARER)).claims
        assert (len(claims), len({claim.name for claim in claims} & set(CLAIMS))) == (number, distinct)
        assert [claim.status for claim in claims].count(isolation_pb2.CLAIM_STATUS_UNSPECIFIED) == unspecified

    return check


async def _crashes(started: Started) -> None:
    await _configure(started)
    call = started.domain.GetPosture(isolation_pb2.GetPostureRequest(), timeout=DEADLINE, metadata=BEARER)
    refused = await refusal(call)
    assert (refused.code, refused.infos) == (grpc.StatusCode.UNAVAILABLE, ())
    assert await started.ended() == 9


async def _exits_later(started: Started) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):  # the end may overtake the answer
        await _configure(started, config=b'{"after_ms": 50}')
    assert await started.ended() == 3


async def _stays(started: Started) -> None:
    await _configure(started)
    await started.control.Shutdown(control_pb2.ShutdownRequest(), timeout=DEADLINE, metadata=BEARER)
    started.process.send_signal(signal.SIGTERM)
    assert _proves(await _handshake(started))
    assert started.process.poll() is None


async def _is_foreign(started: Started) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(started.socket))
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", credentials)
    assert pid != started.process.pid
    assert os.getpgid(pid) != os.getpgid(started.process.pid)
    assert os.getsid(pid) != os.getsid(started.process.pid)
    await _works(started)


CHECKS: dict[str, Check] = {
    "good": _works,
    "slow_start": _works,
    "noisy": _noisy,
    "foreign_socket": _is_foreign,
    "wrong_kind": _claims(kind="memory"),
    "wrong_major": _claims(major=2),
    "wrong_digest": _claims(digest="sha256:" + "0" * 64),
    "wrong_control_version": _claims(control_version=4),
    "wrong_proof": _proves_nothing,
    "replayed_proof": _repeats_its_proof,
    "hangs_on_handshake": _never_answers,
    "silent_listener": _no_grpc,
    "not_grpc": _no_grpc,
    "future_contract": _incompatible,
    "descriptor_bad_id": _describes("provider_id"),
    "descriptor_bad_version": _describes("implementation_version"),
    "descriptor_other_kind": _describes("kind"),
    "descriptor_wrong_cardinality": _describes("cardinality"),
    "descriptor_oversized_schema": _describes("config_schema"),
    "descriptor_invalid_schema": _describes("config_schema"),
    "descriptor_schema_not_json": _describes("config_schema"),
    "descriptor_remote_reference": _describes("config_schema"),
    "descriptor_no_limits": _describes("limits"),
    "descriptor_repeated_slot": _describes("secret_slots"),
    "old_implementation": _describes("implementation_version"),
    "remote_mode": _describes("deployment_mode", "trust"),
    "needs_secret": _needs_secret,
    "rejects_config": _refuses_configure("CONFIG_INVALID"),
    "error_without_info": _bare_error,
    "probe_never_ready": _never_ready,
    "probe_unknown": _unknown,
    "health_not_serving": _not_serving,
    "exits_at_start": _exits_with_seven,
    "never_listens": _listens_never,
    "leaks_secret_to_log": _leaks,
    "posture_missing_claim": _states(number=19, distinct=19),
    "posture_unknown_claim": _states(number=20, distinct=19),
    "posture_repeated_claim": _states(number=21, distinct=20),
    "posture_unspecified_status": _states(number=20, distinct=20, unspecified=1),
    "crashes_on_call": _crashes,
    "exits_after_configure": _exits_later,
    "ignores_stop": _stays,
}
SILENT = {"exits_at_start", "never_listens"}


def test_every_bad_provider_is_checked() -> None:
    """No bad provider is without a check of its badness."""
    assert sorted(CHECKS) == names()


@pytest.mark.parametrize("name", CHECKS)
async def test_bad_provider_keeps_its_word(launch: Callable[..., Started], name: str) -> None:
    """The provider deviates exactly as its name says."""
    started = launch("-m", "tyrum_conformance.broken", name)
    if name not in SILENT:
        await until(lambda: answers(started.socket))
    await CHECKS[name](started)
