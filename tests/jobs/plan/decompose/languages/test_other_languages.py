"""The imports of JavaScript, TypeScript, Go, Rust and Java."""

import pytest

from abreast.jobs.plan.decompose.imports import read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.decompose.languages import syntax
from tests.jobs.plan.repositories import fill


def read(root, files):
    fill(root, files)
    return read_imports(root, take_inventory(root))


SCRIPTS = {
    "package.json": '{"name": "shop"}',
    "tsconfig.json": (
        '{ // comment\n "compilerOptions": {"baseUrl": "./src", '
        '"paths": {"@web/*": ["web/*"], "~cart": ["cart.ts"],},},}'
    ),
    "src/cart.ts": "export class Cart {}\nexport const empty = 1\nexport default 3",
    "src/money.ts": "export interface Cents {}",
    "src/index.ts": (
        "export { Cart, empty as none } from './cart'\nexport * from './money'\n"
        "export * as pages from './web/page'\nimport { x } from './web'\nexport { x as y }\n"
        "export const own = 1"
    ),
    "src/web/index.tsx": "export const x = <div/>",
    "src/web/page.js": "",
    "src/web/style.css": "",
    "libs/a/package.json": '{"name": "@org/a", "main": "dist/index.js"}',
    "libs/a/src/index.ts": "export * from './deep/b.js'",
    "libs/a/src/deep/b.ts": "export function b() {}",
}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import { Cart } from './cart'", ["src/cart.ts"]),
        ("import type { Cart } from './cart.js'", ["src/cart.ts"]),
        ("import cart, { empty } from './cart'", ["src/cart.ts"]),
        ("import './web/page.js'", ["src/web/page.js"]),
        ("import { x } from './web'", ["src/web/index.tsx"]),
        ("import { Cart, own } from '.'", ["src/cart.ts", "src/index.ts"]),
        ("import { none, type Cents } from './index'", ["src/cart.ts", "src/money.ts"]),
        ("import { pages } from './index'", ["src/web/page.js"]),
        ("import { y } from './index'", ["src/web/index.tsx"]),
        ("import { nowhere } from './index'", ["src/index.ts"]),
        ("import * as all from './index'", ["src/index.ts"]),
        ("export { Cart } from './index'", ["src/cart.ts"]),
        ("export * from './index'", ["src/index.ts"]),
        ("const m = require('./money')", ["src/money.ts"]),
        ("import m = require('./money')", ["src/money.ts"]),
        ("async () => { await import('./money') }", ["src/money.ts"]),
        ("import(`./${name}`); other('./money'); x.require", []),
        ("// import './money'\nconst s = `import './cart'`; /import '.'/", []),
        (
            "import './money'\n/*\n import './cart';\n x */\nlet a = 1",
            ["src/money.ts"],
        ),
        (
            "import './money'\nlet a = `${1} x\nimport './cart';\n`\nlet b = `${a}`",
            ["src/money.ts"],
        ),
        ("let cart\n\nexport {\n\n  cart }\nimport(\n\n  './money'\n\n)", ["src/money.ts"]),
        ("import p from '@web/page'", ["src/web/page.js"]),
        ("import { Cart } from '~cart'\nimport 'money'", ["src/cart.ts", "src/money.ts"]),
        ("import { b } from '@org/a'\nimport react from 'react'", ["libs/a/src/deep/b.ts"]),
        ("import { b } from '@org/a/deep/b'", ["libs/a/src/deep/b.ts"]),
        ("import {\n  Cart, // it's\n  empty as e,\n} from 'shop/cart'", ["src/cart.ts"]),
        ("import './web/style.css'; import '../../..'", []),
    ],
)
def test_typescript(tmp_path, code, wanted):
    found = read(tmp_path, {**SCRIPTS, "src/user.ts": code})
    assert list(found.edges.get("src/user.ts", ())) == wanted


def test_javascript_with_tags_and_files_that_pass_on_each_other_s_names(tmp_path):
    found = read(
        tmp_path,
        {
            "a.jsx": "import { one } from './b'; export * from './b'; const x = <a>it's</a>",
            "b.js": "export * from './a.jsx'; export * from './c.cjs'",
            "c.cjs": "export const one = 1",
            "user.mjs": "import { one } from './b'",
            "broken.js": "import { one } from './c.cjs'; function ( {",
        },
    )
    assert found.edges["a.jsx"] == ("b.js", "c.cjs")
    assert found.edges["b.js"] == ("a.jsx", "c.cjs")
    assert found.edges["broken.js"] == ("c.cjs",)
    assert (found.edges["user.mjs"], found.through["user.mjs"]) == (("c.cjs",), ("b.js",))


SHOP, USES = "example.org/shop", "var x = cart.New() + money.Cents"
GO = {
    "go.mod": "module example.org/shop\n\ngo 1.22\n",
    "cart/cart.go": "package cart\n\ntype Cart struct{}\n\nfunc New() Cart { return helper() }\n",
    "cart/help.go": "package cart\n\nvar (\n\tLimit = 3\n\ta, b = 1, 2\n)\nfunc helper() Cart {}\n",
    "cart/cart_test.go": "package cart_test\n\nfunc New() {}\n",
    "money/v2/cents.go": "package money\n\nconst Cents = 1\n",
    "tools/go.mod": "module example.org/tools\n",
    "tools/x/x.go": "package x\n\nfunc Run() {}\n",
}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ('import "example.org/shop/cart"\n\nvar x cart.Cart', ["cart/cart.go"]),
        ('import c "example.org/shop/cart"\n\nvar x = c.Limit', ["cart/help.go"]),
        (
            f'import (\n\t"fmt"\n\n\t"{SHOP}/cart" // it\n\t"{SHOP}/money/v2"\n)\n\n{USES}',
            ["cart/cart.go", "money/v2/cents.go"],
        ),
        ('import . "example.org/shop/cart"\n\nvar x = New()', ["cart/cart.go"]),
        ('import _ "example.org/shop/cart"', ["cart/cart.go"]),
        ('import "example.org/tools/x"\n\nfunc f() { x.Run() }', ["tools/x/x.go"]),
        ('import "example.org/other/cart"\n\nvar x cart.Cart // cart.New', []),
        ('import "example.org/shop/cart"\n\nvar x = "cart.Limit" + cart.New', ["cart/cart.go"]),
    ],
)
def test_go(tmp_path, code, wanted):
    found = read(tmp_path, {**GO, "main.go": f"package main\n\n{code}\n"})
    assert list(found.edges.get("main.go", ())) == wanted
    assert found.edges["cart/cart.go"] == ("cart/help.go",)  # of one package, without an import
    assert found.edges["cart/help.go"] == ("cart/cart.go",)


def test_go_without_a_module_is_found_by_the_path(tmp_path):
    found = read(
        tmp_path,
        {
            "src/example.org/a/a.go": 'package a\n\nimport "example.org/b"\n\nvar x = b.B\n',
            "src/example.org/b/b.go": "package b\n\nvar B = 1\n",
        },
    )
    assert found.edges == {"src/example.org/a/a.go": ("src/example.org/b/b.go",)}


RUST = {
    "Cargo.toml": "[workspace]\nmembers = ['shop', 'other-lib']\n",
    "shop/Cargo.toml": "[package]\nname = 'shop'\n",
    "shop/src/lib.rs": "mod cart;\npub mod web;\npub use cart::Cart;\npub use web::*;\n",
    "shop/src/cart.rs": "pub struct Cart;\nmod part;\npub use self::part::{Part as Piece};\n",
    "shop/src/cart/part.rs": "pub struct Part;\n",
    "shop/src/web/mod.rs": "pub mod page;\npub fn serve() {}\n",
    "shop/src/web/page.rs": "pub fn show() {}\n",
    "other-lib/Cargo.toml": "[package]\nname = 'other-lib'\n",
    "other-lib/src/lib.rs": "cfg! { mod hidden; pub use hidden::Secret; }\n",
    "other-lib/src/hidden.rs": "pub struct Secret;\n",
}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("use crate::cart::Cart;", ["cart.rs"]),
        ("use crate::Cart;", ["cart.rs"]),
        (
            "use crate::{cart::{self, Piece}, web::page::show as s};",
            ["cart.rs", "cart/part.rs", "web/page.rs"],
        ),
        ("use crate::serve;", ["web/mod.rs"]),
        ("use super::page;", ["web/page.rs"]),
        ("use super::super::cart::Cart;", ["cart.rs"]),
        ("use super::*;", ["web/mod.rs"]),
        (
            "fn f() { crate::cart::Piece::new::<super::page::T>(); }",
            ["cart/part.rs", "web/page.rs"],
        ),
        (
            "mod tests { use super::*; use super::super::page; use crate::cart::Cart; }",
            ["cart.rs", "web/page.rs"],
        ),
        ("use std::io; use serde::{Deserialize};", []),
        ('// use crate::cart::Cart;\nconst S: &str = "crate::cart::Cart";', []),
        ("use other_lib::Secret;", ["../../other-lib/src/hidden.rs"]),
    ],
)
def test_rust(tmp_path, code, wanted):
    found = read(tmp_path, {**RUST, "shop/src/web/user.rs": code})
    assert list(found.edges.get("shop/src/web/user.rs", ())) == sorted(
        path.removeprefix("../../") if path.startswith("..") else f"shop/src/{path}"
        for path in wanted
    )


def test_rust_modules_tests_and_examples(tmp_path):
    tests = {
        "shop/tests/all.rs": "mod common;\nuse shop::Cart;",
        "shop/tests/common/mod.rs": "",
        "shop/examples/one.rs": "use shop::web::page::show;",
    }
    found = read(tmp_path, {**RUST, **tests}).edges
    assert found["shop/src/lib.rs"] == ("shop/src/cart.rs", "shop/src/web/mod.rs")
    assert found["shop/src/cart.rs"] == ("shop/src/cart/part.rs",)
    assert found["shop/tests/all.rs"] == ("shop/src/cart.rs", "shop/tests/common/mod.rs")
    assert found["shop/examples/one.rs"] == ("shop/src/web/page.rs",)


JAVA = {
    "main/org/shop/Cart.java": "package org.shop;\npublic class Cart { Money m; }\n",
    "main/org/shop/Money.java": "package org.shop;\nfinal class Money {}\n",
    "main/org/shop/web/Page.java": "package org.shop.web;\n@Deprecated\npublic class Page {}\n",
    "main/org/shop/web/Menu.java": "package org.shop.web;\ninterface Menu {}\n",
    "other/org/shop/Cart.java": "package org.shop;\npublic class Cart {}\n",
}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import org.shop.Cart;", ["Cart"]),
        ("import org.shop.Cart.Inner;", ["Cart"]),
        (
            "import static org.shop.Cart.empty;\nimport static org.shop.web.Page.*;",
            ["Cart", "web/Page"],
        ),
        ("import org.shop.web.*;\nclass User { Page p; /* Menu */ }", ["web/Page"]),
        ("import java.util.List;\nimport org.nowhere.*;", []),
        ('class User { String cart = "Cart Page"; }', []),
    ],
)
def test_java(tmp_path, code, wanted):
    found = read(tmp_path, {**JAVA, "main/org/user/User.java": f"package org.user;\n{code}\n"})
    assert list(found.edges.get("main/org/user/User.java", ())) == [
        f"main/org/shop/{name}.java" for name in wanted
    ]
    assert found.edges["main/org/shop/Cart.java"] == ("main/org/shop/Money.java",)


def test_what_is_not_read_is_said_with_the_command_that_helps(tmp_path, monkeypatch):
    files = {"a.ts": "import './b'", "b.ts": "", "c.js": "", "x.cpp": "", "y.h": "", "z.md": ""}
    found = read(tmp_path, files)
    assert found.edges == {"a.ts": ("b.ts",)}
    assert found.notes == ("imports of 1 .cpp and 1 .h files are not read",)
    monkeypatch.setattr(syntax, "find_spec", lambda name: None)
    missing = read(tmp_path, {})
    assert missing.edges == {}
    assert missing.notes[0].startswith("imports of 2 .ts and 1 .js files are not read: ")
    assert "[plan]'" in missing.notes[0]
