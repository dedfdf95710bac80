"""The one-tool turn in LangGraph: a graph of model and tool, its SQLite checkpointer in sync durability.

Run by its own interpreter: `python langgraph_turn.py DATABASE CONVERSATIONS TURNS`; prints one JSON object.
"""

import asyncio
import json
import resource
import sys
import time
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    """What a conversation holds."""

    messages: Annotated[list[AnyMessage], add]


async def model(state: State) -> dict[str, Any]:
    """Call the tool once in each turn, then answer."""
    if isinstance(state["messages"][-1], HumanMessage):
        call = {"name": "noop", "args": {}, "id": f"call-{len(state['messages'])}"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}
    return {"messages": [AIMessage(content="done")]}


async def tool(state: State) -> dict[str, Any]:
    """Do nothing, and say so."""
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    return {"messages": [ToolMessage(content="ok", tool_call_id=last.tool_calls[0]["id"])]}


def _next(state: State) -> str:
    last = state["messages"][-1]
    return "tool" if isinstance(last, AIMessage) and last.tool_calls else END


def _size(database: Path) -> int:
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))


async def main() -> None:
    """Run the turns and report."""
    database, conversations, turns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", _next)
    builder.add_edge("tool", "model")
    async with AsyncSqliteSaver.from_conn_string(str(database)) as saver:
        # WAL is what the saver sets up; FULL makes a commit survive a power loss, as the gateway's do.
        await saver.conn.execute("PRAGMA synchronous=FULL")
        graph = builder.compile(checkpointer=saver)

        async def converse(thread: str) -> list[float]:
            times = []
            for _ in range(turns):
                begun = time.perf_counter()
                await graph.ainvoke(
                    {"messages": [HumanMessage(content="go")]},
                    {"configurable": {"thread_id": thread}},
                    durability="sync",
                )
                times.append((time.perf_counter() - begun) * 1000)
            return times

        await graph.ainvoke(
            {"messages": [HumanMessage(content="go")]},
            {"configurable": {"thread_id": "warm"}},
            durability="sync",
        )
        begun = time.perf_counter()
        times = await asyncio.gather(*(converse(f"thread-{number}") for number in range(conversations)))
        elapsed = time.perf_counter() - begun
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"times": times[0], "elapsed": elapsed, "bytes": _size(database), "rss": rss}))


if __name__ == "__main__":
    asyncio.run(main())
