"""Files that are broken at random load as a workflow, or give a list of problems with lines."""

from __future__ import annotations

import copy
import functools
import random
import re

import pytest
import yaml

from abreast.core.errors import WorkflowInvalid
from abreast.jobs.workflow.load.load import load
from abreast.jobs.workflow.spec import Workflow
from tests.jobs.workflow.large import LARGE

LINES = len(LARGE.splitlines())


def nodes(tree):
    """Yield every place in a tree, as the collection and the key in it."""
    found = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, key))
        if isinstance(tree[key], (dict, list)):
            found += nodes(tree[key])
    return found


def delete(tree, choose):
    inside, key = choose.choice(nodes(tree))
    del inside[key]


def double(tree, choose):
    inside, key = choose.choice([one for one in nodes(tree) if isinstance(one[0], list)])
    inside.insert(key, inside[key])


def rename(tree, choose):
    inside, key = choose.choice([one for one in nodes(tree) if isinstance(one[0], dict)])
    inside[choose.choice(["type", "steps", "id", "wrong", f"{key}s", str(key)[1:]])] = inside.pop(
        key
    )


def swap(tree, choose):
    inside, key = choose.choice(nodes(tree))
    values = [
        None,
        True,
        -1,
        3.5,
        float("nan"),
        10**30,
        "",
        "x",
        "{{",
        "{{ + }}",
        "}}",
        [],
        [[]],
        {},
        {"a": {}},
        [None],
    ]
    inside[key] = choose.choice(values)


def exchange(tree, choose):
    (first, one), (second, other) = choose.choice(nodes(tree)), choose.choice(nodes(tree))
    first[one] = copy.deepcopy(second[other])


def of_tree(change):
    def mutate(choose):
        tree = yaml.safe_load(LARGE)
        for _ in range(choose.randint(1, 3)):
            change(tree, choose)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)

    return mutate


def truncate(choose):
    return LARGE[: choose.randrange(len(LARGE))]


def retag(choose):
    lines = LARGE.splitlines()
    for _ in range(3):
        at = choose.randrange(LINES)
        tag = choose.choice(
            [
                "!!int",
                "!!python/name:os.system",
                "!x",
                "!!map",
                "!!seq",
                "&a",
                "*a",
                "!!null",
                "!!float",
            ]
        )
        lines[at] = re.sub(r": ", f": {tag} ", lines[at], count=1)
    return "\n".join(lines)


def scramble(choose):
    letters = list(LARGE)
    for _ in range(choose.randint(1, 20)):
        letters[choose.randrange(len(letters))] = chr(
            choose.choice([choose.randrange(128), choose.randrange(0x3000), 0xFEFF])
        )
    return "".join(letters)


def noise(choose):
    return choose.randbytes(choose.randrange(3000)).decode("latin-1")


def move_lines(choose):
    lines = LARGE.splitlines()
    for _ in range(choose.randint(1, 4)):
        line = lines.pop(choose.randrange(len(lines)))
        lines.insert(
            choose.randrange(len(lines)),
            " " * choose.randrange(5) + line.lstrip() * choose.randint(1, 2),
        )
    return "\n".join(lines)


SEEDS = range(8)
WAYS = {
    "delete": of_tree(delete),
    "double": of_tree(double),
    "rename": of_tree(rename),
    "swap": of_tree(swap),
    "exchange": of_tree(exchange),
    "truncate": truncate,
    "retag": retag,
    "scramble": scramble,
    "noise": noise,
    "move lines": move_lines,
}


@pytest.fixture(scope="module")
def broken():
    """By way and seed: a broken file, and what it was loaded as or why not; loaded once."""

    @functools.cache
    def load_broken(way, seed):
        text = WAYS[way](random.Random(f"{way}-{seed}"))
        try:
            return text, load(text, "large.yaml", check_sample=lambda facts: None)
        except WorkflowInvalid as error:
            return text, error

    return load_broken


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_broken_file_gives_a_workflow_or_problems_with_lines(way, seed, broken):
    text, found = broken(way, seed)
    if isinstance(found, Workflow):
        assert found.steps
        return
    assert found.problems
    assert list(found.problems) == sorted(found.problems)
    lines = max(1, len(text.splitlines()))
    for one in found.problems:
        assert one.file == "large.yaml"
        assert 1 <= one.line <= lines, one
        assert one.text.strip()
        assert "\n" not in str(one)


def test_the_ways_break_most_files_and_not_all(broken):
    found = [broken(way, seed)[1] for way in WAYS for seed in SEEDS]
    whole = sum(isinstance(one, Workflow) for one in found)
    assert 4 <= whole <= 40
    sentences = {
        re.sub(r"'.*?'|\d+", "_", problem.text)
        for one in found
        if not isinstance(one, Workflow)
        for problem in one.problems
    }
    assert len(sentences) > 40
