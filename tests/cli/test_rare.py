"""Lists whose filter hardly anything passes: empty pages are no end."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import configs, narrow_gateway
from tests.support.client import connected
from tests.support.gateway import RunningGateway
from tests.support.questions import asked
from tyrum.audit.v1 import audit_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum.run.v1 import run_pb2
from tyrum_gateway.cli.commands import run

LAUNCHER = (sys.executable, str(narrow_gateway.__file__))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that looks at two rows a page, whose oldest turn alone was cancelled."""
    directory = tmp_path_factory.mktemp("narrow")
    running = RunningGateway(directory / "state", configs.write(directory), launcher=LAUNCHER)
    try:
        running.start()
        asyncio.run(work(running))
        yield running
    finally:
        running.kill()


async def work(gateway: RunningGateway) -> None:
    """Cancel a turn, then let others end."""
    async with connected(gateway) as client:
        question = await asked(client, "ask")
        await client.chat.CancelTurn(
            chat_pb2.CancelTurnRequest(turn_id=question.turn), metadata=client.metadata, timeout=30
        )
        for _ in range(4):
            await client.turn("hello")


async def test_pages_are_empty_before_the_end(gateway: RunningGateway) -> None:
    """The gateway answers with empty pages that have a token: what the other tests are about."""
    async with connected(gateway) as client:
        cancelled = run_pb2.RunFilter(state=event_pb2.TURN_STATE_CANCELLED)
        runs = await client.runs.ListRuns(
            run_pb2.ListRunsRequest(filter=cancelled), metadata=client.metadata, timeout=30
        )
        rows = await client.audit.ListAudit(
            audit_pb2.ListAuditRequest(kind_prefix="gateway.", newest_first=True),
            metadata=client.metadata,
            timeout=30,
        )
    assert (list(runs.runs), list(rows.rows)) == ([], [])
    assert runs.next_page_token
    assert rows.next_page_token


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("runs list --state cancelled", 1),
        ("runs list --state failed", 0),
        ("runs export --state cancelled", 1),
        ("audit list --kind gateway.started", 1),
        ("audit list --kind gateway.started --after 1", 0),
        ("audit list --kind override.", 0),
    ],
)
def test_a_list_goes_on_behind_empty_pages(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], arguments: str, found: int
) -> None:
    """A command pages until it has what was asked for or the end, and then says of no limit."""
    capsys.readouterr()
    code = run([*arguments.split(), "--state-dir", str(gateway.state_dir), "--output", "jsonl"])
    told = capsys.readouterr()
    assert (code, told.err) == (0, "")
    listed: list[dict[str, Any]] = [json.loads(line) for line in told.out.splitlines()]
    assert len(listed) == found


def test_a_limit_that_ended_a_list_is_told(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies beyond --limit is not left out silently."""
    for arguments, what in (
        ("runs list", "older runs"),
        ("audit list", "older rows"),
        ("audit list --after 1", "later rows"),
        ("conversations list", "older conversations"),
    ):
        capsys.readouterr()
        assert run([*arguments.split(), "--limit", "1", "--state-dir", str(gateway.state_dir)]) == 0
        assert capsys.readouterr().err == f"there may be {what}: --limit 1 ended the list\n"
