"""Finding the target function, and putting a candidate's text into its file."""

import ast
import textwrap

import pytest

from abreast.jobs.candidates.source.target import (
    CandidateInvalid,
    Target,
    TargetInvalid,
    asks_for_closeness,
    candidate_text,
    parse_target,
)

FILE = '''\
#!/usr/bin/env python
"""Words."""

import re
from functools import wraps


def traced(function):
    return wraps(function)(lambda *a: function(*a))


class Bag:
    """Holds words."""

    kind = "bag"

    def __init__(self, text):
        self.text = text

    @property
    @traced
    def words(self):
        """All
        of them."""
        return re.findall("[a-z]+", self.text)

    async def later(self):
        return self.words


@traced
def top(text, n):
    return sorted(set(re.findall("[a-z]+", text)))[:n]


def last():
    return 1'''


def source(text):
    return textwrap.dedent(text)


def made(candidate, qualname="top", original=FILE):
    return candidate_text(original, Target("words.py", qualname), source(candidate))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "words.py").write_text(FILE)
    return tmp_path


# --- which function


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("pkg/words.py::top", Target("pkg/words.py", "top")),
        ("pkg/words.py::Bag.words", Target("pkg/words.py", "Bag.words")),
        ("pkg/words.py::Bag::later", Target("pkg/words.py", "Bag.later")),
        ("./pkg/../pkg/words.py::last", Target("pkg/words.py", "last")),
    ],
)
def test_a_target_is_a_file_of_the_repository_and_a_dotted_name(root, text, target):
    assert parse_target(text, root) == target
    assert parse_target(str(root / text), root) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pkg/words.py", "write FILE.py::FUNCTION"),
        ("pkg/words.py::", "write FILE.py::FUNCTION"),
        ("::top", "write FILE.py::FUNCTION"),
        ("pkg/wrds.py::top", "there is no file pkg/wrds.py"),
        ("../words.py::top", "outside of"),
        ("pkg/words.py::tpo", "there is no function tpo in pkg/words.py; there is top"),
        ("pkg/words.py::Bag", "Bag is a class: name one of its methods"),
        ("pkg/words.py::top.<locals>.inner", "name the outer one"),
    ],
)
def test_what_names_no_function_is_said_in_a_sentence(root, text, said):
    with pytest.raises(TargetInvalid, match=said.replace("(", r"\(")):
        parse_target(text, root)


def test_a_file_that_is_no_python_or_no_text_is_said_with_its_line(root):
    (root / "bad.py").write_text("x = 1\ndef f(:\n")
    (root / "latin.py").write_bytes("x = 'ä'".encode("latin-1"))
    with pytest.raises(TargetInvalid, match=r"bad.py is not Python: .*\(line 2\)"):
        parse_target("bad.py::f", root)
    with pytest.raises(TargetInvalid, match="not in UTF-8"):
        parse_target("latin.py::f", root)


def test_overloads_are_passed_over_and_real_doubles_refused(root):
    text = "from typing import overload\n@overload\ndef f(a: int) -> int: ...\ndef f(a): return a\n"
    (root / "over.py").write_text(text)
    assert parse_target("over.py::f", root).qualname == "f"
    (root / "twice.py").write_text("def f(): return 1\ndef f(): return 2\n")
    with pytest.raises(TargetInvalid, match="defined 2 times, in lines 1, 2"):
        parse_target("twice.py::f", root)


def test_a_function_under_an_if_or_a_try_is_found(root):
    (root / "deep.py").write_text(
        "try:\n    import x\nexcept ImportError:\n    if 1:\n        def f(): return 1\n"
    )
    assert parse_target("deep.py::f", root) == Target("deep.py", "f")


# --- only the function


def test_only_the_function_is_replaced_and_its_decorators_stay():
    text = made("def top(text, n):\n    return []\n")
    assert text == FILE.replace('return sorted(set(re.findall("[a-z]+", text)))[:n]', "return []")


def test_decorators_of_the_candidate_are_its_own():
    text = made("@staticmethod\ndef top(text, n):\n    return []\n")
    assert "@traced\ndef top" not in text
    assert "@staticmethod\ndef top" in text


def test_a_method_may_come_alone_or_in_its_class_and_is_indented_like_the_original():
    alone = made("def words(self):\n    return self.text.split()\n", "Bag.words")
    in_class = made("class Bag:\n  def words(self):\n      return self.text.split()\n", "Bag.words")
    docstring = '        """All\n        of them."""\n'
    head = "    @property\n    @traced\n    def words(self):\n"
    assert f"{head}{docstring}        return self.text.split()\n" in alone
    assert ast.dump(ast.parse(alone)) == ast.dump(ast.parse(in_class))
    narrow = made("def words(self):\n  return self.text.split()\n", "Bag.words")
    assert f"{head}      return self.text.split()\n" in narrow
    assert "    @property\n    @traced\n    def words(self):\n" in in_class


def test_lines_inside_of_strings_keep_their_indentation():
    text = made(
        'def words(self):\n    """One\n  two"""\n    return f"""a\n{self.text}\n  b"""\n',
        "Bag.words",
    )
    function = next(one for one in ast.walk(ast.parse(text)) if getattr(one, "name", "") == "words")
    assert ast.get_docstring(function, clean=False) == "One\n  two"
    assert "a\n{self.text}\n  b" in text


def test_an_async_method_stays_async():
    assert "    async def later(self):\n        return []\n" in made(
        "async def later(self):\n    return []\n", "Bag.later"
    )
    with pytest.raises(CandidateInvalid, match="later is async, and the candidate's is plain"):
        made("def later(self):\n    return []\n", "Bag.later")


def test_imports_that_are_missing_are_added_and_those_there_are_not_doubled():
    text = made(
        """
        from __future__ import annotations
        import re
        import os.path
        from collections import Counter, deque as queue
        def top(text, n):
            return Counter(re.findall(text)), queue, os
        """
    )
    head = text[: text.index("def traced")]
    assert head == (
        '#!/usr/bin/env python\n"""Words."""\nfrom __future__ import annotations\n\nimport re\n'
        "from functools import wraps\nimport os.path\nfrom collections import Counter\n"
        "from collections import deque as queue\n\n\n"
    )


def test_helpers_of_new_names_come_before_the_function_or_its_class():
    helper = "import heapq\nTABLE = {1: 2}\n\n\ndef best(words):\n    return TABLE, heapq\n\n\n"
    text = made(helper + "def top(text, n):\n    return best(text)\n")
    assert text.index("TABLE = ") < text.index("def best") < text.index("@traced\ndef top")
    text = made(helper + "def words(self):\n    return best(self.text)\n", "Bag.words")
    assert text.index("def best") < text.index("class Bag")
    text = made(
        "class Bag:\n    def fast(self):\n        return 1\n"
        "    def words(self):\n        return self.fast()\n",
        "Bag.words",
    )
    assert text.index("kind =") < text.index("    def fast") < text.index("    @property")


def test_what_is_repeated_from_the_original_is_no_change():
    text = made("def last():\n    return 1\ndef top(text, n):\n    return last()\n")
    assert text.count("def last") == 1


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("def top(:\n", r"the candidate is not Python: .*\(line 1\)"),
        ("def other():\n    return 1\n", "the candidate has no function top"),
        (
            "def last():\n    return 2\ndef top(text, n):\n    return []\n",
            "changes last too: give the whole file",
        ),
        ("from json import wraps\ndef top(text, n):\n    return []\n", "imports another wraps"),
        ("import json as last\ndef top(text, n):\n    return []\n", "imports another last"),
        ("def top(text, n):\n    return []\nprint(1)\n", "line 3 of the candidate is neither"),
        ("re = None\ndef top(text, n):\n    return []\n", "changes re too"),
        ("x = '\0'\n", "not Python"),
    ],
)
def test_what_would_change_more_than_the_function_is_refused(candidate, said):
    with pytest.raises(CandidateInvalid, match=said):
        made(candidate)


def test_line_ends_of_the_file_are_kept():
    text = made(
        "import heapq\ndef top(text, n):\n    return []\n", original=FILE.replace("\n", "\r\n")
    )
    assert "\n" not in text.replace("\r\n", "")


def test_the_docstring_stays_unless_the_candidate_has_its_own():
    original = (
        '"""Words."""\n\n\n@f\ndef top(text):\n    """All\n    of them."""\n'
        "    # slow\n    return text\n"
    )
    text = made(
        '"""Quick."""\n\n\n@g(1)\n@h\ndef top(\n    text,\n):\n'
        "    # quick\n    return text.split()\n",
        original=original,
    )
    assert text == (
        '"""Words."""\n\n\n@g(1)\n@h\ndef top(\n    text,\n):\n'
        '    # quick\n    """All\n    of them."""\n    return text.split()\n'
    )
    assert '"""Mine."""' in made(
        'def top(text):\n    """Mine."""\n    return 1\n', original=original
    )
    assert "All" not in made('def top(text):\n    """Mine."""\n    return 1\n', original=original)
    assert made("def top(text): return 1\n", original=original).endswith(
        "@f\ndef top(text): return 1\n"
    )


# --- the whole file


def test_a_whole_file_is_taken_as_it_is():
    whole = FILE.replace("return 1", "return 2").replace("import re\n", "import re\nimport heapq\n")
    assert candidate_text(FILE, Target("words.py", "top"), whole) == whole


def test_one_function_for_a_file_of_one_function_keeps_the_imports_that_it_uses():
    original = "import re\n\n\ndef top(text):\n    return re.split(text)\n"
    assert made(
        "def top(text):\n    return re.findall(text)\n", original=original
    ) == original.replace("split", "findall")
    whole = "import json\n\n\ndef top(text):\n    return text.split()\n\n\nprint(top('a'))\n"
    assert made(whole, original=original) == whole


def test_a_whole_file_without_the_function_or_of_another_kind_is_refused():
    original = "def top(text):\n    return text\n"
    with pytest.raises(CandidateInvalid, match="top is plain, and the candidate's is async"):
        made("async def top(text):\n    return text\n", original=original)


@pytest.mark.parametrize(
    ("text", "close"),
    [
        ("def f(x):  # abreast: close\n    return x\n", True),
        ("# abreast: close\ndef f(x):\n    return x\n", True),
        ("# abreast: close\n@cache\ndef f(x):\n    return x\n", True),
        ("def f(x):\n    #abreast:close, as sums may be taken in any order\n    return x\n", True),
        ("# abreast: close\n\n\ndef f(x):\n    return x\n", False),
        ("def g():  # abreast: close\n    pass\n\n\ndef f(x):\n    return x\n", False),
        ("def f(x):\n    return '# abreast: close'\n", False),
        ("def f(x):  # abreast: closed\n    return x\n", False),
    ],
)
def test_a_comment_asks_for_closeness_of_its_function_alone(text, close):
    assert asks_for_closeness(text, Target("mod.py", "f")) is close
