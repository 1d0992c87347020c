"""The second part of `abreast demo`: forty reviews, judged by a model in this process."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final

from abreast.assembly.names import open_model, open_run
from abreast.cli.terminal.outcome_text import Row, outcome_sentence
from abreast.core.errors import CallFailed
from abreast.core.outcome import Done, Outcome
from abreast.models.embedded.weights import SMOLLM2, fetch, is_present
from abreast.store.port import Store
from abreast.system.installation import install_hint

NAME: Final = "reviews"
MODEL: Final = "local/smollm2"
SEED: Final = 7


class WeightsFetch:
    """Fetches the model's weights in a thread, while the first part of the demo runs."""

    def __init__(self) -> None:
        """Start, unless the weights are here or the package that uses them is missing."""
        self.missing = find_spec("xllamacpp") is None
        self.needed = not self.missing and not is_present(SMOLLM2)
        self.done = self.total = 0
        self.stage = ""
        self._error: CallFailed | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fetch, name="abreast-fetch", daemon=True)
        if self.needed:
            self._thread.start()

    def _fetch(self) -> None:
        try:
            fetch(SMOLLM2, progress=self._set_progress, stop=self._stop)
        except CallFailed as error:
            self._error = error

    def _set_progress(self, done: int, total: int, stage: str) -> None:
        self.done, self.total, self.stage = done, total, stage

    def wait(self, tell: Callable[[str], None]) -> str:
        """Wait for the end; return why there is no model, or an empty text."""
        if self.missing:
            return f"the embedded model needs one more package: {install_hint('local')}"
        while self.needed and self._thread.is_alive():
            self._thread.join(_POLL_INTERVAL)
            if self.total:
                tell(f"{self.stage} {MODEL}: {self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB")
        return "" if self._error is None else str(self._error)

    def stop(self) -> None:
        """Stop the download; the next one continues where it stopped."""
        self._stop.set()


_POLL_INTERVAL: Final = 0.2  # seconds between two messages about the progress


def reviews() -> list[Row]:
    """The reviews of the package, with the right label of each."""
    text = files("abreast.models").joinpath("data/reviews.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def judge(
    store: Store,
    chosen: Sequence[Row],
    width: int,
    opened: Callable[[str], None],
    released: Callable[[Outcome[Any]], None],
) -> None:
    """Ask about each review; `released` is called with each outcome, in the order of reviews."""
    async with (
        open_model(MODEL) as model,
        open_run(NAME, store=store, seed=SEED, resume="never", kind="demo") as run,
    ):
        opened(run.id or "")
        # The prompt that gave the best answers, of those tried.
        text = files("abreast.models").joinpath("data/reviews.json").read_text("utf-8")
        wording: Row = json.loads(text)

        async def label(review: Row) -> str:
            reply = await model.ask(
                wording["prompt"].format(text=review["text"]),
                system=wording["system"],
                schema=wording["schema"],
                temperature=0,
                max_tokens=24,
            )
            value: Any = reply.value
            return str(value[wording["field"]])

        async for outcome in run.map(label, chosen, width=width):
            released(outcome)


def run_reviews(
    store: Store, chosen: Sequence[Row], width: int, progress: Callable[[int, int], None]
) -> tuple[str, list[Row]]:
    """Judge the reviews; return the run's id, and for each review the reply and the label."""
    rows: list[Row] = []
    ids = [""]

    def released(outcome: Outcome[Any]) -> None:
        review = chosen[outcome.index]
        rows.append(
            {
                "text": review["text"],
                "said": outcome.value if isinstance(outcome, Done) else outcome_sentence(outcome),
                "right": review["label"],
                "input_tokens": outcome.usage.input_tokens,
                "output_tokens": outcome.usage.output_tokens,
            }
        )
        progress(len(rows), len(chosen))

    asyncio.run(judge(store, chosen, width, ids.append, released))
    return ids[-1], rows


def table(rows: list[Row]) -> Iterator[str]:
    """Lines with a few of the reviews, and how many were judged right."""
    yield f"{'said':10} {'right':10} review"
    for row in rows[:_TABLE_ROWS]:
        text = (
            row["text"]
            if len(row["text"]) <= _TEXT_WIDTH
            else f"{row['text'][: _TEXT_WIDTH - 3]}..."
        )
        yield f"{row['said']:10} {row['right']:10} {text}"
    if len(rows) > _TABLE_ROWS:
        yield f"... and {len(rows) - _TABLE_ROWS} more"
    right = sum(row["said"] == row["right"] for row in rows)
    tokens = sum(row["input_tokens"] + row["output_tokens"] for row in rows)
    calls = f"{len(rows)} calls, {tokens:,} tokens, 0 usd, no key."
    yield f"\n{right} of {len(rows)} as a person says; {calls}"


_TABLE_ROWS: Final = 8
_TEXT_WIDTH: Final = 76  # characters of a review
