"""Scores: each against answers computed by hand."""

from dataclasses import replace

import pytest

from abreast.jobs.matrix.scoring.scores import CannotScore, Judged, score
from abreast.jobs.matrix.spec import ScoreSpec, StudyInput
from abreast.models.media import MediaFile
from tests.models.pictures import png


def judged(output, truth=None, value=None, **facts):
    return Judged(output, value, StudyInput("i", {"text": "q", **facts}, truth, "d"))


async def no_call(*_):
    raise AssertionError("no model and no function may be called")


async def scored(kind, one, argument=None, **tools):
    spec = ScoreSpec(kind, kind, argument)
    return await score(spec, one, **{"ask": no_call, "call": no_call, **tools})


EXACT = [
    (" Paris\n", "Paris", 1),
    ("paris", "Paris", 0),
    ("4", 4, 1),
    ("4.0", 4, 1),
    ("true", True, 1),
    ("1", True, 0),
    ('{"a": [1, 2]}', {"a": [1, 2]}, 1),
    ('```json\n{"a": 1}\n```', {"a": 1}, 1),
    ("no json", {"a": 1}, 0),
    ("", "", 1),
]


@pytest.mark.parametrize(("output", "truth", "wanted"), EXACT)
async def test_exact(output, truth, wanted):
    assert await scored("exact", judged(output, truth)) == wanted


async def test_exact_of_a_field():
    one = judged('{"name": "Ann", "age": 3}', {"name": "Ann", "age": 4})
    assert await scored("exact", one, "name") == 1
    assert await scored("exact", one, "age") == 0


@pytest.mark.parametrize(
    ("output", "argument", "wanted"),
    [
        ("it is PARIS.", None, 1),
        ("it is Rome", None, 0),
        ("rainy", "rain", 1),
        ("sunny", "rain", 0),
    ],
)
async def test_contains(output, argument, wanted):
    assert await scored("contains", judged(output, "Paris"), argument) == wanted


async def test_regex():
    assert await scored("regex", judged("abc 12"), r"\d{2}$") == 1
    assert await scored("regex", judged("abc"), r"\d") == 0


@pytest.mark.parametrize(
    ("output", "truth", "tolerance", "wanted"),
    [
        ("about 3.14", 3.14159, 0.01, 1),
        ("about 3.2", 3.14159, 0.01, 0),
        ("1,234.5 km", 1234.5, None, 1),
        ("none", 3, 1, 0),
        ("-2e3", -2000, None, 1),
        ("110", 100, {"rel": 0.1}, 1),
        ("111.2", 100, {"rel": 0.1}, 0),
        ("100.4", 100, {"abs": 0.5}, 1),
        ("7", "7 apples", None, 1),
    ],
)
async def test_numeric(output, truth, tolerance, wanted):
    assert await scored("numeric", judged(output, truth), tolerance) == wanted


SETS = [  # found, wanted, precision, recall, f1
    ('["a", "b", "c"]', ["a", "b"], 2 / 3, 1, 0.8),
    ('["A ", "x"]', ["a", "b", "c"], 1 / 2, 1 / 3, 0.4),
    ("[]", [], 1, 1, 1),
    ("[]", ["a"], 0, 0, 0),
    ('["a"]', [], 0, 0, 0),
    ("nothing that is JSON", ["a"], 0, 0, 0),
    ('{"x": 1, "y": [2, 3]}', {"x": 1, "y": [2]}, 2 / 3, 1, 0.8),
]


@pytest.mark.parametrize(("output", "truth", "precision", "recall", "f1"), SETS)
async def test_sets(output, truth, precision, recall, f1):
    one = judged(output, truth)
    assert await scored("precision", one) == pytest.approx(precision)
    assert await scored("recall", one) == pytest.approx(recall)
    assert await scored("f1", one) == pytest.approx(f1)
    inside = judged(f'{{"f": {output}}}' if output[0] in "[{" else output, {"f": truth})
    assert await scored("f1", inside, "f") == pytest.approx(f1)


async def test_schema():
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    assert await scored("schema", judged('{"n": 1}'), schema) == 1
    assert await scored("schema", judged('{"n": "1"}'), schema) == 0
    assert await scored("schema", judged("", value={"n": 2}), schema) == 1


async def test_a_scorer_of_ones_own_gets_all_of_it_and_gives_a_number():
    async def call(name, row):
        assert (name, row) == (
            "m:f",
            {"output": "o", "value": None, "input": {"text": "q", "more": 1}, "truth": "t"},
        )
        return True

    assert await scored("python", judged("o", "t", more=1), "m:f", call=call) == 1.0

    async def text(_name, _row):
        return "good"

    with pytest.raises(CannotScore, match="m:f gave 'good', and a score is a number"):
        await scored("python", judged("o"), "m:f", call=text)

    async def nan(_name, _row):
        return float("nan")

    with pytest.raises(CannotScore):
        await scored("python", judged("o"), "m:f", call=nan)


@pytest.mark.parametrize(("said", "wanted"), [("Yes.", 1), ("no", 0), ("I'd say yes, as", 1)])
async def test_a_judge_says_yes_or_no(said, wanted):
    asked = []

    async def ask(model, question, files):
        asked.append(question)
        assert files == (picture,)
        return said

    picture = MediaFile.of(png())
    given = replace(judged("the answer", "the truth"), files=(picture,))
    assert await scored("judge", given, "is it right?", ask=ask) == wanted
    assert all(part in asked[0] for part in ("is it right?", "the answer", "the truth"))


@pytest.mark.parametrize("kind", ["exact", "numeric", "f1", "contains"])
async def test_without_a_truth_there_is_no_score(kind):
    with pytest.raises(CannotScore, match="the input i has no truth"):
        await scored(kind, judged("x"))


async def test_a_truth_that_is_no_number_has_no_distance():
    with pytest.raises(CannotScore, match="is no number"):
        await scored("numeric", judged("1", "many"))
