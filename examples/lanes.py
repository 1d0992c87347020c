"""Two providers, one of them strict.

Each item holds the limits of its lane, and a full lane holds up no other lane.

Run it with `python examples/lanes.py`.
"""

import asyncio
from collections import Counter

import abreast

QUESTIONS = [f"question {number}" for number in range(16)]


class Office:
    """Counts the questions inside, in each lane, and the most at once."""

    def __init__(self) -> None:
        """None yet."""
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def answer(self, question: str) -> str:
        """Pretend to wait for a reply."""
        lane = lane_of(question)
        self.inside[lane] += 1
        self.most[lane] = max(self.most[lane], self.inside[lane])
        await asyncio.sleep(0.05)
        self.inside[lane] -= 1
        return f"answer to {question}"


def lane_of(question: str) -> str:
    """Every fourth question is for the strict one."""
    return "strict" if int(question.split()[1]) % 4 == 0 else "generous"


async def main() -> None:
    """Sixteen questions, eight at once.

    Five places with the one, one place and ten a second with the other.
    """
    office = Office()
    async with abreast.open_run(
        "lanes",
        lanes={
            "generous": abreast.Slots(5),
            "strict": [abreast.Slots(1), abreast.Rate(10, per=1, burst=1)],
        },
    ) as run:
        async for outcome in run.map(office.answer, QUESTIONS, width=8, lane=lane_of):
            waited = outcome.timing.waited
            print(f"{outcome.key}  {outcome.lane:8}  {outcome.value:22}  waited {waited:.2f} s")
    for name, count in sorted(office.most.items()):
        print(f"at most {count} at once in {name}")


if __name__ == "__main__":
    asyncio.run(main())
