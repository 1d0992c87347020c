"""The report: what it says, that nothing in it is ever run, and how large it gets."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from abreast.jobs.matrix.report import report
from abreast.jobs.matrix.report.drilldown import FIELDS, packed, script_json
from abreast.jobs.matrix.report.figures import figures, label, plotly_js
from abreast.jobs.matrix.report.findings import findings
from abreast.jobs.matrix.report.report import LARGEST, html, markdown, write_html
from abreast.jobs.matrix.report.wording import NOTHING, listed, p_value, plain, seconds, share, usd
from abreast.jobs.matrix.rows import SubResult
from tests.jobs.matrix.made_rows import FACTS, MODELS, SCRIPT, row, study

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = [
    SCRIPT,
    "</script><script>window.pwned=1</script>",
    "]]><script>window.pwned=1</script>",
    "{{ 7 * 7 }} {% raw %} {# #} ${7 * 7}",
    "<!-- <script>",
    "--><img src=x onerror=window.pwned=1>",
    "</title></style></textarea><svg onload=window.pwned=1>",
    "\u2028\u2029 line ends, \x00 and \ud800 half a pair",
    "\" onmouseover=window.pwned=1 x='",
    "&lt;script&gt; &amp;amp;",
    "<a href=javascript:window.pwned=1>label</a>",
]


class Page(HTMLParser):
    """A page as a browser's parser sees it: its elements, their attributes, the text between."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.scripts: list[list] = []
        self.said = ""
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append([dict(attrs), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag == "p" and "p" not in self.open:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> ends nothing at {self.getpos()}")

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts[-1][1] += data
        elif self.open[-1:] != ["style"]:
            self.said += data

    def data(self, place: str) -> str:
        return next(text for attributes, text in self.scripts if attributes.get("id") == place)

    def cells(self) -> dict:
        return json.loads(gzip.decompress(base64.b64decode(self.data("cells-data"))))


def hostile(text):
    """Rows with a text wherever a text may be."""
    named = {
        "scores": {text: 1.0},
        "lane": text,
        "error_type": text,
        "error": text,
        "prompt": text,
        "output": text,
        "value": {text: text},
        "truth": [text],
        "score_errors": {"f1": text},
        "steps": (SubResult(text, text, text),),
    }
    rows = [row(text, text, f"{text}{n}", **named) for n in range(7)]
    return [
        *rows,
        *(row(f"{text}2", text, f"{text}{n}", **{**named, "state": "failed"}) for n in range(7)),
    ]


# Six arms rather than nine: all pairs are compared, which takes most of the time.
TWO = dict([*MODELS.items()][:2])


@pytest.fixture(scope="module")
def rows():
    return study(192, models=TWO)


@pytest.fixture(scope="module")
def found(rows):
    return findings(rows, FACTS)


@pytest.fixture(scope="module")
def text_of_page(rows):
    return html(rows, FACTS)


@pytest.fixture(scope="module")
def page(text_of_page):
    return Page(text_of_page)


@pytest.fixture
def short_plotly(monkeypatch):
    """A page without the 4 MB of plotly.js, whose compression takes most of a small page's time."""
    monkeypatch.setattr(report, "plotly_js", lambda: "plotly")


@pytest.fixture(scope="module")
def calm():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "plotly_js", lambda: "plotly")
        return Page(html(hostile("calm"), FACTS))


# --- what it says


def test_the_page_has_every_part_that_a_report_has(page, found):
    ids = {attributes.get("id") for _, attributes in page.elements}
    plots = {
        attributes["id"] for _, attributes in page.elements if attributes.get("class") == "plot"
    }
    assert {
        "scores",
        "differences",
        "cost",
        "latency",
        "failures",
        "cells",
        "provenance",
        "filters",
    } <= ids
    assert plots == {
        f"{kind}-{n}" for kind in ("scores", "heatmap", "differences", "pareto") for n in (0, 1)
    } | {"latency-plot", "failures-plot"}
    best = found.scores[0].summaries[0]
    for said in (
        "Intention-to-treat",
        "Valid-only",
        "95% interval",
        "Effect",
        "p (Holm)",
        "rank-biserial",
        "Wilson",
        "Best for its price in",
        "Service time of cells that were done",
        "Did the load slow it down?",
        "How cells failed",
        "balanced within one repeat",
        "Controls",
        f"{best.intended.mean:.3f}",
        best.arm.model,
        *found.short,
        *FACTS["warnings"],
        "study-20261115-1",
        '{"abreast": "0.1", "python": "3.11.7"}',
        "a86152d",
    ):
        assert said in page.said, said


def test_the_markdown_says_the_same_numbers(rows, found):
    said = markdown(rows, FACTS)
    for scored in found.scores:
        assert f"## Score: {scored.name}" in said
        for one in scored.summaries:
            mean = one.intended
            assert f"| {one.arm} | {mean.n} | {mean.inputs} | {mean.mean:.3f} |" in said
    for part in (
        "## Failures",
        "## Latency",
        "## Cost",
        "## Controls",
        "## Provenance",
        "## Methods",
        "> **Warning:**",
    ):
        assert part in said
    widths = [
        line.count(" | ")
        for line in said.splitlines()
        if line.startswith("| local/smollm2 · plain | 32 | 16")
    ]
    assert widths == [7, 7]


def test_every_cell_is_in_the_page_with_all_that_is_known_of_it(page, rows):
    kept = page.cells()
    assert kept["fields"] == list(FIELDS)
    assert len(kept["cells"]) == len(rows)
    by_name = {facts[0]: facts for facts in kept["cells"]}
    for one in rows[::17]:
        facts = dict(zip(FIELDS, by_name[one.cell], strict=False))
        prompt, output, value, truth, error = by_name[one.cell][-2]
        texts = kept["texts"]
        assert (facts["model"], facts["repeat"], facts["scores"]) == (
            one.model,
            one.repeat,
            one.scores,
        )
        assert facts["service_s"] == pytest.approx(one.service_s, abs=1e-6)
        assert texts[prompt] == one.prompt
        assert (None if output is None else texts[output]) == one.output
        assert (None if error is None else texts[error]) == one.error
        assert (None if truth is None else json.loads(texts[truth])) == one.truth
        assert (None if value is None else json.loads(texts[value])) == one.value
        assert [texts[step[2]] for step in by_name[one.cell][-1]] == [
            step.output for step in one.steps
        ]
    assert len(kept["texts"]) == len(set(kept["texts"]))


@pytest.mark.parametrize(
    "cells",
    [
        study(90, models=TWO),
        study(20, models=TWO),
        [row()],
        [row(state="failed")],
        [row("c", "truth", control=True)],
    ],
)
def test_every_figure_is_one_that_plotly_knows(cells):
    from plotly import graph_objects

    for name, figure in figures(findings(cells, {}), cells).items():
        graph_objects.Figure(figure)  # raises for a name or a value that plotly has not
        assert figure["layout"]["height"] > 0, name
        script_json(figure)  # raises for what is no number


def test_plots_far_apart_are_drawn_by_powers_of_ten():
    cells = [
        row(f"m{n}", "s", f"i{m}", usd=0.0001 * 20**n, service_s=0.01 * 30**n)
        for n in range(3)
        for m in range(3)
    ]
    drawn = figures(findings(cells, {}), cells)
    assert drawn["pareto-0"]["layout"]["xaxis"]["type"] == "log"
    assert {0.01, 0.02, 0.05, 0.1, 1.0} <= set(drawn["latency-plot"]["layout"]["xaxis"]["tickvals"])


def test_arms_in_one_place_share_a_label_and_nothing_is_drawn_below_nothing():
    means = {"one": 0.0, "two": 0.0, "three": 1.0}
    cells = [
        row("m", s, f"i{n}", usd=0.0, score=mean) for s, mean in means.items() for n in range(9)
    ]
    drawn = figures(findings(cells, {}), cells)
    pareto = drawn["pareto-0"]
    (points,) = pareto["data"]  # and no line through a single best one
    assert (points["text"], sorted(points["customdata"])) == (
        ["three", "one, two", ""],
        ["m · one", "m · three", "m · two"],
    )
    assert (pareto["layout"]["xaxis"]["title"]["text"], pareto["layout"]["xaxis"]["rangemode"]) == (
        "tokens per cell",
        "tozero",
    )
    assert drawn["differences-0"]["layout"]["xaxis"]["rangemode"] == "tozero"
    assert drawn["scores-0"]["layout"]["xaxis"]["range"] == [-0.04, 1.04]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([], "No cell has ended yet."),
        ([row()], "The one cell was done."),
        (
            [row(state="failed", error_type="Timeout")],
            "1 of 1 cells failed (100.0%), most often with Timeout.",
        ),
        (
            [row("a", "s", f"i{n}", r) for n in range(2) for r in range(1 + 2 * n)],
            "The design is not balanced",
        ),
        (
            [row(m, "s", f"i{n}", score=m == "b") for m in "ab" for n in range(9)],
            "it differs clearly from the other arm",
        ),
        (
            [row(m, "s", f"i{n}", score=(m == "c") * 0.9) for m in "abc" for n in range(9)],
            ", before a · s with 0.000; it differs clearly from every other arm.",
        ),
        ([row(given=f"i{n}") for n in range(3)], "Each arm and input has 1 cell."),
        (
            [row(m, "s", f"i{n}", score=0.5) for m in "ab" for n in range(9)],
            "a · s and b · s have the highest mean",
        ),
        (
            [row(m, "s", f"i{n}", score=0.5) for m in "ab" for n in range(9)],
            "can't be told apart from any other arm",
        ),
        (
            [row(usd=0.5, estimated=True), row(given="b")],
            "The usage of 50.0% of the cells is an estimate.",
        ),
        (
            [row(usd=0.5, estimated=True), row(given="b")],
            "1 cell has no known price and is not in the cost.",
        ),
    ],
)
@pytest.mark.usefixtures("short_plotly")
def test_the_report_in_short_says_what_matters(cells, said):
    page = Page(html(cells, {}))
    assert said in page.said
    assert page.faults == []
    assert not re.search(r"\bnan\b", markdown(cells, {}) + page.said, re.IGNORECASE)


def test_scores_that_could_not_be_given_are_at_the_top_and_nobody_leads_in_a_score_without_values():
    cells = [
        row(
            model,
            "s",
            f"i{n}",
            scores={"exact": 0.5, "broken": None},
            score_errors={"broken": "KeyError: 'x'"},
        )
        for model in "ab"
        for n in range(7)
    ]
    found = findings(cells, {"warnings": ["first"]})
    assert found.warnings == (
        "first",
        "The score broken could not be given in 14 of 14 cells; of a/s/i0/0: KeyError: 'x'",
    )
    assert not any("broken" in one and "highest" in one for one in found.short)
    assert any(one.startswith("broken: there is no value at all") for one in found.short)
    [broken] = [one for one in found.scores if one.name == "broken"]
    assert [(one.intended.mean, one.valid.n) for one in broken.summaries] == [(None, 0), (None, 0)]
    assert (broken.comparisons, broken.offers) == ((), ())
    said = markdown(cells, {})
    assert said.splitlines()[2].startswith(
        "> **Warning:** The score broken could not be given in 14 of 14 cells"
    )
    page = Page(html(cells, {}))
    assert "The score broken could not be given in 14 of 14 cells" in page.said
    assert page.faults == []


def test_an_arm_that_a_scorer_could_not_judge_is_last_and_compared_with_none():
    cells = [row("a", "s", f"i{n}", score=None, score_errors={"exact": "oh"}) for n in range(7)]
    cells += [row("b", "s", f"i{n}", score=0.0) for n in range(7)]
    found = findings(cells, {})
    assert [(one.arm.model, one.intended.mean) for one in found.scores[0].summaries] == [
        ("b", 0.0),
        ("a", None),
    ]
    assert found.scores[0].comparisons == ()
    assert "exact: b · s has the highest mean, 0.000 (0.000 to 0.354)." in found.short


@pytest.mark.parametrize(
    ("spent", "said"), [(0.5, "Judges cost $1.00 for 4,200 tokens"), (None, "an unknown amount")]
)
@pytest.mark.usefixtures("short_plotly")
def test_what_judges_cost_is_in_the_report(spent, said):
    cells = [
        row(
            given=f"i{n}",
            judge_input_tokens=2000,
            judge_output_tokens=100,
            judge_usd=spent,
            usd=0.1,
        )
        for n in range(2)
    ]
    assert any(said in one for one in findings(cells, {}).short)
    assert said in markdown(cells, {})
    assert said in Page(html(cells, {})).said
    assert "Judges" not in Page(html([row()], {})).said


def test_who_would_lead_without_failures_is_said():
    cells = [row("a", "s", f"i{n}", score=0.6) for n in range(8)]
    cells += [
        row("b", "s", f"i{n}", score=0.9, state="failed" if n < 4 else "done") for n in range(8)
    ]
    assert any(
        "without failed cells b · s would lead, with 0.900" in one
        for one in findings(cells, {}).short
    )


@pytest.mark.usefixtures("short_plotly")
def test_of_very_many_pairs_the_largest_are_shown():
    cells = [
        row(f"m{m:02}", "s", f"i{n}", score=((m * 7 + n * 3) % 11) / 11)
        for m in range(16)
        for n in range(7)
    ]
    assert "The largest 100 of 120" in markdown(cells, {})
    assert "The largest 100 of 120 pairs" in Page(html(cells, {})).said


# --- nothing in it is ever run


@pytest.mark.usefixtures("short_plotly")
@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_text_holds_the_page_has_the_same_elements(text, calm):
    wild = Page(html(hostile(text), {**FACTS, "study": text, text: text}))
    extra = len([tag for tag, _ in wild.elements]) - len([tag for tag, _ in calm.elements])
    assert extra == 3  # the additional fact: one line of three elements
    assert wild.faults == calm.faults == []
    assert len(wild.scripts) == 4
    assert not any(name.startswith("on") for _, attributes in wild.elements for name in attributes)
    assert wild.scripts[-1][1] == calm.scripts[-1][1]
    assert text.encode("utf-8", "replace").decode() in wild.cells()["texts"]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_text_holds_it_has_no_meaning_in_markdown_or_in_a_label(text):
    said = markdown(hostile(text), {**FACTS, "study": text, text: text, "warnings": [text]})
    assert "<" not in said
    for line in said.splitlines():
        assert not re.search(r"(?<!\\)[`*_]", line.replace("**Warning:**", "")), line
    assert "<" not in label(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_json_in_a_page_ends_no_script_and_is_the_same_json(text):
    written = script_json({text: [text]})
    assert not re.search("[<>&\u2028\u2029]", written)
    assert json.loads(written) == {text: [text]}


def test_the_page_knows_its_scripts_by_their_hash_and_fetches_nothing(page):
    (policy,) = [a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    plotly = gzip.decompress(base64.b64decode(page.data("plotly-data"))).decode()
    assert plotly == plotly_js()
    for script in (plotly, page.scripts[-1][1]):
        assert (
            f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
            in policy
        )
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    fetching = [
        (tag, a)
        for tag, a in page.elements
        if {"src", "srcset", "data", "action"} & a.keys() or tag == "link"
    ]
    assert fetching == []
    assert all(a["href"].startswith("#") for tag, a in page.elements if "href" in a)
    own = page.scripts[-1][1]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|fetch\(", own
    )


# --- for every reader


def test_headings_tables_and_fields_are_told_apart_without_seeing_them(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("caption") == tags.count("table")
    assert all("scope" in a for tag, a in page.elements if tag == "th")
    assert all(
        a.get("role") == "img" and a["aria-label"]
        for _, a in page.elements
        if a.get("class") == "plot"
    )
    assert tags.count("label") == tags.count("select") + tags.count("input")
    assert ("html", {"lang": "en"}) in page.elements
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for tag, a in page.elements if tag == "a"} <= set(ids)
    assert {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a} <= set(ids)
    assert page.faults == []


def luminance(colour):
    full = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(full[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_stands_out_from_its_paper_in_both_themes():
    themes = re.findall(r"\{\s*(--paper:.*?)\}", report._page_file("report.css"), re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", theme))
        for ink in ("ink", "muted", "link", "bad", "good"):
            for paper in ("paper", "soft"):
                dark, light = sorted((luminance(colours[ink]), luminance(colours[paper])))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper, theme)


# --- how large it gets


@pytest.mark.parametrize("words", [60, 900])
def test_a_report_of_6000_cells_stays_below_10_mb_however_long_its_replies(tmp_path, words):
    models = {f"p{n}/model": (0.3 + n / 10, 1.0, 0.001) for n in range(2)}
    cells = study(6_090, models=models, repeats=5, words=words)
    assert len(cells) > 6_000
    write_html(cells, FACTS, tmp_path / "report.html")
    size = (tmp_path / "report.html").stat().st_size
    assert size < 10_000_000
    assert size <= LARGEST
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    kept = page.cells()
    assert len(kept["cells"]) == len(cells)
    assert ("texts are shortened to" in page.said) == (words == 900)
    assert any("more characters]" in text for text in kept["texts"]) == (words == 900)


def test_texts_are_shortened_only_as_far_as_they_must(rows):
    whole = packed(rows, 10_000_000)
    assert (whole.cut, whole.longest) == (0, 100_000)
    less = packed(rows, len(whole.data) // 2)
    assert less.cut > 0
    assert less.longest > 0  # not to nothing at once
    assert len(less.data) <= len(whole.data) // 2
    least = packed(rows, 0)
    assert least.longest == 0  # every cell stays, whatever it takes
    assert len(json.loads(gzip.decompress(base64.b64decode(least.data)))["cells"]) == len(rows)


def test_what_was_there_is_replaced_in_one_step_or_not_at_all(tmp_path, rows, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    monkeypatch.setattr(report, "html", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_html(rows, FACTS, target)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "before"
    monkeypatch.setattr(report, "html", lambda *_: "after \ud800")
    write_html(rows, FACTS, str(target))
    assert target.read_text() == "after ?"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_same_rows_make_the_same_page_in_whatever_order(rows, text_of_page):
    assert html(rows[::-1], FACTS) == text_of_page


def test_numbers_are_written_as_readers_expect():
    money = {
        None: NOTHING,
        0: "$0.00",
        0.00123456: "$0.001235",
        0.5: "$0.5",
        12: "$12.00",
        1234.5: "$1,234.50",
    }
    assert {value: usd(value) for value in money} == money
    assert [seconds(one) for one in (None, 0.0123, 1.5)] == [NOTHING, "12 ms", "1.50 s"]
    assert [p_value(one) for one in (None, 1e-9, 0.0123)] == [NOTHING, "< 0.001", "0.012"]
    assert [listed(one) for one in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert share(1, 0) == NOTHING
    assert [plain(one) for one in (None, "a", {"b": 1})] == [NOTHING, "a", '{"b": 1}']
