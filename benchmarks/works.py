"""The works, and who plays each: how many items, how wide, how often."""

from dataclasses import dataclass, replace

OURS = "abreast"
WINDOW = "TaskGroup window"
SEMAPHORE = "TaskGroup+Semaphore"
THREADS = "ThreadPool"
AIOMETER = "aiometer"
ANYIO = "anyio limiter"
GROUP_COMMIT = "sqlite3 group commit"
IMPORT_OURS = "import abreast"
IMPORT_FLOOR = "import asyncio, sqlite3"
# All that a first call would need: the lanes, the adapter, and aiohttp beneath it.
OPEN_MODEL = (
    'import os, abreast; os.environ["OPENAI_API_KEY"] = "sk-none"; '
    'abreast.open_model("openai/gpt-4o-mini")'
)
# Without asking the network for prices.
IMPORT_LITELLM = 'import os; os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"; import litellm'
LANGGRAPH_SAVERS = ("LangGraph AsyncSqliteSaver", "LangGraph SqliteSaver")
DBOS_FORMS = ("DBOS steps", "DBOS queue")
AIOHTTP = "raw aiohttp"
SDKS = ("openai SDK", "litellm", "any-llm", "pydantic-ai", "inspect_ai")
B_NAP = 0.050


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender in one work.

    A module of `contenders` with its arguments, or an import statement to time.
    """

    label: str
    module: str = ""
    play: str = ""
    n: int = 1
    width: int = 1
    # Maps per process: short works are repeated, as 30 ms are too few to time.
    repeat: int = 1
    # At most this many rounds: for contenders so slow that more would only cost time.
    rounds: int | None = None
    # The environment under .peers; none: the interpreter that runs the harness.
    peer: str | None = None
    statement: str = ""
    # Seconds that the chat server takes for a call, the fewest and the most; none: there is no
    # server.
    latency: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A work: its entries, and the label of the one that all others are divided by."""

    name: str
    title: str
    reference: str
    entries: tuple[Entry, ...]


def works(*, quick: bool = False) -> dict[str, Work]:
    """Return all works by name; `quick` ones are smaller, for trying the harness out."""
    makers = (_work_a, _work_a0, _work_b, _work_c, _work_d, _work_d2, _work_h, _work_w, _growth)
    return {work.name: work for work in (make(quick=quick) for make in makers)}


def ideal_of_b(entry: Entry) -> float:
    """Return the seconds B would take if nothing but the naps took time."""
    return entry.n / entry.width * B_NAP


def _work_a(*, quick: bool) -> Work:
    n, width, repeat = (2_000 if quick else 10_000), 100, 3
    entries = (
        Entry(OURS, "abreast_map", "A", n, width, repeat),
        Entry(WINDOW, "taskgroup_window", "A", n, width, repeat),
        Entry("raw worker pool", "workers", "A", n, width, repeat),
        Entry(SEMAPHORE, "taskgroup_semaphore", "A", n, width, repeat),
        Entry(THREADS, "threads", "A", n, width, repeat),
        Entry(AIOMETER, "aiometer_run_all", "A", n, width, repeat, peer="aiometer"),
        Entry(ANYIO, "anyio_limiter", "A", n, width, repeat, peer="anyio"),
        # Its cost per item grows with n (see growth): a tenth of the items flatters it.
        Entry("LangGraph Send", "langgraph_send", "A", n // 10, width, peer="langgraph"),
    )
    return Work(
        "A",
        f"map of {n:,} no-op async items that each yield once, width {width}, ordered",
        WINDOW,
        entries,
    )


def _work_a0(*, quick: bool) -> Work:
    # Not a target, and shown because a semaphore nobody waits for is nearly free: A's items wait
    # once.
    entries = tuple(
        replace(entry, play="A0")
        for entry in _work_a(quick=quick).entries
        if entry.peer != "langgraph"
    )
    return Work("A0", "as A, with items that never wait", WINDOW, entries)


def _work_b(*, quick: bool) -> Work:
    n, width = (400 if quick else 2_000), 200
    entries = (
        Entry(OURS, "abreast_map", "B", n, width),
        Entry(WINDOW, "taskgroup_window", "B", n, width),
        Entry("raw worker pool", "workers", "B", n, width),
        Entry(SEMAPHORE, "taskgroup_semaphore", "B", n, width),
        Entry(THREADS, "threads", "B", n, width),
        Entry(AIOMETER, "aiometer_run_all", "B", n, width, peer="aiometer"),
        Entry(ANYIO, "anyio_limiter", "B", n, width, peer="anyio"),
        Entry("LangGraph Send", "langgraph_send", "B", n, width, peer="langgraph"),
    )
    return Work(
        "B",
        f"{n:,} items of 50 ms, width {width}; ideal {n / width * B_NAP:.2f} s",
        WINDOW,
        entries,
    )


def _work_c(*, quick: bool) -> Work:
    n, width, repeat = (200 if quick else 1_000), 50, 3
    async_saver, thread_saver = LANGGRAPH_SAVERS
    steps, queue = DBOS_FORMS
    entries = (
        Entry(OURS, "abreast_map", "C", n, width, repeat),
        Entry(GROUP_COMMIT, "sqlite_group_commit", "C", n, width, repeat),
        Entry(async_saver, "langgraph_send", "C", n, width, peer="langgraph"),
        Entry(thread_saver, "langgraph_send", "C-threads", n, width, peer="langgraph"),
        Entry(steps, "dbos_sqlite", "C", n, width, peer="dbos"),
        Entry(queue, "dbos_sqlite", "C-queue", n, width, rounds=2, peer="dbos"),
        Entry("whole-state JSON", "json_rewrite", "C", n, width),
    )
    return Work(
        "C",
        f"durable map of {n:,} items, on disk before reported, width {width}",
        GROUP_COMMIT,
        entries,
    )


def _work_d(*, quick: bool) -> Work:
    n, width = (400 if quick else 2_000), 200
    openai, litellm, any_llm, pydantic_ai, inspect_ai = SDKS
    entries = (
        Entry(OURS, "chat_abreast", "D", n, width),
        Entry(f"{OURS}, no store", "chat_abreast", "D-memory", n, width),
        Entry(AIOHTTP, "chat_aiohttp", "D", n, width),
        Entry(openai, "chat_openai", "D", n, width, rounds=3, peer="openai"),
        Entry(
            f"{openai} on aiohttp", "chat_openai", "D-aiohttp", n, width, rounds=3, peer="openai"
        ),
        Entry(litellm, "chat_litellm", "D", n, width, rounds=3, peer="litellm"),
        Entry(any_llm, "chat_any_llm", "D", n, width, rounds=3, peer="any-llm"),
        Entry(pydantic_ai, "chat_pydantic_ai", "D", n, width, rounds=3, peer="pydantic-ai"),
        Entry(inspect_ai, "chat_inspect", "D", n, width, rounds=3, peer="inspect-ai"),
        Entry("httpx", "chat_httpx", "D", n, width, rounds=1, peer="httpx"),
    )
    timed = tuple(replace(entry, latency=(0.050, 0.050)) for entry in entries)
    return Work(
        "D", f"{n:,} chat calls of 50 ms over loopback HTTP, {width} in flight", AIOHTTP, timed
    )


def _work_d2(*, quick: bool) -> Work:
    work = _work_d(quick=quick)
    entries = tuple(replace(entry, latency=(0.025, 0.075)) for entry in work.entries)
    return Work("D2", work.title.replace("50 ms", "25 to 75 ms"), AIOHTTP, entries)


def _work_h(*, quick: bool) -> Work:
    many, in_flight = (100_000, 2_000) if quick else (1_000_000, 10_000)
    entries = (
        Entry(IMPORT_OURS, statement="import abreast"),
        # Says what the names cost that are fetched only when they are asked for.
        Entry("from abreast import open_run", statement="from abreast import open_run"),
        Entry('open_model("openai/...")', statement=OPEN_MODEL),
        Entry(IMPORT_FLOOR, statement="import asyncio, sqlite3"),
        Entry("import aiohttp", statement="import aiohttp"),
        Entry("import anyio", statement="import anyio", peer="anyio"),
        Entry("import aiometer", statement="import aiometer", peer="aiometer"),
        Entry("import langgraph.graph", statement="import langgraph.graph", peer="langgraph"),
        Entry("import dbos", statement="import dbos", peer="dbos"),
        Entry("import openai", statement="import openai", peer="openai"),
        Entry("import any_llm", statement="import any_llm", peer="any-llm"),
        Entry("import pydantic_ai", statement="import pydantic_ai", peer="pydantic-ai"),
        Entry("import inspect_ai.model", statement="import inspect_ai.model", peer="inspect-ai"),
        Entry("import litellm", statement=IMPORT_LITELLM, peer="litellm"),
        Entry(
            f"abreast, memory growth over {many:,} items",
            "abreast_map",
            "memory",
            many,
            100,
            rounds=1,
        ),
        Entry("abreast, an item in flight", "abreast_map", "flight", in_flight, in_flight),
        Entry(
            "TaskGroup window, an item in flight",
            "taskgroup_window",
            "flight",
            in_flight,
            in_flight,
        ),
    )
    return Work("H", "import time and memory", IMPORT_FLOOR, entries)


def _work_w(*, quick: bool) -> Work:
    # n = 1 is the fixed cost, which is subtracted where growth is judged.
    ladder, width = ((1, 100, 1_000) if quick else (1, 100, 1_000, 10_000)), 50
    entries = [Entry(OURS, "workflow_abreast", "W", n, width, _repeats(n, 2_000)) for n in ladder]
    entries += [
        Entry("whole-state JSON", "json_rewrite", "W", n, width, rounds=1) for n in ladder[1:3]
    ]
    entries += [
        Entry(LANGGRAPH_SAVERS[0], "langgraph_send", "W", n, width, rounds=2, peer="langgraph")
        for n in ladder[1:3]
    ]
    entries.append(Entry("Prefect", "prefect_map", "W", 100, width, rounds=1, peer="prefect"))
    return Work(
        "W",
        f"a workflow's fan-out with results of 2 KB, on disk, width {width}",
        OURS,
        tuple(entries),
    )


def _growth(*, quick: bool) -> Work:
    # n = 1 is the fixed cost of a map, which is subtracted: what is left is the cost of one item
    # more.
    ladder = (1, 100, 1_000, 10_000) if quick else (1, 100, 1_000, 10_000, 100_000)
    entries: list[Entry] = []
    for n in ladder:
        repeat, durable_repeat = _repeats(n, 20_000), _repeats(n, 3_000)
        entries += [
            Entry(OURS, "abreast_map", "A", n, 100, repeat),
            Entry(WINDOW, "taskgroup_window", "A", n, 100, repeat),
            Entry(f"{OURS}, durable", "abreast_map", "C", n, 50, durable_repeat),
            Entry(GROUP_COMMIT, "sqlite_group_commit", "C", n, 50, durable_repeat),
        ]
    sends = (1, 100, 1_000) if quick else (1, 100, 1_000, 10_000)
    entries += [
        Entry(
            "LangGraph Send",
            "langgraph_send",
            "A",
            n,
            100,
            _repeats(n, 1_000),
            rounds=1,
            peer="langgraph",
        )
        for n in sends
    ]
    return Work("growth", f"cost per item from 100 to {ladder[-1]:,} items", WINDOW, tuple(entries))


def _repeats(n: int, items: int) -> int:
    """Return how many maps of `n` make about `items`, within what a process can do in a second."""
    return max(1, min(items // n, 200))
