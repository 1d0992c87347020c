"""Made-up rows of a study, of any size, with everything that a report must cope with."""

from __future__ import annotations

from functools import cache
from random import Random

from abreast.jobs.matrix.rows import Row, SubResult

MODELS = {
    "local/smollm2": (0.35, 0.4, 0.0),
    "openai/gpt-5-mini": (0.7, 0.9, 0.0011),
    "anthropic/claude-haiku": (0.75, 1.2, 0.0016),
}
STRATEGIES = {"plain": 0.0, "steps": 0.12, "repaired": 0.16}
RULING = (
    "the court held that a tenant who paid late under protest "
    "keeps the right to claim what was due before notice"
)
WORDS = tuple(RULING.split()) * 200
NUMBERS = tuple(f"{number:06}" for number in range(0, 1_000_000, 239))
VOCABULARY = WORDS + NUMBERS
LONG = 100  # words of a text that is cut out of one that is drawn once
SCRIPT = "<script>window.pwned=1</script>"


def row(model="m", strategy="s", given="i1", repeat=0, *, score: float | None = 1.0, **more) -> Row:
    """One finished cell with one score, `exact`; a failed one if its state says so."""
    failed = more.get("state") == "failed"
    known = {
        "scores": {} if failed else {"exact": score},
        "state": "done",
        "lane": model.partition("/")[0],
        **more,
    }
    return Row(
        f"{model}/{strategy}/{given}/{repeat}",
        model=model,
        strategy=strategy,
        input=given,
        repeat=repeat,
        **known,
    )


def text(random: Random, words: int) -> str:
    """Words of a ruling mixed with numbers, so that it compresses no better than real text."""
    if words < LONG:
        return " ".join(random.choices(VOCABULARY, k=words))
    drawn = drawn_once()
    start = random.randrange(len(drawn) - words)
    return " ".join(drawn[start : start + words])


@cache
def drawn_once() -> list[str]:
    return Random(1).choices(VOCABULARY, k=200_000)


def study(
    cells: int = 300,
    *,
    models=MODELS,
    strategies=STRATEGIES,
    repeats: int = 2,
    words: int = 60,
    seed: int = 7,
) -> list[Row]:
    """About so many cells, a few of them failed or without a score, and three controls."""
    random = Random(seed)
    inputs = max(1, cells // (len(models) * len(strategies) * repeats))
    prompts = {
        (given, strategy): f"{strategy}: {text(random, words)}"
        for given in range(inputs)
        for strategy in strategies
    }
    hard = [random.gauss(0, 0.15) for _ in range(inputs)]
    rows = [
        cell(
            random,
            (model, strategy, f"case-{given:03}", repeat),
            models[model],
            prompt=prompts[given, strategy],
            quality=models[model][0] + strategies[strategy] + hard[given],
            gain=strategies[strategy],
            words=words,
        )
        for given in range(inputs)
        for repeat in range(repeats)
        for model in models
        for strategy in strategies
    ]
    rows[len(rows) // 2] = planted(rows[len(rows) // 2])
    return rows + [
        row(
            "control",
            name,
            f"case-{given:03}",
            score=float(name == "truth"),
            control=True,
            lane="control",
        )
        for name in ("empty", "echo", "truth")
        for given in range(inputs)
    ]


def cell(random, place, traits, *, prompt, quality, gain, words) -> Row:
    model, strategy, given, _ = place
    _, speed, price = traits
    quality = min(1.0, max(0.0, quality + random.gauss(0, 0.15)))
    in_flight = random.randint(1, 4)
    queued = 1 + 0.25 * in_flight if model.startswith("openai") else 1.0
    service = speed * (1 + 8 * gain) * queued * random.lognormvariate(0, 0.35)
    waits = {
        "queue_s": random.random() / 5,
        "hold_s": 0.0,
        "backoff_s": random.choice([0.0, 0.0, 0.0, 0.4]),
    }
    steps = tuple(
        SubResult(
            f"step {n}", f"{prompt} ({n})", text(random, words // 2), 80, 30, price, service / 3
        )
        for n in (1, 2, 3)
    )
    known = {
        "lane": model.partition("/")[0],
        "prompt": prompt,
        "truth": {"answer": WORDS[int(given[-3:])]},
        "input_tokens": 2 * words,
        "output_tokens": words,
        "usd": price * (1 + 10 * gain) if price else 0.0,
        "service_s": service,
        "wall_s": service + sum(waits.values()),
        "in_flight": in_flight,
        **waits,
    }
    if random.random() < 0.04:
        kind, said = random.choice(
            [
                ("Timeout", "no reply within 60 s"),
                ("BadReply", "not JSON: <b>sorry</b>"),
                ("RateLimited", "429"),
            ]
        )
        return row(*place, state="failed", error=said, error_type=kind, **known)
    scores: dict[str, float | None] = {"exact": float(quality > 0.6), "f1": round(quality, 3)}
    errors = {"f1": "ValueError: no field 'answer'"} if random.random() < 0.02 else {}
    return row(
        *place,
        output=text(random, words),
        value={"answer": WORDS[int(19 * quality)]},
        score_errors=errors,
        scores={**scores, **dict.fromkeys(errors)},
        steps=steps if strategy == "steps" else (),
        **known,
    )


def planted(held: Row) -> Row:
    """The same cell, done, with a reply that would run if it were ever read as HTML."""
    known = {
        **held.plain(),
        "state": "done",
        "error": None,
        "error_type": None,
        "scores": {"exact": 1.0, "f1": 1.0},
    }
    return Row.of({**known, "output": f"planted {SCRIPT}", "score_errors": {}})


FACTS = {
    "study": "Extraction: plain, stepwise, repaired",
    "run": "study-20261115-1",
    "seed": 7,
    "created": "2026-11-15 09:00 UTC",
    "commit": "a86152d",
    "dirty": True,
    "prices": "2026-11-01",
    "versions": {"abreast": "0.1", "python": "3.11.7"},
    "parameters": {"temperature": 0, "max_tokens": 512},
    "warnings": ["The working tree had changes that are not in the commit."],
}
