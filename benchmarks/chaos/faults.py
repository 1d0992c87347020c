"""The faults: what each does before, while and after the driver runs."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.chaos.memory_group import MemoryGroup
from benchmarks.chaos.place import kill, wait_for_processes
from benchmarks.chaos.scene import WHILE_IT_WORKS, Scene, open_files, parent_name, status

Driver: TypeAlias = "subprocess.Popen[bytes]"
_KIB: Final = 1024
_ALL: Final = 10_000  # more than any job repeats


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it disturbs the driver by its environment, by the model's server, or by acting."""

    act: Callable[[Scene, Driver], None] | None = None
    """Called once the driver runs."""
    between: Callable[[Scene], None] | None = None
    """Called when it has ended, before anything is resumed."""
    environment: Callable[[Scene], dict[str, str]] | None = None
    requests: tuple[str, ...] = ()
    """Faults of the model's server; only jobs that ask models meet them."""
    unreadable: bool = False
    """Whether these are replies that are paid for and can't be read."""
    store: str = ""
    """The only store it is for."""
    pipe: bool = False
    """Whether the driver's stdout is a pipe."""
    small_disk: bool = False
    """Whether the place is on a disk of its own."""
    limits: bool = False
    """Whether it sets a limit, which the job may keep."""


# --- processes and signals


def kill_driver(scene: Scene, driver: Driver) -> None:
    """SIGKILL, at a random time."""
    scene.sleep(driver)
    kill(driver.pid)


def kill_session(scene: Scene, driver: Driver) -> None:
    """SIGKILL to the driver and all that it started, at a random time."""
    scene.sleep(driver)
    pids = (driver.pid, *scene.children(driver))
    scene.hit = driver.poll() is None
    for pid in pids:
        kill(pid)


def kill_child(scene: Scene, driver: Driver) -> None:
    """SIGKILL to one of the processes that it started: the supervisor, a worker or a command.

    Not to what a command has started: the command goes on without it, and prints what it likes.
    """
    scene.sleep(driver)
    found = [pid for pid in scene.children(driver) if parent_name(pid) != "sh"]
    scene.hit = driver.poll() is None
    if found:
        kill(scene.draw.choice(found))


def stop_driver(scene: Scene, driver: Driver) -> None:
    """SIGSTOP, and SIGCONT a while later."""
    scene.sleep(driver)
    _stop(scene, driver, driver.pid)


def stop_child(scene: Scene, driver: Driver) -> None:
    """The same, to one of the processes that it started."""
    scene.sleep(driver)
    if found := scene.children(driver):
        _stop(scene, driver, scene.draw.choice(found))


def _stop(scene: Scene, driver: Driver, pid: int) -> None:
    kill(pid, signal.SIGSTOP)
    scene.sleep(driver, scene.draw.uniform(0.1, 1.5))
    kill(pid, signal.SIGCONT)


def signal_driver(number: signal.Signals, *, times: int = 1) -> Callable[[Scene, Driver], None]:
    """A signal at a random time, perhaps twice."""

    def act(scene: Scene, driver: Driver) -> None:
        scene.sleep(driver)
        for _ in range(times):
            kill(driver.pid, number)
            scene.sleep(driver, scene.draw.uniform(0.0, 0.2))

    return act


# --- what the driver may use


def limit_memory(scene: Scene, driver: Driver) -> None:
    """From some moment on it gets only a few MiB more."""
    scene.sleep(driver)
    room = scene.draw.randrange(8 * _KIB)
    _limit(driver.pid, resource.RLIMIT_AS, (status(driver.pid, "VmSize") + room) * _KIB)


def limit_all_memory(scene: Scene, driver: Driver) -> None:
    """The same for the driver and each process that it has started."""
    scene.sleep(driver)
    for pid in (driver.pid, *scene.children(driver)):
        most = (status(pid, "VmSize") + scene.draw.randrange(8 * _KIB)) * _KIB
        _limit(pid, resource.RLIMIT_AS, most)


def limit_group(scene: Scene, driver: Driver) -> None:
    """From some moment on the driver and its processes share a few MiB more, by a control group.

    The kernel kills one of them when these are used up.
    """
    scene.sleep(driver)
    scene.group = MemoryGroup.make(scene.draw.randint(64, 3 * _KIB) * _KIB)
    if scene.group is not None:
        for pid in (driver.pid, *scene.children(driver)):
            scene.group.add(pid)


def leave_group(scene: Scene) -> None:
    """Remove the group, once nothing of the job is in it."""
    if scene.group is not None:
        scene.hit = scene.group.kills() > 0
        wait_for_processes(scene.place.folder)
        scene.group.remove()


def limit_files(scene: Scene, driver: Driver) -> None:
    """From some moment on it can open only a few files more."""
    scene.sleep(driver)
    _limit(driver.pid, resource.RLIMIT_NOFILE, open_files(driver.pid) + scene.draw.randrange(4))


def limit_file_size(scene: Scene, driver: Driver) -> None:
    """From some moment on no file can grow by more than some KiB, as over a quota."""
    scene.sleep(driver)
    size = max((path.stat().st_size for path in scene.store_files()), default=0)
    _limit(driver.pid, resource.RLIMIT_FSIZE, size + scene.draw.randrange(64) * _KIB)


def _limit(pid: int, what: int, most: int) -> None:
    with suppress(ProcessLookupError, PermissionError, ValueError):
        resource.prlimit(pid, what, (most, most))


# --- the disk and the clock


def fill_disk(scene: Scene, driver: Driver) -> None:
    """The disk is full from some moment on."""
    scene.sleep(driver)
    with suppress(OSError), (scene.place.folder / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4 * _KIB)):
            pass


def empty_disk(scene: Scene) -> None:
    """There is room again."""
    (scene.place.folder / "filler").unlink(missing_ok=True)


def disk(action: str, call: str = "write") -> Callable[[Scene], dict[str, str]]:
    """A fault at the n-th write or fsync of the store's files, by the shim."""

    def environment(scene: Scene) -> dict[str, str]:
        # Mostly after the store was made.
        last = max(1, int(scene.aim * scene.calls[call]))
        first = last // 3 if scene.draw.random() < WHILE_IT_WORKS else 1
        drawn = scene.draw.randint(max(1, first), last)
        return _shim(
            scene,
            CHAOS_FILES=scene.place.store,
            CHAOS_CALL=call,
            CHAOS_DO=action,
            CHAOS_AT=str(scene.at or drawn),
            CHAOS_DELAY=str(scene.draw.randint(5, 60)),
        )

    return environment


def clock(sign: int) -> Callable[[Scene], dict[str, str]]:
    """The time of day jumps by up to a month, by the shim."""

    def environment(scene: Scene) -> dict[str, str]:
        after = scene.draw.uniform(0.0, scene.aim * scene.seconds)
        jump = sign * scene.draw.choice([90, 3_600, 86_400, 2_592_000])
        return _shim(scene, CHAOS_JUMP=str(jump), CHAOS_AFTER=str(int(1000 * after)))

    return environment


def _shim(scene: Scene, **settings: str) -> dict[str, str]:
    return {"LD_PRELOAD": str(scene.shim), "CHAOS_HIT": str(scene.hit_file), **settings}


# --- stdout


def close_stdout(scene: Scene, driver: Driver) -> None:
    """Nothing reads its stdout any more."""
    scene.sleep(driver)
    os.close(scene.reader)
    scene.reader = -1


def read_slowly(scene: Scene, driver: Driver) -> None:
    """Its stdout is read in small pieces, with pauses."""
    while driver.poll() is None:
        scene.sleep(driver, 0.02)
        with suppress(BlockingIOError):
            os.read(scene.reader, 64)
    scene.hit = True


# --- the store, between two drivers


def flip_bit(scene: Scene) -> None:
    """One bit of the ended store is another."""
    path = Path(scene.place.store)
    data = bytearray(path.read_bytes())
    data[scene.draw.randrange(len(data))] ^= 1 << scene.draw.randrange(8)
    path.write_bytes(data)
    _recover(scene)


def truncate(scene: Scene) -> None:
    """The file of the ended store is cut off somewhere."""
    path = Path(scene.place.store)
    os.truncate(path, scene.draw.randrange(path.stat().st_size))
    _recover(scene)


def _recover(scene: Scene) -> None:
    """Check the store; if it is damaged, go on with what is whole of it.

    Damage that the check finds no other command may pass over.
    """
    scene.repeatable = _ALL
    checked = scene.place.run("store", "check", scene.place.store)
    scene.errors.append(checked.err)
    scene.hit = checked.code != 0
    if checked.code == 0:
        return
    exported = scene.place.run("export", "last")
    scene.errors.append(exported.err)
    scene.exported = exported.out if exported.code == 0 else None
    saved = scene.place.folder / "saved.db"
    said = scene.place.run("store", "recover", scene.place.store, "-o", str(saved))
    scene.errors.append(said.err)
    scene.recovered = True
    scene.use_store(saved)


def copy_store(scene: Scene) -> None:
    """The store of a killed driver is copied, and the run goes on in the copy."""
    copy = scene.place.folder / "copy.db"
    for path in scene.store_files():
        shutil.copy(path, path.with_name(path.name.replace("runs.db", "copy.db")))
    scene.use_store(copy)


def back_up(scene: Scene, driver: Driver) -> None:
    """A backup is made while the driver works, which is killed later."""
    scene.sleep(driver)
    backup = scene.place.folder / "backup.db"
    scene.errors.append(
        scene.place.run("store", "backup", scene.place.store, "-o", str(backup), beside=True).err
    )
    kill_driver(scene, driver)


def restore(scene: Scene) -> None:
    """The older copy takes the place of the store."""
    backup = scene.place.folder / "backup.db"
    scene.hit = backup.exists()
    if not backup.exists():
        return
    scene.repeatable = _ALL
    for path in [*scene.store_files(), Path(f"{scene.place.store}-shm")]:
        path.unlink(missing_ok=True)
    backup.rename(scene.place.store)


def kill_database(scene: Scene, driver: Driver) -> None:
    """All processes of PostgreSQL are killed, and it is started again."""
    scene.sleep(driver)
    if scene.database is not None:
        scene.database.kill()
        scene.sleep(driver, scene.draw.uniform(0.0, 1.0))
        scene.database.start()


FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault(),
    "kill driver": Fault(kill_driver),
    "kill session": Fault(kill_session),
    "kill child": Fault(kill_child),
    "kill at write": Fault(environment=disk("kill"), store="sqlite"),
    "kill at fsync": Fault(environment=disk("kill", "sync"), store="sqlite"),
    "torn write": Fault(environment=disk("torn"), store="sqlite"),
    "stop driver": Fault(stop_driver),
    "stop child": Fault(stop_child),
    "Ctrl-C": Fault(signal_driver(signal.SIGINT)),
    "Ctrl-C twice": Fault(signal_driver(signal.SIGINT, times=2)),
    "SIGTERM": Fault(signal_driver(signal.SIGTERM)),
    "hang-up": Fault(signal_driver(signal.SIGHUP)),
    "memory": Fault(limit_memory, limits=True),
    "memory of all": Fault(limit_all_memory, limits=True),
    "memory group": Fault(limit_group, leave_group),
    "descriptors": Fault(limit_files, limits=True),
    "file size": Fault(limit_file_size, limits=True),
    "disk full": Fault(fill_disk, empty_disk, small_disk=True),
    "store full": Fault(environment=disk("full"), store="sqlite"),
    "read-only": Fault(environment=disk("readonly"), store="sqlite"),
    "EIO in write": Fault(environment=disk("eio"), store="sqlite"),
    "EIO in fsync": Fault(environment=disk("eio", "sync"), store="sqlite"),
    "slow fsync": Fault(environment=disk("slow", "sync"), store="sqlite"),
    "clock forward": Fault(environment=clock(1)),
    "clock back": Fault(environment=clock(-1)),
    "stdout closed": Fault(close_stdout, pipe=True),
    "stdout slow": Fault(read_slowly, pipe=True),
    "bit flipped": Fault(between=flip_bit, store="sqlite"),
    "file truncated": Fault(between=truncate, store="sqlite"),
    "store copied": Fault(kill_driver, copy_store, store="sqlite"),
    "older copy": Fault(back_up, restore, store="sqlite"),
    "kill database": Fault(kill_database, store="postgres"),
    "429": Fault(requests=("429", "429-bare", "429-date", "429-concurrency")),
    "5xx": Fault(requests=("500", "502", "503", "529")),
    "resets": Fault(requests=("reset", "reset-body")),
    "stalls": Fault(requests=("stall", "stall-body")),
    "malformed": Fault(requests=("malformed", "html", "empty"), unreadable=True),
    "truncated": Fault(requests=("truncated",), unreadable=True),
    "storm and kill": Fault(kill_driver, requests=("429", "503", "reset", "reset-body")),
}
