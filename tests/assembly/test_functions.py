"""What tells that a function has changed, and what does not."""

import functools
import importlib
import linecache
import re
import sys
from pathlib import Path

import pytest

from abreast.assembly.functions import find_function_in, function_text, module_text

TEXT = """
import json
import re

PATTERN = re.compile("a+")
PROMPT = "say"
EXAMPLES = ["a", "b"]
calls = []
count = 0


def helper(text):
    return text + "!"


class Shape:
    size: int = 1

    def grown(self):
        return self.size + 1


def strategy(value, model):
    global count
    PATTERN.search(str(Shape().grown()))
    count += 1
    calls.append(value)
    return helper(json.dumps(f"{PROMPT} {EXAMPLES}"))


def other():
    return 1


two = {"a": lambda value, model: "one", "b": lambda value, model: "two"}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that makes a module of a text, as an edited file would be imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(text):
        name = f"edited_{len(made)}"
        made.append(name)
        Path(tmp_path, f"{name}.py").write_text(text, "utf-8")
        importlib.invalidate_caches()
        linecache.clearcache()
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("count += 1", "count += 2", True),
        ('text + "!"', 'text + "?"', True),
        ('"say"', '"shout"', True),
        ('["a", "b"]', '["a", "c"]', True),
        ('"a+"', '"b+"', True),
        ("size + 1", "size + 2", True),
        ("size: int = 1", "size: int = 2", True),
        ("calls = []", "calls = [1]", False),  # not in capitals: it may be filled by the function
        ("count = 0", "count = 7", False),  # assigned by the function itself
        ("return 1", "return 2", False),  # another function
        ("import json\n", "import json\n\n\n# a comment\n", False),
    ],
)
def test_it_is_its_own_source_and_what_it_names_in_its_module(module, old, new, changes):
    texts = [function_text(module(text).strategy) for text in (TEXT, TEXT.replace(old, new))]
    assert (texts[0] != texts[1]) is changes


def test_running_it_does_not_change_it(module):
    made = module(TEXT)
    before = function_text(made.strategy)
    made.strategy({"a": 1}, None)
    assert function_text(made.strategy) == before


def test_lambdas_on_one_line_are_told_apart_and_only_the_edited_one_changes(module):
    then, now = module(TEXT).two, module(TEXT.replace('"two"}', '"three"}')).two
    assert function_text(then["a"]) != function_text(then["b"])
    assert function_text(then["a"]) == function_text(now["a"])
    assert function_text(then["b"]) != function_text(now["b"])


def test_arguments_of_a_partial_and_values_of_a_closure_belong_to_it():
    def make(word):
        return lambda value: (word, value)

    assert function_text(make("a")) != function_text(make("b"))
    assert function_text(functools.partial(make, "a")) != function_text(
        functools.partial(make, "b")
    )


def test_an_object_that_can_be_called_goes_by_its_class_and_its_values():
    class Scorer:
        def __init__(self, least):
            self.least, self.seen, self.other = least, [], object()

        def __call__(self, row):
            self.seen.append(row)
            return row["n"] >= self.least

    used = Scorer(1)
    used({"n": 1})
    assert function_text(used) == function_text(Scorer(1)) != function_text(Scorer(2))
    assert function_text(Scorer(1).__call__) != function_text(Scorer(2).__call__)


def test_a_function_without_source_goes_by_its_code_and_not_by_its_address():
    def make(text):
        names = {}
        exec(text, names)
        return names["f"]

    one, same, other = (make(f"def f(value):\n    return {number}") for number in ("1", "1", "2"))
    assert function_text(one) == function_text(same) != function_text(other)
    assert module_text(one) == module_text(same)


def test_a_function_is_found_by_name_and_what_is_missing_is_said(module, tmp_path):
    made = module(TEXT)
    assert find_function_in("edited_0:strategy", str(tmp_path)) is made.strategy
    for call, why in (
        ("edited_0", "'edited_0' is no function; write it as pkg.mod:function"),
        ("edited_0:lost", "edited_0 has no 'lost'"),
        ("edited_0:PROMPT", "edited_0:PROMPT is not a function, but str"),
        ("nowhere_at_all:f", "there is no module 'nowhere_at_all' here or on the PYTHONPATH"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
            find_function_in(call, str(tmp_path))
