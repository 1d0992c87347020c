"""Reading a study: what it makes, and every problem with its line."""

import json

import pytest

from abreast.core.errors import WorkflowInvalid
from abreast.jobs.matrix.spec import CellChoice
from tests.jobs.matrix.benches import simple, study

GOOD = """matrix:
  models: [a/one]
  strategies: {p: {prompt: hi}}
  inputs: [x]
"""


def problems(text, **more):
    with pytest.raises(WorkflowInvalid) as caught:
        study(text, **more)
    return [(problem.line, problem.text) for problem in caught.value.problems]


def test_a_study_in_full(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/plain.md").write_text("Say {{ input.text }}")
    (tmp_path / "out.json").write_text(json.dumps({"type": "object"}))
    (tmp_path / "flow.yaml").write_text("workflow: {id: f}\nsteps: [{id: a, type: shell, run: ls}]")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text(
        '{"text": "one", "answer": 1}\n\n{"id": "named", "text": "two"}\n'
    )
    (tmp_path / "data/b.txt").write_text("three")
    made = study(
        """matrix:
  name: full
  models: [local/smollm2, {name: openai/gpt, label: cheap, temperature: 0, max_tokens: 20}]
  strategies:
    plain: prompts/plain.md
    shaped: {file: prompts/plain.md, schema: out.json, system: be brief, max_tokens: 9}
    steps: {python: "study:three"}
    gone: {python: "study:gone"}
    repaired: {sample: {prompt: "x {{ input.text }}", breadth: 2, depth: 2}}
    flow: {workflow: flow.yaml}
  inputs: data/*
  repeats: 5
  truth: answer
  scores: [exact, {f1: names}, {name: right, judge: "is it?", model: openai/gpt}, {numeric: 0.1},
    {schema: out.json}]
  controls: [empty, echo, truth]
  lane_width: 2
  warm: true
""",
        tmp_path,
        {"study:three": "def three(): ..."},
    )
    assert (made.name, made.repeats, made.lane_width, made.warm, made.controls) == (
        "full",
        5,
        2,
        True,
        ("empty", "echo", "truth"),
    )
    assert [model.label for model in made.models] == ["local/smollm2", "cheap"]
    assert [(one.id, one.truth) for one in made.inputs] == [
        ("a-0001", 1),
        ("named", None),
        ("b", None),
    ]
    assert {one.name: one.kind for one in made.strategies} == {
        "plain": "prompt",
        "shaped": "prompt",
        "steps": "python",
        "gone": "python",
        "repaired": "sample",
        "flow": "workflow",
    }
    assert made.strategies[3].code == "missing: there is no study:gone"
    assert [one.name for one in made.scores] == ["exact", "f1:names", "right", "numeric", "schema"]
    assert made.lanes() == ["local", "openai", "controls"]
    assert sum(1 for lane in made.lanes() for _ in made.cells(lane)) == 2 * 6 * 3 * 5 + 3 * 3 * 5


BAD = [
    ("steps: []", 1, "a study is a mapping with the one key 'matrix'"),
    (GOOD + "other: 1", 5, "there is no 'other' beside 'matrix'"),
    (GOOD.replace("[a/one]", "[]"), 2, "must be a list of models"),
    (GOOD.replace("a/one", "one"), 2, "a model is named provider/model"),
    (GOOD.replace("[a/one]", "[a/one, a/one]"), 2, "two models are called 'a/one'"),
    (
        GOOD.replace("{prompt: hi}", "{promt: hi}"),
        3,
        "must be a prompt's file, or a mapping with one of",
    ),
    (
        GOOD.replace("{prompt: hi}", "{prompt: hi, colour: red}"),
        3,
        "there is no 'colour' in the strategy 'p'",
    ),
    (GOOD.replace("{prompt: hi}", "{prompt: '{{ input. }}'}"), 3, ""),
    (GOOD.replace("{prompt: hi}", "nowhere.md"), 3, "nowhere.md can't be read"),
    (GOOD.replace("p: {", "empty: {"), 3, "'empty' is a control"),
    (GOOD.replace("[x]", "nothing/*.jsonl"), 4, "there are no inputs"),
    (GOOD.replace("[x]", "../secrets/*"), 4, "leads out of its directory"),
    (GOOD.replace("[x]", "[{id: a}, {id: a}]"), 4, "two inputs are called 'a'"),
    (GOOD + "  scores: [exat]", 5, "there is no score 'exat'; did you mean exact?"),
    (GOOD + "  scores: [{regex: '('}]", 5, "has no valid pattern"),
    (GOOD + "  scores: [{judge: 3}]", 5, "needs a text"),
    (GOOD + "  scores: [exact, exact]", 5, "two scores are called 'exact'"),
    (GOOD + "  scores: [{numeric: much}]", 5, "takes a tolerance"),
    (GOOD + "  controls: [nothing]", 5, "a control is one of empty, echo, truth, not 'nothing'"),
    (GOOD + "  repeats: 0", 5, "must be a whole number from 1 to"),
    (GOOD + "  lane_width: 0", 5, "must be a whole number from 1 to"),
    (GOOD + "  repeets: 3", 5, "there is no 'repeets' in a matrix; did you mean repeats?"),
]


@pytest.mark.parametrize(("text", "line", "says"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_told_with_its_line(text, line, says):
    found = problems(text)
    assert any(at == line and says in said for at, said in found), found


def test_all_problems_are_told_together():
    found = problems(
        GOOD.replace("a/one", "one").replace("{prompt: hi}", "{}") + "  repeats: -1\n  scores: [x]"
    )
    assert [line for line, _ in found] == [2, 3, 5, 6]


def test_a_choice_leaves_out_what_was_not_asked_for():
    made = simple(more="controls: [truth]")
    only = CellChoice(models=frozenset({"a/one"}), inputs=frozenset({"i1"}), repeats=1)
    assert [cell.key for cell in made.cells("a", only)] == ["a/one~plain~i1~0", "a/one~loud~i1~0"]
    assert list(made.cells("b", only)) == []
    barred = CellChoice(barred=frozenset({("a/one", "loud")}))
    assert {cell.strategy.name for cell in made.cells("a", barred)} == {"plain"}


def test_a_cell_is_its_content():
    one, other = simple(), study(simple().text.replace("shout", "cry"))
    before = {cell.key: cell.value(one.scored_by) for cell in one.cells("a")}
    after = {cell.key: cell.value(other.scored_by) for cell in other.cells("a")}
    assert {key for key in before if before[key] != after[key]} == {
        key for key in before if "~loud~" in key
    }


COUNTRIES = (
    "[{id: x, country: France, about: {area: 1}}, {id: y, country: Italy, about: {area: 2}}]"
)


def asking(prompt, inputs=COUNTRIES):
    return (
        "matrix:\n  models: [a/one]\n  strategies:\n"
        f"    p: {{prompt: {json.dumps(prompt)}}}\n  inputs: {inputs}\n"
    )


@pytest.mark.parametrize(
    "prompt",
    [
        "{{ input.contry }}",
        "a\n{{ input['contry'] }}",
        "{{ input.contry | upper }}",
        "{{ input.about.are }}",
        "{{ 'x' + input.contry }}",
        "{{ inptu.country }}",
    ],
)
def test_a_field_that_is_not_there_is_told_with_its_line_and_the_fields_that_are(prompt):
    [(line, text)] = problems(asking(prompt))
    assert line == 4
    assert "the fields are about, country, id" in text


def test_a_misspelt_field_is_told_what_it_may_have_been():
    [(_, text)] = problems(asking("{{ input.contry }}"))
    assert text.startswith(
        "no input has the field of {{ input.contry }}; did you mean input.country?"
    )


def test_a_field_that_only_some_inputs_lack_is_told_with_these():
    [(_, text)] = problems(asking("{{ input.note }}", "[{id: x, note: n}, {id: y}, {id: z}]"))
    assert "missing in y, z;" in text
    assert "default('')" in text


@pytest.mark.parametrize(
    "prompt",
    [
        "{{ input.country }} {{ input.about.area }}",
        "{{ input.note | default('') }}",
        "{{ input }}",
        "no field",
        "{{ input.note if input.note else 'none' }}",
    ],
)
def test_fields_that_are_there_or_may_be_missing_are_no_problem(prompt):
    assert len(study(asking(prompt)).inputs) == 2


def test_a_missing_field_of_a_prompt_file_a_system_prompt_or_a_sample_is_told_too(tmp_path):
    (tmp_path / "p.md").write_text("one\ntwo {{ input.gone }}")
    text = """matrix:
  models: [a/one]
  strategies:
    file: p.md
    system: {prompt: hi, system: "{{ input.lost }}"}
    drawn: {sample: {prompt: "{{ input.away }}"}}
  inputs: [x]
"""
    found = problems(text, directory=tmp_path)
    assert [line for line, _ in found] == [4, 5, 6]
    assert found[0][1].startswith("p.md:2: no input has the field of {{ input.gone }}")


def test_rows_of_csv_and_tsv_files_are_inputs(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbfid,text,truth\r\nx,"a, b",1\r\n\r\n,"two\nlines",\r\n'
    )
    (tmp_path / "b.TSV").write_text("text\ttruth\nsay 'hi'\tA\n")
    text = GOOD.replace("[x]", "'*.*'").replace("hi", "'{{ input.text }}'")
    made = study(text, tmp_path)
    assert [(one.id, one.value["text"], one.truth) for one in made.inputs] == [
        ("x", "a, b", "1"),
        ("a-0002", "two\nlines", None),
        ("b-0001", "say 'hi'", "A"),
    ]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("a,b\n1\n", "t.csv:2 has 1 values, and there are 2 fields"),
        ("a,a\n1,2\n", "two fields are called 'a'"),
        ("a,\n1,2\n", "field 2 has no name"),
        ("", "must name the fields"),
        ('a\n"x\n', "can't be read"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_with_its_line(tmp_path, table, says):
    (tmp_path / "t.csv").write_text(table)
    assert says in problems(GOOD.replace("[x]", "t.csv"), directory=tmp_path)[0][1]
