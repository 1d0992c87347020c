"""A ThreadPoolExecutor of `width` threads: `map` keeps the order.

The items are plain functions, not coroutines.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.contenders.meter import NAP, Lap, Load, run


def no_op(index: int) -> object:
    """Do nothing: works A and A0, as a thread has nobody to let go first."""
    return index


def nap(index: int) -> object:
    """Block for 50 ms: work B."""
    time.sleep(NAP)
    return index


FUNCTIONS: dict[str, Callable[[int], object]] = {"A": no_op, "A0": no_op, "B": nap}


def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B.

    Starting the threads is part of the work, as starting tasks is for the others.
    """
    with lap, ThreadPoolExecutor(max_workers=load.width) as pool:
        return list(pool.map(FUNCTIONS[load.work], range(load.n)))


if __name__ == "__main__":
    run({"A": play, "A0": play, "B": play})
