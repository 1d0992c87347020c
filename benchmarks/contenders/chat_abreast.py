"""abreast, its whole stack.

Lane, rates, retries, prices, a map, and a journal in which every call is on disk twice.
"""

import abreast
from abreast.models.lanes import LaneSettings
from abreast.models.price import FlatPrice
from benchmarks.contenders.chat import MODEL, base_url
from benchmarks.contenders.meter import Lap, Load, on_loop, prompt, run

# Far more than the server can do: limits that are asked and never in the way.
RPM = 10_000_000
TPM = 10_000_000_000


async def play(load: Load, lap: Lap) -> list[object]:
    """Play D with a store."""
    return await _play(load, lap, str(load.scratch / "runs.db"))


async def play_in_memory(load: Load, lap: Lap) -> list[object]:
    """Play D without one."""
    return await _play(load, lap, None)


async def _play(load: Load, lap: Lap, store: str | None) -> list[object]:
    price = FlatPrice(input=0.15, output=0.60)
    lane = LaneSettings(
        "bench", base_url=base_url(), width=load.width, rpm=RPM, tpm=TPM, price=price
    )
    async with abreast.open_model(f"bench/{MODEL}", lanes={"bench": lane}) as model:

        async def ask(text: str) -> str:
            return (await model.ask(text)).text

        async with abreast.open_run("bench", store=store) as scope:
            prompts = [prompt(index) for index in range(load.n)]
            with lap:
                outcomes = scope.map(ask, prompts, width=load.width)
                return [
                    outcome.value async for outcome in outcomes if isinstance(outcome, abreast.Done)
                ]


if __name__ == "__main__":
    run({"D": on_loop(play), "D-memory": on_loop(play_in_memory)}, package="abreast")
