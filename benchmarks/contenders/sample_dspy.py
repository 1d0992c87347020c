"""DSPy's BestOfN, with a threshold at which it stops; it draws one after the other."""
# mypy: disable-error-code="import-not-found"

import asyncio
from collections.abc import AsyncIterator

import dspy

from benchmarks.contenders.sample import KEY, MODEL, Draw, is_good, run, server


async def opened(breadth: int, depth: int) -> AsyncIterator[Draw]:
    """Set it up; it has no breadth, so `breadth` is 1."""
    del breadth
    dspy.configure(
        lm=dspy.LM(f"openai/{MODEL}", api_base=f"{server()}/v1", api_key=KEY, cache=False)
    )

    def reward(_given: object, prediction: dspy.Prediction) -> float:
        return float(is_good(prediction.answer))

    best = dspy.BestOfN(
        module=dspy.Predict("question -> answer"), N=depth, reward_fn=reward, threshold=1.0
    )

    async def draw(prompt: str) -> bool:
        found = await asyncio.to_thread(best, question=prompt)
        return is_good(found.answer)

    yield draw


if __name__ == "__main__":
    run(opened, "dspy")
