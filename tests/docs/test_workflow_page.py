"""The reference of workflows says all that there is.

Types, keys, filters, limits, and how a width is converted.
"""

import inspect
import re

import pytest
import yaml

from abreast.assembly import workflow_tools
from abreast.cli.jobs import job_file
from abreast.jobs.files import fuel
from abreast.jobs.files.filters import FILTERS
from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.spec import MAX_ITERATIONS, SHELL_TIMEOUT
from abreast.jobs.workflow.steps import values
from abreast.jobs.workflow.tools import CustomKind, StepContext
from tests.docs.pages import ROOT, blocks_of

PAGES = ("docs/workflow.md", "docs/coming-from/spec-kit.md", "docs/compatibility.md")
THEIRS = {"command": ["integration", "model", "options"], "prompt": ["integration", "model"]}


@pytest.fixture
def page():
    return (ROOT / "docs/workflow.md").read_text("utf-8")


def part(page, heading):
    return re.split(r"\n#+ (?=[A-Z])", page.partition(f"# {heading}\n")[2])[0]


def rows(text):
    """The first column of a table, and the whole row."""
    return [
        (line.split(" | ")[0].strip("| "), line)
        for line in text.splitlines()
        if line.startswith("| `")
    ]


@pytest.mark.parametrize("kind", step_words.KINDS)
def test_it_has_every_type_with_all_its_keys(page, kind):
    (row,) = [
        row
        for first, row in rows(part(page, "Steps"))
        if f"`{kind}`" in first and row.count(" | ") == 2
    ]
    assert [word for word in step_words.KINDS[kind] if f"`{word}" not in row] == []


def test_it_has_the_keys_of_every_step_of_the_header_and_of_inputs(page):
    own = [word for word in step_words.COMMON if word not in ("integration", "model", "options")]
    assert [word for word in own if f"| `{word}`" not in page and f", `{word}`" not in page] == []
    table = part(page, "The file")
    assert [
        word
        for word in (*step_words.TOP, *step_words.HEADER, *step_words.INPUT)
        if f"`{word}`" not in table
    ] == []


def test_it_has_every_filter_and_says_what_raw_is_for(page):
    names = part(page, "Expressions").partition("Filters: `")[2].partition("`")[0]
    assert names.split() == list(FILTERS)
    assert "`| raw` splices" in part(page, "Shell safety")


def test_the_table_of_widths_is_what_the_conversion_does(page):
    table = part(page, "How max_concurrency is converted")
    assert "`int()`" in table
    seen = 0
    for first, row in rows(table):
        for given in re.findall(r"`([^`]*)`", first):
            assert values.as_width(yaml.safe_load(given)) == int(row.split(" | ")[1]), given
            seen += 1
    assert seen > 12
    assert f"{values.WIDEST:,}" in table


def test_its_limits_are_those_that_hold(page):
    table = part(page, "Limits")
    numbers = (
        fuel.MAX_EXPRESSION_LENGTH,
        fuel.MAX_TOKENS,
        fuel.MAX_TREE_DEPTH,
        fuel.MAX_STEPS,
        fuel.MAX_TEXT_LENGTH,
        workflow_tools.MAX_ITEMS,
        values.WIDEST,
        MAX_ITERATIONS,
    )
    assert [number for number in numbers if f"{number:,}" not in table] == []
    assert (workflow_tools.MAX_OUTPUT, job_file.MAX_FILE_BYTES) == (8 << 20, 5 << 20)
    assert "8 MiB" in table
    assert "5 MiB" in table
    assert f"a `shell` step has {SHELL_TIMEOUT:.0f}" in page


def test_kinds_of_ones_own_are_documented_as_one_shared_stateless_thing_that_is_called_concurrently(
    page,
):
    contract = part(page, "Kinds of your own")
    assert "**One object serves all steps of its type, and is called concurrently.**" in contract
    assert "stateless" in contract
    said = " ".join(inspect.getdoc(CustomKind).split())
    assert (
        "One object serves all steps of its type, and is called concurrently: it must keep nothing"
        in said
    )
    assert [name for name in StepContext.__dataclass_fields__ if f"`{name}`" not in contract] == []


def test_every_file_of_yaml_is_one_that_is_run():
    for page in PAGES:
        blocks = blocks_of(page)
        typed = "".join(block.text for block in blocks if block.language == "sh")
        assert [
            block.place
            for block in blocks
            if block.language == "yaml" and (block.file or "?") not in typed
        ] == []


def test_what_is_refused_of_spec_kit_is_among_the_deviations():
    said = (ROOT / "docs/compatibility.md").read_text("utf-8")
    assert [kind for kind in step_words.REFUSED if f"`{kind}`" not in said] == []
