"""LangGraph: one Send per item to a single node.

The width is `max_concurrency`, and a list reducer keeps the order.

C is played with both of its SQLite savers, the thread-based and the asynchronous one; the node's
result is written as its own row when the node ends. Durability stays at its default, the cheapest
that has every row on disk when the call returns. The graph is compiled and the saver's tables are
made outside the lap.
"""
# mypy: disable-error-code="import-not-found"

import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, payload, run


class State(TypedDict):
    """The items to do and the results so far."""

    items: list[int]
    results: Annotated[list[object], operator.add]


def fan_out(state: State) -> list[Any]:
    """Send each item to the node."""
    return [Send("one", item) for item in state["items"]]


def graph_of(node: Any, saver: Any = None) -> Any:  # noqa: ANN401 - LangGraph is typed only where it is installed
    """Compile the graph: start, a node per item, end."""
    builder = StateGraph(State)
    builder.add_node("one", node)
    builder.add_conditional_edges(START, fan_out, ["one"])
    builder.add_edge("one", END)
    return builder.compile(checkpointer=saver)


def node_of(work: str) -> Callable[[int], object]:
    """Make a node of the work's item."""
    function = ITEMS[work]

    async def one(item: int) -> dict[str, list[object]]:
        return {"results": [await function(item)]}

    return one


def call_of(load: Load) -> tuple[dict[str, list[int]], dict[str, object]]:
    """Return the input and the configuration of one call."""
    state: dict[str, list[int]] = {"items": list(range(load.n)), "results": []}
    return state, {"configurable": {"thread_id": "bench"}, "max_concurrency": load.width}


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A or B in memory."""
    graph = graph_of(node_of(load.work))
    with lap:
        state = await graph.ainvoke(*call_of(load))
    return list(state["results"])


async def play_durable(load: Load, lap: Lap) -> list[object]:
    """Play C or W on the event loop, with the AsyncSqliteSaver."""
    async with AsyncSqliteSaver.from_conn_string(str(load.scratch / "checkpoints.db")) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=FULL")
        graph = graph_of(node_of(load.work), saver)
        with lap:
            state = await graph.ainvoke(*call_of(load))
    return list(state["results"])


def play_durable_threads(load: Load, lap: Lap) -> list[object]:
    """Play C on threads, with the SqliteSaver."""
    with closing(
        sqlite3.connect(load.scratch / "checkpoints.db", check_same_thread=False)
    ) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        connection.execute("PRAGMA synchronous=FULL")
        graph = graph_of(lambda item: {"results": [payload(item)]}, saver)
        with lap:
            state = graph.invoke(*call_of(load))
    return list(state["results"])


if __name__ == "__main__":
    plays = {
        "A": on_loop(play),
        "B": on_loop(play),
        "C": on_loop(play_durable),
        "C-threads": play_durable_threads,
        "W": on_loop(play_durable),
    }
    run(plays, package="langgraph")
