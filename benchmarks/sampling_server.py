"""The model of work S, in a process of its own.

`python -m benchmarks.sampling_server [--latency 0.2] [--rate 0.3]`.

Whether the k-th draw of a sample passes is decided beforehand, by the sample's number and k. So
every contender gets the same replies in the order in which its requests come, and how long an ideal
sampler would take can be reckoned.
"""

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from hashlib import blake2b

RATE = 0.3
LATENCY = 0.200
_SAMPLE = re.compile(r"sample (\d+)")
_DSPY = "[[ ## answer ## ]]"


def passes(sample: int, draw: int, rate: float = RATE) -> bool:
    """Say whether draw number `draw` (from 1) of a sample passes.

    Sample 0 is for warming up, and always does.
    """
    drawn = (
        int.from_bytes(blake2b(f"{sample}/{draw}".encode(), digest_size=8).digest(), "big")
        / 2.0**64
    )
    return sample == 0 or drawn < rate


def first_pass(sample: int, rate: float = RATE) -> int:
    """Return the number of the first draw of a sample that passes."""
    draw = 1
    while not passes(sample, draw, rate):
        draw += 1
    return draw


class Script:
    """What is said to a prompt that names its sample."""

    def __init__(self, rate: float) -> None:
        """Nothing was asked."""
        self._rate = rate
        self._asked: Counter[int] = Counter()

    def __call__(self, prompt: str) -> str:
        """Give the next reply of the sample, in the form that the prompt asks for."""
        found = _SAMPLE.search(prompt)
        sample = int(found[1]) if found else 0
        self._asked[sample] += 1
        draw = self._asked[sample]
        text = f"{'good' if passes(sample, draw, self._rate) else 'bad'} {sample}.{draw}"
        return f"{_DSPY}\n{text}\n\n[[ ## completed ## ]]" if _DSPY in prompt else text


async def serve(latency: float, rate: float) -> None:
    """Say where it listens, and serve until the input ends."""
    from abreast.testing import open_storm

    async with open_storm(script=Script(rate), latency=latency) as storm:
        print(json.dumps({"url": storm.url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sampling_server", description=__doc__
    )
    parser.add_argument("--latency", type=float, default=LATENCY)
    parser.add_argument("--rate", type=float, default=RATE)
    args = parser.parse_args()
    asyncio.run(serve(args.latency, args.rate))


if __name__ == "__main__":
    main()
