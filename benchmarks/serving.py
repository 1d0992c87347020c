"""What `abreast serve` brings and costs: `python -m benchmarks.serving [--only limits|cost]`.

limits: three clients in three processes make 600 calls at a provider that takes 12 at once and 600
a minute, with and without the server. cost: CPU and added latency of a call, beside a proxy of
aiohttp that only passes on, and litellm's proxy, if `python -m benchmarks.peers litellm-proxy` has
installed it. All are on loopback, with invented keys; litellm has an empty environment.
"""

import argparse
import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import aiohttp

from abreast.testing.storm import start_process
from benchmarks import peers
from benchmarks.peers import ROOT
from benchmarks.served_clients import INVENTED_KEY, python_of

LOAD = ROOT / "benchmarks" / "contenders" / "serve_load.py"
PROXY = ROOT / "benchmarks" / "contenders" / "bare_proxy.py"
CLIENTS = ("openai", "anthropic", "langchain")
TOKEN = "token-of-the-benchmark"
RPM, AT_ONCE, BURST, LATENCY = 600, 12, 30, 0.9
CALLS_EACH, WIDTH_EACH = 200, 40
TURN = 50  # calls, to a server before the next one is asked
WARM_TURNS = 5
BARE = "bare aiohttp proxy"
LITELLM = "litellm-proxy"
LITELLM_START = 300  # seconds; on a busy machine its imports alone take more than two minutes


class Server(NamedTuple):
    """A server between clients and the storm."""

    url: str
    pid: int
    key: str = INVENTED_KEY


@contextmanager
def start_serve(storm_url: str, folder: Path, *flags: str) -> Iterator[Server]:
    """`abreast serve` before a storm."""
    (folder / "abreast.toml").write_text(
        f'[lanes.openai]\nbase_url = "{storm_url}/v1"\n', encoding="utf-8"
    )
    command = [sys.executable, "-m", "abreast", "serve", "--port", "0", "--json", *flags]
    environment = {
        **os.environ,
        "ABREAST_SERVE_TOKEN": TOKEN,
        "OPENAI_API_KEY": INVENTED_KEY,
        "ABREAST_STATE": str(folder / "state"),
    }
    with _started(command, environment, folder) as child:
        line = child.stdout.readline() if child.stdout is not None else ""
        yield Server(json.loads(line)["address"], child.pid, TOKEN)


@contextmanager
def start_bare_proxy(storm_url: str, folder: Path) -> Iterator[Server]:
    """A proxy that only passes on."""
    with _started([sys.executable, str(PROXY), storm_url], dict(os.environ), folder) as child:
        line = child.stdout.readline() if child.stdout is not None else ""
        yield Server(line.strip(), child.pid)


@contextmanager
def start_litellm(python: str, storm_url: str, folder: Path) -> Iterator[Server]:
    """The proxy of litellm."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    key = f"sk-{secrets.token_hex(32)}"  # it does not start without one
    config = {
        "general_settings": {"master_key": key},
        "litellm_settings": {"telemetry": False},
        "model_list": [
            {
                "model_name": "gpt-x",
                "litellm_params": {
                    "model": "openai/gpt-x",
                    "api_base": f"{storm_url}/v1",
                    "api_key": INVENTED_KEY,
                },
            }
        ],
    }
    (folder / "litellm.yaml").write_text(json.dumps(config), encoding="utf-8")
    litellm = str(Path(python).absolute().with_name("litellm"))
    command = [litellm, "--config", "litellm.yaml", "--port", str(port), "--host", "127.0.0.1"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "*",
    }
    with _started(command, environment, folder, heard=False) as child:
        url = f"http://127.0.0.1:{port}"
        for _ in range(LITELLM_START):
            if child.poll() is not None:
                said = (folder / "stderr.txt").read_text(encoding="utf-8")[-2000:]
                raise RuntimeError(f"litellm's proxy ended with {child.returncode}: {said}")
            if asyncio.run(_answers(url)):
                break
            time.sleep(1.0)
        else:
            raise RuntimeError(f"litellm's proxy gave no answer in {LITELLM_START} s")
        yield Server(url, child.pid, key)


async def _answers(url: str) -> bool:
    try:
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url}/health/liveliness"),
        ):
            return True
    except (aiohttp.ClientError, TimeoutError):
        return False


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], folder: Path, *, heard: bool = True
) -> "Iterator[subprocess.Popen[str]]":
    """A process; one that is not `heard` may print as much as it wants."""
    with (folder / "stderr.txt").open("w") as errors:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE if heard else errors,
            stderr=errors,
            text=True,
        )
        try:
            yield child
        finally:
            child.terminate()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


# --- limits


def measure_limits() -> None:
    """Print the table of the three clients, with and without the server.

    The time is from the first request at the provider to its last reply: not that of three starts
    of an interpreter.
    """
    bound = (len(CLIENTS) * CALLS_EACH - BURST) / (RPM / 60) + LATENCY
    print(f"600 calls, {AT_ONCE} at once, {RPM} a minute: {bound:.1f} s at the least")
    print(f"{'':<22} {'seconds':>8} {'x bound':>8} {'peak':>5} {'rejected':>11} {'errors':>7}")
    seen = 0
    with (
        start_process(
            rpm=RPM, concurrency=AT_ONCE, burst=BURST, latency=LATENCY, noise=0.2
        ) as storm,
        tempfile.TemporaryDirectory() as place,
    ):
        for name in ("limits found by itself", "12 at once told", "without"):
            if seen:  # until the bucket of requests is full again, as it was for the first row
                time.sleep(2 * BURST / (RPM / 60))
            if name == "without":
                errors = _load(storm.url, INVENTED_KEY)
            else:
                folder = Path(place, name.replace(" ", "-"))
                folder.mkdir()
                told = () if name.startswith("limits") else ("--lane-width", f"openai={AT_ONCE}")
                with start_serve(storm.url, folder, *told) as server:
                    errors = _load(server.url, server.key)
            log = storm.log(since=seen)
            seen += len(log)
            ends = [one.t_end for one in log if one.t_end is not None]
            seconds = max(ends) - min(one.t_arrive for one in log)
            count = sum(one.verdict == "rejected" for one in log)
            rejected = f"{count} ({100 * count / len(log):.1f}%)"
            peak = max(one.in_flight for one in log)
            print(
                f"{name:<22} {seconds:>8.1f} {seconds / bound:>8.2f} {peak:>5} "
                f"{rejected:>11} {errors:>7}",
                flush=True,
            )


def _load(url: str, key: str) -> int:
    """Run the clients side by side; returns how many calls failed."""
    children = []
    for name in CLIENTS:
        # With the server, all of them use the one provider that it stands before.
        model = "openai/gpt-x" if name == "anthropic" and key == TOKEN else "gpt-x"
        environment = {
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": key,
            "NO_PROXY": "*",
        }
        words = [str(python_of(name)), str(LOAD), name, str(CALLS_EACH), str(WIDTH_EACH), model]
        children.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    found: list[Any] = [json.loads(child.communicate()[0]) for child in children]
    return sum(sum(one["errors"].values()) for one in found)


# --- cost


def measure_cost(litellm: str | None, calls: int, rounds: int) -> None:
    """Print CPU and added latency of a call; all servers run, and are asked in turn.

    A shared CPU is twice as fast at one time as at another, so only turns that follow each other
    are compared: the ratio is the median of theirs.
    """
    with ExitStack() as stack:
        storm = stack.enter_context(start_process())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wide = ("--lane-width", "64")
        ways: dict[str, Any] = {
            BARE: lambda folder: start_bare_proxy(storm.url, folder),
            "abreast serve": lambda folder: start_serve(storm.url, folder, *wide),
            "with a budget": lambda folder: start_serve(
                storm.url, folder, *wide, "--budget", "100Mtok"
            ),
            "without record": lambda folder: start_serve(storm.url, folder, *wide, "--no-record"),
        }
        if litellm is not None:
            ways["litellm's proxy"] = lambda folder: start_litellm(litellm, storm.url, folder)
        servers = {"directly": Server(storm.url, 0)}
        for name, start in ways.items():
            folder = place / name.replace(" ", "-")
            folder.mkdir()
            servers[name] = stack.enter_context(start(folder))
        cpu: dict[str, list[float]] = {name: [] for name in ways}
        late: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(rounds + 1):
            turns = max(1, calls // TURN) if number else WARM_TURNS
            asked = {name: servers[name] for name in ways}
            for name, found in asyncio.run(_cpu_of_calls(asked, turns)).items():
                if number:  # the first round is to warm up
                    cpu[name] += found
            for name, seconds in asyncio.run(_latencies(servers, calls // 4)).items():
                if number:
                    late[name] += seconds
    _print_cost(cpu, {name: median(all_of) for name, all_of in late.items()})


def _print_cost(cpu: dict[str, list[float]], late: dict[str, float]) -> None:
    print(f"{'':<20} {'CPU ms':>7} {'x bare':>7} {'added ms':>9} {'x bare':>7}")
    bare_late = late[BARE] - late["directly"]
    for name, each in cpu.items():
        ratio = median(ours / bare for ours, bare in zip(each, cpu[BARE], strict=True))
        used, added = median(each), late[name] - late["directly"]
        print(
            f"{name:<20} {1e3 * used:>7.2f} {ratio:>7.2f} "
            f"{1e3 * added:>9.2f} {added / bare_late:>7.2f}"
        )


async def _cpu_of_calls(servers: dict[str, Server], turns: int) -> dict[str, list[float]]:
    """CPU seconds of a call in each turn, at 16 at once; all servers have their turns in turn.

    What a server does until its next turn begins, such as committing records, is that turn's.
    """
    counted: dict[str, list[float]] = {name: [] for name in servers}
    async with AsyncExitStack() as stack:
        sessions = {
            name: await stack.enter_async_context(aiohttp.ClientSession()) for name in servers
        }
        for number in range(turns + 1):
            for name, server in servers.items():
                counted[name].append(_cpu_of(server.pid))
                if number < turns:
                    await _ask(sessions[name], server, f"turn {number}", TURN, 16)
    return {
        name: [(after - before) / TURN for before, after in pairwise(each)]
        for name, each in counted.items()
    }


async def _latencies(servers: dict[str, Server], calls: int) -> dict[str, list[float]]:
    """Seconds of single calls, one server after the other, so that all have the same noise."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    async with aiohttp.ClientSession() as session:
        for number in range(calls):
            for name, server in servers.items():
                began = time.perf_counter()
                await _call(session, server, f"latency {number}")
                found[name].append(time.perf_counter() - began)
    return found


async def _ask(
    session: aiohttp.ClientSession, server: Server, name: str, calls: int, width: int
) -> None:
    """Make calls, so many at once."""
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            await _call(session, server, f"{name} {number}")

    await asyncio.gather(*(work() for _ in range(width)))


async def _call(session: aiohttp.ClientSession, server: Server, name: str) -> None:
    turn = {"role": "user", "content": f"call {name} " + "word " * 50}
    headers = {"authorization": f"Bearer {server.key}"}
    url = f"{server.url}/v1/chat/completions"
    body = {"model": "gpt-x", "messages": [turn]}
    async with session.post(url, json=body, headers=headers) as reply:
        await reply.read()
        if reply.status != 200:
            raise RuntimeError(await reply.text())


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process' threads by the scheduler, which counts nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text("ascii").split()[0]) for one in threads) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["limits", "cost"])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.only != "cost":
        missing = [name for name in CLIENTS if not python_of(name).exists()]
        if missing:
            parser.error(f"`make served-clients` installs what this needs: {', '.join(missing)}")
        measure_limits()
    if given.only != "limits":
        litellm = str(peers.python_of(LITELLM)) if peers.is_installed(LITELLM) else None
        measure_cost(litellm, given.calls, given.rounds)


if __name__ == "__main__":
    main()
