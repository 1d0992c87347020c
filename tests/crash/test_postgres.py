"""Law 5 over PostgreSQL: drivers are killed and paused, the server is killed and restarted."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from importlib.util import module_from_spec, spec_from_file_location

import pytest

import abreast
from abreast.core.errors import RunBusy
from abreast.store.port import each_event
from abreast.store.postgres.leases import LeaseTimes
from abreast.store.postgres.store import PostgresStore
from tests import postgres
from tests.crash.test_crash import JOB, PATIENCE, WIDTH, _final
from tests.store.contract import BOB
from tests.turns import wait_until

ITEMS = 120


class PostgresJob:
    """The killed job of `test_crash`, with a store in PostgreSQL."""

    def __init__(self, folder, url, warm):
        self.url = url
        self.counts = folder / "counts"
        self.counts.mkdir(parents=True)
        self._warm = warm

    def run(self, *extra):
        arguments = (self.url, str(self.counts), str(ITEMS), str(WIDTH), *extra)
        code, out, _ = self._warm.run(
            str(JOB), arguments, cwd=self.counts, environment={**os.environ}, patience=PATIENCE
        )
        return code, out.decode()

    def finish(self):
        code, said = self.run()
        assert code == 0
        return said.split("\n")[-2]

    def executed(self):
        return {int(path.name): path.stat().st_size for path in self.counts.iterdir()}

    def recorded(self):
        with closing(PostgresStore(self.url)) as store:
            events = each_event(store, "killed-1", {"item-settled"})
            return _final(json.loads(json.dumps(dict(event.data))) for event in events)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, warm):
    url = postgres.in_new_schema(postgres.addresses()[0])
    return PostgresJob(tmp_path_factory.mktemp("calm"), url, warm).finish()


@pytest.fixture
def job(tmp_path, postgres_url, warm):
    return PostgresJob(tmp_path, postgres_url, warm)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", [1, 2, 5])
def test_killed_at_a_boundary_and_resumed_at_once_it_returns_the_same(
    job, commit, when, undisturbed
):
    assert job.run("--crash", str(commit), when)[0] == -signal.SIGKILL
    recorded, executed = job.recorded(), job.executed()
    assert job.finish() == undisturbed
    again = job.executed()
    assert sorted(again) == list(range(ITEMS))
    assert sum(again.values()) - ITEMS <= WIDTH
    assert all(again[item] == executed[item] for item in recorded), "a recorded item ran again"


# --- a driver that was paused ---

PAUSED = """
import asyncio, sys
import abreast
from abreast.store.postgres.leases import LeaseTimes
from abreast.store.postgres.store import PostgresStore

store = PostgresStore(sys.argv[1], lease=LeaseTimes(lasts=2, renewed=0.1))

async def work(item):
    return await asyncio.to_thread(sys.stdin.readline)

async def main():
    async with abreast.open_run("paused", store=store) as run:
        async for outcome in run.map(work, range(3), width=1):
            print(outcome.state, flush=True)

try:
    asyncio.run(main())
except abreast.errors.DriverReplaced as error:
    print(error, flush=True)
"""


@contextmanager
def paused_driver(url):
    driver = subprocess.Popen(
        [sys.executable, "-c", PAUSED, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with driver:
        try:
            yield driver
        finally:
            driver.kill()


@pytest.mark.usefixtures("unmeasured")
def test_a_driver_that_was_paused_for_too_long_can_write_nothing_more_and_says_so(postgres_url):
    with paused_driver(postgres_url) as driver, closing(PostgresStore(postgres_url)) as store:
        driver.stdin.write("go\n")
        assert driver.stdout.readline() == "done\n"
        with pytest.raises(RunBusy):  # its lease is renewed
            store.take_over("paused-1", BOB)
        driver.send_signal(signal.SIGSTOP)
        wait_until(lambda: not store.driven("paused-1"))
        assert store.take_over("paused-1", BOB).epoch == 2
        before = [event.seq for event in each_event(store, "paused-1")]
        driver.send_signal(signal.SIGCONT)
        driver.stdin.write("go\n")
        said = driver.stdout.readline()
        assert "run paused-1 was taken over by process 22 on there (driver number 2)" in said
        assert driver.wait(60) == 0
        assert [event.seq for event in each_event(store, "paused-1")] == before
        assert store.driven("paused-1")


@pytest.mark.usefixtures("unmeasured")
def test_a_driver_that_was_paused_and_not_replaced_goes_on(postgres_url):
    with paused_driver(postgres_url) as driver, closing(PostgresStore(postgres_url)) as store:
        driver.stdin.write("go\n")
        assert driver.stdout.readline() == "done\n"
        driver.send_signal(signal.SIGSTOP)
        wait_until(lambda: not store.driven("paused-1"))
        driver.send_signal(signal.SIGCONT)
        driver.stdin.write("go\ngo\n")
        assert [driver.stdout.readline() for _ in range(2)] == ["done\n"] * 2
        assert driver.wait(60) == 0
        assert (store.get("paused-1").state, store.get("paused-1").epoch) == ("done", 1)


# --- a server that is killed ---


@pytest.fixture(scope="module")
def servers():
    """A server of this module's own, which waits for its disk as in production."""
    postgres.addresses()  # skips if there is no PostgreSQL
    spec = spec_from_file_location("scripts_postgres", postgres.SCRIPT)
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    with script.open_server(recovery_init_sync_method="syncfs") as server:
        with script.open_bouncer(server) as bouncer:
            yield server, {"direct": server.url, "bouncer": bouncer}


@pytest.mark.parametrize(
    ("end", "way"), [("kill", "direct"), ("stop", "direct"), ("kill", "bouncer")]
)
async def test_a_server_that_is_killed_or_restarted_under_a_map_loses_and_repeats_nothing(
    servers, end, way
):
    server, addresses = servers
    url = postgres.in_new_schema(addresses[way])
    calls, items, restarts = [], 60, {10, 40}
    restarting = []

    def restart():
        getattr(server, end)()
        server.start()

    async def work(item):
        calls.append(item)
        if item in restarts:
            restarting.append(threading.Thread(target=restart))
            for other in restarting[:-1]:
                other.join()
            restarting[-1].start()
        return item * 2

    with closing(PostgresStore(url, lease=LeaseTimes(5.0, 0.2))) as store:
        async with abreast.open_run("storm", store=store) as run:
            seen = [outcome.value async for outcome in run.map(work, range(items), width=3)]
        for thread in restarting:
            thread.join()
        events = list(each_event(store, "storm-1"))
        settled = [event.path for event in events if event.kind == "item-settled"]
        assert store.get("storm-1").state == "done"
    assert seen == [item * 2 for item in range(items)]
    assert sorted(calls) == list(range(items))
    assert len(restarting) == 2
    assert len(settled) == len(set(settled)) == items
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
