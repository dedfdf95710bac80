"""The operations listener of a running gateway: alive, ready, measured, and nothing else."""

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected
from tests.support.gateway import RunningGateway, serving
from tyrum_gateway.app.alarms import MEANINGS, Alarm
from tyrum_gateway.telemetry.metrics import Metrics

LISTEN = 'listen: {ops: "127.0.0.1:0"}\n'
WAITING = """\
version: 1
scenarios:
  - user: wait
    steps:
      - deltas: ["Waiting."]
        barrier: open
"""
AN_ID = re.compile(r"[a-z]+_[0-7][0-9a-hjkmnp-tv-z]{25}")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for the file."""
    directory = tmp_path_factory.mktemp("operations")
    with serving(directory, configs.write(directory, more=LISTEN)) as running:
        yield running


async def ask(gateway: RunningGateway, path: str, method: str = "GET") -> tuple[int, str]:
    """Ask over HTTP; return status and body."""
    announced = json.loads((gateway.state_dir / "gateway.json").read_text(encoding="utf-8"))
    host, _, port = announced["ops"].rpartition(":")
    return await asking(host, int(port), f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def asking(host: str, port: int, request: bytes) -> tuple[int, str]:
    """Send a request; return status and body of the one answer before the end."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    return int(head.split(b" ")[1]), body.decode()


async def samples(gateway: RunningGateway) -> dict[tuple[str, tuple[str, ...]], float]:
    """Name and label values, by the labels' names, of everything that is measured."""
    status, text = await ask(gateway, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def becomes(gateway: RunningGateway, expected: tuple[int, str]) -> None:
    """Wait for an answer of `/readyz`."""
    async with asyncio.timeout(2 * DEADLINE):
        while True:
            # On a machine under load, the listener's own bound may come before the answer.
            with contextlib.suppress(IndexError, ConnectionError):
                if await ask(gateway, "/readyz") == expected:
                    return


async def test_a_serving_gateway_is_alive_and_ready(gateway: RunningGateway) -> None:
    """Both probes answer 200 with one word; only GET and only the three paths are answered."""
    assert await ask(gateway, "/livez") == (200, "ok\n")
    await becomes(gateway, (200, "ok\n"))
    assert (await ask(gateway, "/"))[0] == 404
    assert (await ask(gateway, "/metrics/x"))[0] == 404
    assert (await ask(gateway, "/livez", "POST"))[0] == 405


async def test_a_database_that_takes_no_writes_is_named(gateway: RunningGateway) -> None:
    """While another program holds the database, the gateway is alive and not ready, and says why."""
    other = sqlite3.connect(gateway.state_dir / "tyrum.sqlite3", isolation_level=None, timeout=DEADLINE)
    try:
        other.execute("BEGIN IMMEDIATE")
        await becomes(gateway, (503, "database: takes no writes\n"))
        assert await ask(gateway, "/livez") == (200, "ok\n")
    finally:
        other.close()
    await becomes(gateway, (200, "ok\n"))


async def test_what_happens_is_counted(gateway: RunningGateway) -> None:
    """Turns, decisions, calls, approvals, steps and RPCs are counted by their outcome."""
    before = await samples(gateway)
    async with connected(gateway) as client:
        await client.turn("count")
        async for item in client.send("ask"):
            if item.event.HasField("approval_requested"):
                pending = await samples(gateway)
                await client.resolve(item.event.approval_requested.approval_id, approve=False)
        with pytest.raises(grpc.aio.AioRpcError):
            await client.turn("unknown", "conv_" + "0" * 26)
    after = await samples(gateway)
    refused = ("tyrum_rpc_total", ("NOT_FOUND", "/tyrum.chat.v1.ChatService/SendMessage"))
    async with asyncio.timeout(DEADLINE):
        while after.get(refused, 0) == before.get(refused, 0):  # counted when it is over, after its answer
            after = await samples(gateway)

    def grown(name: str, *labels: str) -> float:
        return after[name, labels] - before.get((name, labels), 0)

    assert pending["tyrum_approvals_pending", ()] == before["tyrum_approvals_pending", ()] + 1
    assert grown("tyrum_turns_total", "completed") == 2
    assert grown("tyrum_turn_seconds_count") == 2
    assert grown("tyrum_model_steps_total") == 4
    assert grown("tyrum_tool_calls_total", "succeeded") == 1
    assert grown("tyrum_tool_calls_total", "denied") == 1
    assert grown("tyrum_tool_process_seconds_count") == 1
    assert grown("tyrum_policy_decisions_total", "allow") == 1
    assert grown("tyrum_policy_decisions_total", "require_approval") == 1
    assert grown("tyrum_approvals_requested_total") == 1
    assert grown("tyrum_approvals_resolved_total", "denied") == 1
    assert grown("tyrum_approval_wait_seconds_count") == 1
    assert grown("tyrum_commit_seconds_count") >= 7
    assert grown("tyrum_store_commits_total") >= 9
    assert grown("tyrum_rpc_total", "NOT_FOUND", "/tyrum.chat.v1.ChatService/SendMessage") == 1
    assert grown("tyrum_rpc_seconds_count", "/tyrum.approval.v1.ApprovalService/ResolveApproval") == 1
    assert after["tyrum_provider_state", ("isolation", "admitted", "local")] == 1
    assert after["tyrum_provider_state", ("isolation", "rejected", "local")] == 0
    assert after["tyrum_ready", ()] == 1
    assert after["process_resident_memory_bytes", ()] > 10_000_000


async def test_labels_are_bounded(gateway: RunningGateway) -> None:
    """No id, no text of a user and no path of a caller's invention becomes a label."""
    canary = "canary-7f3a"
    async with connected(gateway) as client:
        await client.turn(f"say {canary}")
        call: Any = client.channel.unary_unary(f"/{canary}/Method")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"", metadata=client.metadata, timeout=DEADLINE)
        stranger = Client(client.channel, (("authorization", f"Bearer {canary}"),))
        with pytest.raises(grpc.aio.AioRpcError):
            await stranger.turn("hello")
    _, text = await ask(gateway, "/metrics")
    assert canary not in text
    assert not AN_ID.search(text)
    async with asyncio.timeout(DEADLINE):
        while ("tyrum_rpc_total", ("UNIMPLEMENTED", "unknown")) not in await samples(gateway):
            pass  # counted when it is over, after its answer


async def test_what_is_exported_is_what_is_described(gateway: RunningGateway) -> None:
    """The reference lists every metric of the gateway with its kind, and no other."""
    _, text = await ask(gateway, "/metrics")
    exported = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in text_string_to_metric_families(text)
        if family.name.startswith("tyrum_") and not family.name.endswith("_created")
    }
    assert exported == {(one.name, one.kind) for one in Metrics().described()}


async def test_a_required_provider_that_is_refused_is_named(tmp_path: Path) -> None:
    """A gateway whose agent cannot run processes is alive, not ready, and says which provider is missing."""
    config = configs.write(tmp_path, more=LISTEN)
    text = config.read_text(encoding="utf-8")
    pinned = text.replace("    trust: operator", f"    artifact_sha256: '{'0' * 64}'\n    trust: operator")
    config.write_text(pinned, encoding="utf-8")
    with serving(tmp_path, config) as gateway:
        assert await ask(gateway, "/livez") == (200, "ok\n")
        await becomes(gateway, (503, "provider local: rejected\n"))
        assert (await samples(gateway))["tyrum_ready", ()] == 0


async def test_a_gateway_that_drains_is_not_ready(tmp_path: Path) -> None:
    """From SIGTERM on, while a turn gets time to rest, `/readyz` is 503 and `/livez` is 200."""
    gateway = RunningGateway(tmp_path / "state", configs.write(tmp_path, script=WAITING, more=LISTEN))
    gateway.start()
    announced = json.loads((gateway.state_dir / "gateway.json").read_text(encoding="utf-8"))["ops"]
    host, _, port = announced.rpartition(":")
    get = b"GET %s HTTP/1.1\r\n\r\n"
    try:
        async with connected(gateway) as client:
            running = client.send("wait")
            async for item in running:
                if item.HasField("delta") or item.HasField("partial"):  # as soon as it was joined
                    break
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(DEADLINE):
                while True:
                    answer = await asking(host, int(port), get % b"/readyz")
                    if answer[0] != 200:
                        break
                    await asyncio.sleep(0.02)
            assert answer == (503, "draining\n")
            assert await asking(host, int(port), get % b"/livez") == (200, "ok\n")
            await running.aclose()
    finally:
        gateway.kill()


async def test_damage_raises_an_alarm_and_the_gateway_is_not_ready(tmp_path: Path) -> None:
    """A row that cannot be read is DATA_LOSS, is counted and named by the probe; so are lost heads."""
    with serving(tmp_path, configs.write(tmp_path, more=LISTEN)) as gateway:
        async with connected(gateway) as client:
            events = await client.turn("say")
            conversation = events[0].conversation_id
            with contextlib.closing(sqlite3.connect(gateway.state_dir / "tyrum.sqlite3")) as other, other:
                other.execute("DROP TRIGGER events_no_update")
                other.execute("UPDATE events SET payload = '{' WHERE sequence = 1")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.events(conversation)
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS
        assert await ask(gateway, "/readyz") == (503, MEANINGS[Alarm.DATABASE_DAMAGED] + "\n")
        audit = gateway.state_dir / "audit"
        audit.rename(gateway.state_dir / "elsewhere")
        both = f"{MEANINGS[Alarm.DATABASE_DAMAGED]}\n{MEANINGS[Alarm.AUDIT_HEADS]}\n"
        await becomes(gateway, (503, both))
        counted = await samples(gateway)
        assert counted["tyrum_alarms_total", ("database_damaged",)] >= 1
        assert counted["tyrum_alarm_active", ("audit_heads",)] == 1
        (gateway.state_dir / "elsewhere").rename(audit)
