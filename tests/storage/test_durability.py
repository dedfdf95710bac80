"""What was acknowledged is there, whatever happens to the process."""

import asyncio
import sys
from pathlib import Path

from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.storage import SqliteStore

_ROOT = Path(__file__).parents[2]


async def test_acknowledged_commits_survive_a_kill(database: Path) -> None:
    """After SIGKILL amid writes every acknowledged commit is present, and no commit is there in part."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.storage.writing_process",
        str(database),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(50):
            lines = [await process.stdout.readline() for _ in range(400)]
            process.kill()
            lines += (await process.stdout.read()).splitlines(keepends=True)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    acknowledged = [line.decode().split() for line in lines if line.endswith(b"\n")]
    assert len(acknowledged) >= 400
    latest = {
        conversation: (turn, int(version), int(last)) for conversation, turn, version, last in acknowledged
    }
    assert len(latest) == 8
    async with await SqliteStore.open(database) as store:
        for conversation_id, (turn_id, version, last) in latest.items():
            events = await store.events(ConversationId(conversation_id), 0, 100_000)
            turn = (await store.turn(TurnId(turn_id))).turn
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert len(events) >= last
            assert turn.version >= version
            # One event at acceptance, none at the claim, two in every commit since.
            assert len(events) == 1 + 2 * (turn.version - 2)
