"""abreast.sample, in a run with a store: every call on disk twice."""

import tempfile
from collections.abc import AsyncIterator

import abreast
from abreast.models.lanes import LaneSettings
from abreast.models.price import FlatPrice
from benchmarks.contenders.sample import MODEL, Draw, is_good, run, server


async def opened(breadth: int, depth: int) -> AsyncIterator[Draw]:
    """Open the model, a store and a run."""
    lane = LaneSettings(
        "bench", base_url=f"{server()}/v1", width=breadth, price=FlatPrice(input=0.15, output=0.60)
    )
    with tempfile.TemporaryDirectory() as scratch:
        async with (
            abreast.open_model(f"bench/{MODEL}", lanes={"bench": lane}) as model,
            abreast.open_run("bench", store=f"{scratch}/runs.db") as scope,
        ):

            async def draw(prompt: str) -> bool:
                result = await abreast.sample(
                    prompt,
                    model=model,
                    run=scope,
                    checks=[abreast.checks.check(is_good, "good")],
                    breadth=breadth,
                    depth=depth,
                    name=prompt.split(":", maxsplit=1)[0].replace(" ", "-"),
                )
                return result.ok

            yield draw


if __name__ == "__main__":
    run(opened, "abreast")
