"""The scanner finds what the parser finds, and parses next to nothing."""

import asyncio
import email
import importlib
from pathlib import Path

import click
import pytest

import abreast.run
from abreast.jobs.plan.decompose.import_scanner import ImportScanner, parse_imports

REAL = [
    Path(one.__file__).parent for one in (abreast.run, asyncio, click, email, importlib, pytest)
]


def plain(statements):
    return sorted(map(repr, statements))


@pytest.mark.parametrize(
    "source",
    [
        "import os; import sys\nfrom a import b; import c",
        "if x: import a\nelse: from b import c",
        "class A: import a",
        "try: import a\nexcept ImportError: import b; import c",
        "from a import (\n    b,  # import x\n    c as d,\n)\nx = 1",
        "from a import (b,\n c); import d",
        "from a \\\n    import b, \\\n    c\nimport \\\n d",
        "from . import(a)\nfrom.b import c\nfrom ...d.e import*",
        "def f():\n\tfrom a import b\n\timport c.d as e\n",
        "'''\nimport a\n'''\nimport b\n\"\"\"\nfrom c import d\n\"\"\"",
        'r"\\\\"; import a\nb = \'"""\'; import c\n# """\nimport d',
        "x = '\\\nimport a'\nimport b",
        "x = 1  # it's\nimport a  # from b import c",
        "def g():\n    x = yield (\n        from_import)\n    import a",
        "x = (yield_\n     if y else z)\nraise A(\n) \\\n    from b\nimport c",
        "__import__('a')\nimportlib.import_module('b')\nimport c",
        "import a\r\nfrom b import c\r\n",
        "import a\rimport b",
        "\ufeffimport a",
        "import größe, 变量.b",
        "# -*- coding: utf-8 -*-\nimport a",
        "lambda: 0; import a",
        "x: int = 3; import a\ny = {1: 2}; import b",
        "print('import a'); import b",
        "s = f'{x!r:>{width}} {\"import a\"}'; import b",
        "except_ = 1\nprint (1)\nimport a",
        "match x:\n    case 1: import a",
        "import a\nx = '('\n# )))",
        "\x0cimport a",
    ],
)
def test_it_finds_what_the_parser_finds(source):
    assert plain(ImportScanner().read(source.encode())) == plain(parse_imports(source.encode()))


@pytest.mark.parametrize(
    "source",
    [
        b"import a\ndef f(:",
        b"import a\nprint 'x'",
        b"import a\ntry: pass\nexcept A, b: pass",
        b"import a b",
        b"import import",
        b"import a.as",
        b"import 1a",
        b"from a import in",
        b"from a import b,",
        b"from a import (b,,)",
        b"from a import b as as",
        b"from .. import *, a",
        b"from 1 import a",
        b"import",
        b"import a\0",
        b"import a\nx = '\nimport b",
        b"x import a",
        b"# coding: nonsense\nimport a",
        b"import \xff",
    ],
)
def test_a_file_that_breaks_where_it_looks_raises_what_the_parser_does(source):
    with pytest.raises((SyntaxError, ValueError)):
        parse_imports(source)
    with pytest.raises((SyntaxError, ValueError)):
        ImportScanner().read(source)


def test_in_real_packages_it_finds_the_same_and_parses_less_than_a_twentieth():
    scanner, size = ImportScanner(), 0
    for path in sorted(path for place in REAL for path in place.rglob("*.py")):
        source = path.read_bytes()
        size += len(source)
        assert plain(scanner.read(source)) == plain(parse_imports(source)), path
    assert size > 1_000_000
    assert scanner.parsed_bytes < size / 20
