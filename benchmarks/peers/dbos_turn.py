"""The one-tool turn in DBOS on SQLite: a workflow of three recorded steps, model, tool, model.

Run by its own interpreter: `python dbos_turn.py DATABASE CONVERSATIONS TURNS`; prints one JSON object.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from dbos import DBOS, DBOSConfig


@DBOS.step()
async def model(history: list[str]) -> str:
    """Call the tool once in each turn, then answer."""
    return "call noop" if history[-1] == "go" else "done"


@DBOS.step()
async def tool() -> str:
    """Do nothing, and say so."""
    return "ok"


@DBOS.workflow()
async def turn(text: str) -> str:
    """One turn."""
    asked = await model([text])
    answer: str = await model([text, asked, await tool()])
    return answer


def _size(database: Path) -> int:
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))


async def main() -> None:
    """Run the turns and report."""
    database, conversations, turns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    config: DBOSConfig = {
        "name": "peer",
        "system_database_url": f"sqlite:///{database}",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()

    async def converse() -> list[float]:
        times = []
        for _ in range(turns):
            begun = time.perf_counter()
            await turn("go")
            times.append((time.perf_counter() - begun) * 1000)
        return times

    await turn("go")
    begun = time.perf_counter()
    times = await asyncio.gather(*(converse() for _ in range(conversations)))
    elapsed = time.perf_counter() - begun
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"times": times[0], "elapsed": elapsed, "bytes": _size(database), "rss": rss}))
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
