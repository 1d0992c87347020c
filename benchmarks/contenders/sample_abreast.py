"""abreast.sample, in a run with a store: every call on disk twice."""

import tempfile

import abreast
from abreast.models.lanes import LaneSettings
from abreast.models.price import FlatPrice
from benchmarks.contenders.sample import MODEL, Draw, is_good, run, server


async def opened(breadth: int, depth: int) -> Draw:
    """Open the model and a run; both end with the process."""
    lane = LaneSettings("bench", base_url=f"{server()}/v1", width=breadth, price=FlatPrice(input=0.15, output=0.60))
    model = abreast.open_model(f"bench/{MODEL}", lanes={"bench": lane})
    scratch = tempfile.mkdtemp()
    scope = await abreast.open_run("bench", store=f"{scratch}/runs.db").__aenter__()

    async def draw(prompt: str) -> bool:
        name = prompt.split(":", maxsplit=1)[0].replace(" ", "-")
        result = await abreast.sample(
            prompt, model=model, run=scope, checks=[abreast.checks.check(is_good, "good")], breadth=breadth,
            depth=depth, name=name,
        )  # fmt: skip
        return result.ok

    return draw


if __name__ == "__main__":
    run(opened, "abreast")
