"""Imports of JavaScript and TypeScript that are read without the parser are what it would find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tree_sitter_typescript")

from abreast.jobs.plan.decompose.languages.script_modules import ScriptReader

_PLAIN = (
    "import './styles.css';",
    "import cart from './cart';",
    "import type Cart from '../cart';",
    "import type from './type';",
    "import * as money from './money'\n",
    'import cart, { add, remove as drop } from "./cart";',
    "import cart, * as all from './cart';",
    "import { type Cart, add } from './cart';",
    "import type { Cart,\n  Item } from './cart';",
    "import{add}from'./cart';",
    "import {} from './cart';",
    "'use strict';",
    "// import { a } from './comment'\n",
    "/* import { a } from './comment' */",
)
_OTHERS = (
    "import data from './data.json' with { type: 'json' };",
    "import data from './data.json'\nwith { type: 'json' }\n",
    "import { /* why */ add } from './cart';",
    "import { 'a name' as b } from './cart';",
    "import fs = require('./fs');",
    "export { add } from './cart';",
    "export * from './cart';",
    "export type { Cart } from './cart';",
    "export /* why */ * from './cart';",
    "export { add };",
    "const late = import('./late');",
    "const old = require('./old');",
    "const text = `import { a } from './text'`;",
    "const text = \"import { a } from './text'\";",
)
_CODE = (
    "export const one = 1;",
    "export default function work() { return 'imported'; }",
    "export interface Cart { required: boolean }",
    "export type Name = string;",
    "const pattern = /['\"]/;",
    "class Cart { private items = []; }",
    "// exports and requirements are important\n",
)


def _facts(reader: ScriptReader, source: str, *, whole: bool) -> tuple[object, ...]:
    read = reader.read_whole if whole else reader.read
    found = read("shop/cart.ts", source.encode())
    return sorted(set(found.imports)), found.passed_on, found.stars


@given(
    st.lists(st.sampled_from(_PLAIN), max_size=4),
    st.lists(st.sampled_from(_PLAIN + _OTHERS + _CODE), max_size=4),
    st.sampled_from(["", "\n", "\r\n"]),
)
def test_what_is_read_without_the_parser_is_what_it_finds(
    head: list[str], rest: list[str], between: str
) -> None:
    source = between.join([*head, *rest])
    reader = ScriptReader()
    assert _facts(reader, source, whole=False) == _facts(reader, source, whole=True)


@pytest.mark.parametrize("statement", _PLAIN[:3] + _PLAIN[4:])
def test_plain_imports_before_code_need_no_parser(statement: str) -> None:
    reader = ScriptReader()
    reader.read("shop/cart.ts", "\n".join(["/* Sells. */", statement, _PLAIN[0], *_CODE]).encode())
    assert reader.parsed == 0


@pytest.mark.parametrize("statement", _OTHERS)
def test_what_may_be_an_import_elsewhere_is_parsed(statement: str) -> None:
    reader = ScriptReader()
    reader.read("shop/cart.ts", "\n".join([_PLAIN[1], _CODE[0], statement]).encode())
    assert reader.parsed == 1


@pytest.mark.parametrize("statement", _OTHERS[:2])
def test_attributes_of_an_import_are_not_what_it_imports(statement: str) -> None:
    reader = ScriptReader()
    found = reader.read("shop/cart.ts", f"{statement}\n{_CODE[0]}".encode())
    assert found.imports == [("./data.json", "default")]


def test_an_import_that_comes_again_leads_to_the_same_names() -> None:
    reader = ScriptReader()
    source = b"import cart, { add as plus } from './cart';"
    first, second = (reader.read(path, source).imports for path in ("a/one.ts", "a/two.ts"))
    assert first == second == [("./cart", "add"), ("./cart", "default")]
