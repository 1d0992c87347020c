"""The normal form: equal for the same code, never equal for code that may behave differently."""

import copy
import random
import re
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.jobs.candidates.source.normal_form import (
    DuplicateFinder,
    DuplicateStatus,
    normal_form,
)
from abreast.jobs.candidates.values.invocation import judge, observe

SAME = {
    "layout": ("def f(a):\n    return (a  +  1)", "def f(a): return a+1  # more"),
    "docstring": (
        'def f():\n    """Does."""\n    return 1',
        'def f():\n    """Says."""\n    return 1',
    ),
    "no docstring": ('"""Module."""\ndef f():\n    "Doc"\n    return 1', "def f():\n    return 1"),
    "only a docstring": ('def f():\n    "a"', "def f():\n    pass"),
    "a local": ("def f(a):\n    x = a\n    return x", "def f(a):\n    y = a\n    return y"),
    "two locals": (
        "def f(a):\n  x = 1\n  y = 2\n  return x - y",
        "def f(a):\n  y = 1\n  x = 2\n  return y - x",
    ),
    "a loop": (
        "def f(a):\n  s = 0\n  for i in a:\n    s += i\n  return s",
        "def f(a):\n  t = 0\n  for k in a:\n    t += k\n  return t",
    ),
    "a comprehension": (
        "def f(a): return [x for x in a if x]",
        "def f(a): return [y for y in a if y]",
    ),
    "nested": (
        "def f(a): return {x: [y for y in x] for x in a}",
        "def f(a): return {p: [q for q in p] for p in a}",
    ),
    "of the module": ("A = [x for x in range(3)]", "A = [y for y in range(3)]"),
    "of a class": (
        "class A:\n  b = {x for x in range(3)}",
        "class A:\n  b = {y for y in range(3)}",
    ),
    "in a lambda": ("f = lambda a: [x for x in a]", "f = lambda a: [y for y in a]"),
    "a local in a comprehension": (
        "def f(a):\n  k = 2\n  return [x * k for x in a]",
        "def f(a):\n  n = 2\n  return [y * n for y in a]",
    ),
    "both branches": (
        "def f(a):\n  if a:\n    x = 1\n  else:\n    x = 2\n  return x",
        "def f(a):\n  if a:\n    y = 1\n  else:\n    y = 2\n  return y",
    ),
    "with": ("def f(a):\n  with a as x:\n    return x", "def f(a):\n  with a as y:\n    return y"),
    "try": (
        "def f(a):\n  x = 1\n  try:\n    return x / a\n  except Exception:\n    return x",
        "def f(a):\n  y = 1\n  try:\n    return y / a\n  except Exception:\n    return y",
    ),
    "while": (
        "def f(a):\n  x = 3\n  while x:\n    x -= 1\n  return x",
        "def f(a):\n  y = 3\n  while y:\n    y -= 1\n  return y",
    ),
    "annotated": ("def f(a):\n  x: int = 1\n  return x", "def f(a):\n  y: int = 1\n  return y"),
    "match": (
        "def f(a):\n  x = 1\n  match a:\n    case 1: return x\n  return 2",
        "def f(a):\n  y = 1\n  match a:\n    case 1: return y\n  return 2",
    ),
    "async": (
        "async def f(a):\n  async for x in a:\n    return x",
        "async def f(a):\n  async for y in a:\n    return y",
    ),
    "getattr by name": (
        "def f(a):\n  x = getattr(a, 'b')\n  return x",
        "def f(a):\n  y = getattr(a, 'b')\n  return y",
    ),
    "text": ("def f(a):\n  x = 1\n  return f'{x}'", "def f(a):\n  y = 1\n  return f'{y}'"),
    "generator": (
        "def f(a): return sum(x for x in a for y in x)",
        "def f(a): return sum(p for p in a for q in p)",
    ),
}

OTHER = {
    "number": ("def f(a): return a + 1", "def f(a): return a + 1.0"),
    "bool": ("def f(a): return 1", "def f(a): return True"),
    "parameter": ("def f(a): return a", "def f(b): return b"),
    "positional parameter": ("def f(a, /): return a", "def f(b, /): return b"),
    "star": ("def f(*a): return a", "def f(**a): return a"),
    "function": ("def f(): return 1", "def g(): return 1"),
    "global": ("def f():\n  global x\n  x = 1", "def f():\n  global y\n  y = 1"),
    "module variable": ("x = 1\ndef f(): return x", "y = 1\ndef f(): return y"),
    "builtin": ("def f(a): return sum(a)", "def f(a): return max(a)"),
    "attribute": ("def f(a): a.x = 1", "def f(a): a.y = 1"),
    "class": ("class A: pass", "class B: pass"),
    "class variable": ("class A:\n  x = 1", "class A:\n  y = 1"),
    "inner function": (
        "def f():\n  def x(): pass\n  return x",
        "def f():\n  def y(): pass\n  return y",
    ),
    "closure": ("def f():\n  x = 1\n  return lambda: x", "def f():\n  y = 1\n  return lambda: y"),
    "which is closed over": (
        "def f():\n  x = 1\n  y = 2\n  return lambda: x",
        "def f():\n  y = 1\n  x = 2\n  return lambda: x",
    ),
    "which a class sees": (
        "def f():\n  x = 1\n  y = 2\n  class A:\n    z = x\n  return A",
        "def f():\n  y = 1\n  x = 2\n  class A:\n    z = x\n  return A",
    ),
    "nonlocal": (
        "def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2\n  g()\n  return x",
        "def f():\n  y = 1\n  def g():\n    nonlocal y\n    y = 2\n  g()\n  return y",
    ),
    "swapped": (
        "def f(a):\n  x = 1\n  y = 2\n  return x - y",
        "def f(a):\n  x = 1\n  y = 2\n  return y - x",
    ),
    "mixed up": (
        "def f(a):\n  x = 1\n  y = 2\n  return x",
        "def f(a):\n  x = 1\n  x = 2\n  return x",
    ),
    "captured": (
        "def f(a):\n  x = a\n  return [a for b in x]",
        "def f(a):\n  x = a\n  return [b for b in x]",
    ),
    "shadowed": ("def f(x): return [x for y in x]", "def f(x): return [y for y in x]"),
    "its own name": (
        "def f(a):\n  x = 1\n  return locals()",
        "def f(a):\n  y = 1\n  return locals()",
    ),
    "comment seen": (
        "import inspect\ndef f(): return inspect.getsource(f)",
        "import inspect\ndef f(): return inspect.getsource(f)  # a",
    ),
    "maybe unbound": (
        "def f(a):\n  if a:\n    x = 1\n  return x",
        "def f(a):\n  if a:\n    y = 1\n  return y",
    ),
    "unbound after a loop": (
        "def f(a):\n  for x in a:\n    pass\n  return x",
        "def f(a):\n  for y in a:\n    pass\n  return y",
    ),
    "unbound in a loop": (
        "def f(a):\n  for i in a:\n    print(x)\n    x = i",
        "def f(a):\n  for i in a:\n    print(y)\n    y = i",
    ),
    "unbound by while": (
        "def f(a):\n  while a:\n    x = a = 0\n  return x",
        "def f(a):\n  while a:\n    y = a = 0\n  return y",
    ),
    "unbound after try": (
        "def f(a):\n  try:\n    x = 1 / a\n  except E:\n    pass\n  return x",
        "def f(a):\n  try:\n    y = 1 / a\n  except E:\n    pass\n  return y",
    ),
    "unbound after with": (
        "def f(a):\n  with a:\n    x = 1\n  return x",
        "def f(a):\n  with a:\n    y = 1\n  return y",
    ),
    "unbound by match": (
        "def f(a):\n  match a:\n    case 1: x = 1\n  return x",
        "def f(a):\n  match a:\n    case 1: y = 1\n  return y",
    ),
    "unbound at first": ("def f(a):\n  x += 1", "def f(a):\n  y += 1"),
    "declared only": ("def f(a):\n  x: int\n  return x", "def f(a):\n  y: int\n  return y"),
    "deleted": (
        "def f(a):\n  x = 1\n  del x\n  return x",
        "def f(a):\n  y = 1\n  del y\n  return y",
    ),
    "unbound in a comprehension": (
        "def f(a): return [1 for y in a for x in x]",
        "def f(a): return [1 for y in a for z in z]",
    ),
    "walrus": ("def f(a):\n  return a and (x := 1)", "def f(a):\n  return a and (y := 1)"),
    "except": (
        "def f(a):\n  try: a()\n  except E as x: return x",
        "def f(a):\n  try: a()\n  except E as y: return y",
    ),
    "import": (
        "def f():\n  import json as x\n  return x",
        "def f():\n  import json as y\n  return y",
    ),
    "pattern": (
        "def f(a):\n  match a:\n    case x: return x",
        "def f(a):\n  match a:\n    case y: return y",
    ),
    "rest": (
        "def f(a):\n  match a:\n    case {**x}: return x",
        "def f(a):\n  match a:\n    case {**y}: return y",
    ),
    "said": ("def f(a):\n  x = 1\n  return f'{x=}'", "def f(a):\n  y = 1\n  return f'{y=}'"),
    "mangled": (
        "class A:\n  def f(self):\n    __x = 1\n    return __x",
        "class A:\n  def f(self):\n    __y = 1\n    return __y",
    ),
    "computed attribute": (
        "def f(a):\n  x = 1\n  return getattr(a, a)()",
        "def f(a):\n  y = 1\n  return getattr(a, a)()",
    ),
    "star import": (
        "from a import *\ndef f():\n  x = 1\n  return x",
        "from a import *\ndef f():\n  y = 1\n  return y",
    ),
    "an alias of exec": (
        "e = exec\ndef f():\n  x = 1\n  return x",
        "e = exec\ndef f():\n  y = 1\n  return y",
    ),
    "frames": (
        "import sys\ndef f():\n  x = 1\n  sys._getframe()",
        "import sys\ndef f():\n  y = 1\n  sys._getframe()",
    ),
    "from inspect": (
        "from inspect import stack as s\ndef f():\n  x = 1",
        "from inspect import stack as s\ndef f():\n  y = 1",
    ),
    "its docstring": ('def f():\n  "a"\n  return f.__doc__', 'def f():\n  "b"\n  return f.__doc__'),
    "a second string": ('def f():\n  "a"\n  "b"', 'def f():\n  "b"\n  b"c"'),
    "default": ("def f(a=1): return a", "def f(a=2): return a"),
    "order": ("def f():\n  a()\n  b()", "def f():\n  b()\n  a()"),
    "async or not": ("async def f(): pass", "def f(): pass"),
}


def same_code(one, other):
    return DuplicateFinder(one).enter("other", other).kind == "original"


@pytest.mark.parametrize("name", SAME)
def test_what_differs_in_nothing_that_can_be_seen_is_the_same(name):
    one, other = SAME[name]
    assert same_code(one, other)
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize("name", OTHER)
def test_what_can_be_seen_is_kept(name):
    one, other = OTHER[name]
    assert not same_code(one, other)
    assert same_code(one, one)


def test_docstrings_are_left_out():
    one = normal_form('"""A."""\nclass B:\n    """C."""\n    def f(self):\n        """D."""')
    assert not {"A.", "C.", "D."} & {*re.findall(r"[ACD]\.", one)}


def test_what_is_no_python_is_only_itself():
    assert same_code("def", "def")
    assert not same_code("def", "def ")
    assert not same_code("a\0", "a")
    with pytest.raises(SyntaxError):
        normal_form("def")
    with pytest.raises(SyntaxError):
        normal_form("a\0")


def test_what_is_nested_too_deep_is_its_own_form():
    deep = "x = " + "-" * 50_000 + "1"
    assert normal_form(deep) == normal_form(deep)
    assert not same_code(deep, deep + " ")


# --- duplicates


def test_the_original_is_skipped_and_a_duplicate_names_the_first():
    register = DuplicateFinder("def f(a):\n    return sorted(a)")
    assert register.enter("one", "def f(a): return sorted(a)  # as it was") == DuplicateStatus(
        "original"
    )
    assert register.enter(
        "two", "def f(a):\n    found = list(a)\n    return found"
    ) == DuplicateStatus("new")
    assert register.enter("three", "def f(a):\n    x = list(a)\n    return x") == DuplicateStatus(
        "duplicate", "two"
    )
    assert register.enter(
        "four", "def f(a):\n    very_long_name = list(a)\n    return very_long_name"
    ) == DuplicateStatus("duplicate", "two")
    assert register.enter("five", "def f(") == DuplicateStatus("new")
    assert register.enter("six", "def f(") == DuplicateStatus("duplicate", "five")
    assert register.source_of("two").text == "def f(a):\n    x = list(a)\n    return x"
    assert register.source_of("one").text.endswith("was")
    with pytest.raises(ValueError, match="already"):
        register.enter("two", "x")


# --- equal forms behave alike


NAMES = ("a", "b", "x", "y", "z", "sum", "len")


class Writer:
    """Writes small functions at random, with names from a small set so that they collide."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def name(self):
        return self.random.choice(NAMES)

    def expression(self, depth=2):
        pick = self.random.randrange(9 if depth else 3)
        inner = lambda: self.expression(depth - 1)  # noqa: E731 - shorter than a def
        return [
            self.name,
            self.name,
            lambda: str(self.random.randrange(3)),
            lambda: f"({inner()} + {inner()})",
            lambda: f"[{inner()} for {self.name()} in range(2)]",
            lambda: f"[{inner()} for {self.name()} in range(2) for {self.name()} in [{inner()}]]",
            lambda: f"(lambda {self.name()}: {inner()})({inner()})",
            lambda: f"f'{{{self.name()}}}'",
            lambda: (
                f"({self.name()} := {inner()})" if self.random.random() < 0.3 else f"[{inner()}]"
            ),
        ][pick]()

    def block(self, depth=2):
        return "\n".join(self.statement(depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth):
        pick = self.random.randrange(10 if depth else 4)
        body = lambda: textwrap.indent(self.block(depth - 1), "  ")  # noqa: E731 - shorter than a def
        return [
            lambda: f"{self.name()} = {self.expression()}",
            lambda: f"{self.name()} = {self.expression()}",
            lambda: f"{self.name()} += {self.expression()}",
            lambda: f"return {self.expression()}",
            lambda: f"for {self.name()} in range(2):\n{body()}",
            lambda: f"if {self.expression()}:\n{body()}\nelse:\n{body()}",
            lambda: f"try:\n{body()}\nexcept NameError as {self.name()}:\n{body()}",
            lambda: f"def {self.name()}():\n{body()}",
            lambda: f"del {self.name()}",
            lambda: f"global {self.name()}" if self.random.random() < 0.2 else "pass",
        ][pick]()

    def function(self):
        body = f"{self.block()}\nreturn {self.expression()}"
        return f"x = 5\ndef f(a, b=1):\n{textwrap.indent(body, '  ')}"


def renamed(source, seed):
    """The same text with names exchanged: sometimes the same code, mostly not."""
    shuffler = random.Random(seed)
    one, other = shuffler.sample((*NAMES[2:], "new"), 2)
    head, body = source.split(":\n", 1)
    words = {one: other, other: one}
    return head + ":\n" + re.sub(r"\b\w+\b", lambda word: words.get(word[0], word[0]), body)


def run(source, argument):
    space = {}
    try:
        exec(source, space)
    except SyntaxError:
        return None
    first = observe("f", space["f"], copy.copy(argument))  # a list may be changed
    again = observe("x", lambda: space.get("x") if not callable(space.get("x")) else None)
    return [first, again]


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([0, 1, [], "a"]))
def test_equal_forms_behave_alike(seed, other, argument):
    source = Writer(seed).function()
    twin = renamed(source, other)
    if same_code(source, twin):
        one, two = run(source, argument), run(twin, argument)
        assert (one is None) == (two is None)
        assert one is None or judge(one, two) == [], (source, twin)


def test_the_property_has_something_to_say():
    """Enough of the random pairs have the same form, and enough of the others behave otherwise."""
    same = different = 0
    for seed in range(150):
        source = Writer(seed).function()
        twin = renamed(source, seed)
        if source == twin:
            continue
        one, two = run(source, 1), run(twin, 1)
        if same_code(source, twin):
            same += 1
        elif one and two and judge(one, two):
            different += 1
    assert same >= 5
    assert different >= 10
