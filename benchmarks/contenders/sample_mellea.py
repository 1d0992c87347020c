"""mellea's rejection sampling."""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator
from typing import Any

from mellea import MelleaSession
from mellea.backends.openai import OpenAIBackend
from mellea.stdlib.requirements import Requirement, simple_validate
from mellea.stdlib.sampling import RejectionSamplingStrategy
from openai.resources.chat import AsyncCompletions

from benchmarks.contenders.sample import KEY, MODEL, Draw, is_good, run, server

_create = AsyncCompletions.create


async def _without_nulls(self: AsyncCompletions, **given: Any) -> object:
    """Leave out what is None.

    Mellea sends `tools: null`, which a provider ignores and the storm refuses.
    """
    return await _create(
        self, **{name: value for name, value in given.items() if value is not None}
    )


async def opened(breadth: int, depth: int) -> AsyncIterator[Draw]:
    """Open a session."""
    AsyncCompletions.create = _without_nulls
    session = MelleaSession(backend=OpenAIBackend(MODEL, base_url=f"{server()}/v1", api_key=KEY))
    strategy = RejectionSamplingStrategy(loop_budget=depth, concurrency_budget=breadth)
    good = Requirement("Good.", validation_fn=simple_validate(is_good), check_only=True)

    async def draw(prompt: str) -> bool:
        result = await session.ainstruct(
            prompt, requirements=[good], strategy=strategy, return_sampling_results=True
        )
        return bool(result.success)

    yield draw


if __name__ == "__main__":
    run(opened, "mellea")
