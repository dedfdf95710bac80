"""Run by a test in a process of its own: writes for ever and prints every acknowledgement."""

import asyncio
import os
import sys
from pathlib import Path

from tests.storage.builders import running, say
from tyrum_gateway.storage import SqliteStore


async def _conversation(store: SqliteStore) -> None:
    turn = await running(store)
    while True:
        turn, events, *_ = await store.commit(say(turn, "a", "b"))
        # One write each: what the test reads was acknowledged before.
        os.write(1, f"{turn.conversation_id} {turn.turn_id} {turn.version} {events[-1].sequence}\n".encode())


async def _main(path: Path) -> None:
    store = await SqliteStore.open(path)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(_conversation(store))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
