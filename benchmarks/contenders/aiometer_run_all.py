"""aiometer's `run_all` with `max_at_once`.

Of its verbs the one that returns the results in order (`amap` doesn't).
"""
# mypy: disable-error-code="import-not-found"

from functools import partial

import aiometer

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B."""
    function = ITEMS[load.work]
    with lap:
        results = await aiometer.run_all(
            [partial(function, item) for item in range(load.n)], max_at_once=load.width
        )
    return list(results)


if __name__ == "__main__":
    run(dict.fromkeys(("A", "A0", "B"), on_loop(play)), package="aiometer")
