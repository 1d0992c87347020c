"""The tutorial about samples, pasted as a reader would.

With the embedded model, where its weights are.
"""

import re

from tests.docs.pages import ROOT, blocks_of, differs, project, run

PAGE = "docs/tutorial-sample.md"


def test_what_the_tutorial_says_to_type_works_and_prints_what_it_says(embedded, tmp_path, forks):
    said = run(blocks_of(PAGE), project(tmp_path / "reader"), forks)
    assert [
        text for block, out in said if block.expected is not None and (text := differs(block, out))
    ] == []
    (told,) = [out for block, out in said if block.text == "python speed.py\n"]
    measured = [tuple(map(int, re.findall(r"\d+", line)[:3])) for line in told.splitlines()]
    assert [breadth for breadth, _, _ in measured] == [1, 2, 4, 8]
    table = re.findall(r"^\| (\d) \| (\d+) \|", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE)
    assert [(breadth, rounds) for breadth, rounds, _ in measured] == [
        (int(a), int(b)) for a, b in table
    ]
    # The cost is multiplied, and never past what breadth and rounds allow by more than the round
    # that was cut short.
    for breadth, rounds, requests in measured:
        assert rounds <= requests <= breadth * (rounds + 10)
