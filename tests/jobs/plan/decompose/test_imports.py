"""Which file imports which, in every layout that Python allows."""

import pytest

from abreast.jobs.plan.decompose import inventory as inventory_module
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from tests.jobs.plan.repositories import fill


def read(root, files):
    fill(root, files)
    return read_imports(root, take_inventory(root))


def edges(root, files):
    return {path: list(to) for path, to in read(root, files).edges.items()}


PACKAGE = {
    "src/shop/__init__.py": "",
    "src/shop/money.py": "",
    "src/shop/web/__init__.py": "",
    "src/shop/web/page.py": "",
}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("import shop.money", ["src/shop/money.py"]),
        ("import shop.money as m, shop.web", ["src/shop/money.py", "src/shop/web/__init__.py"]),
        ("import shop", ["src/shop/__init__.py"]),
        ("from shop import money", ["src/shop/money.py"]),
        ("from shop import VERSION", ["src/shop/__init__.py"]),
        ("from shop import money, VERSION", ["src/shop/__init__.py", "src/shop/money.py"]),
        ("from shop.money import Cents", ["src/shop/money.py"]),
        ("from shop.money import *", ["src/shop/money.py"]),
        ("from . import page", ["src/shop/web/page.py"]),
        ("from .page import x", ["src/shop/web/page.py"]),
        ("from . import x", ["src/shop/web/__init__.py"]),
        ("from .. import money", ["src/shop/money.py"]),
        ("from ..money import Cents", ["src/shop/money.py"]),
        ("from ..... import x", []),
        ("from .......... import x", []),
        ("import os, shop.nowhere", []),
        ("from nowhere import x", []),
        ("if TYPE_CHECKING:\n    import shop.money", ["src/shop/money.py"]),
        (
            "try:\n    import shop.money\nexcept ImportError:\n    from . import page",
            ["src/shop/money.py", "src/shop/web/page.py"],
        ),
        ("def f():\n    class A:\n        import shop.money", ["src/shop/money.py"]),
        ("match 1:\n    case 1:\n        import shop.money", ["src/shop/money.py"]),
        ("for x in y:\n    pass\nelse:\n    import shop.money", ["src/shop/money.py"]),
        ("from .here import me", []),
        ("x = 'import shop.money'", []),
        ("x = 1", []),
    ],
)
def test_every_way_to_import(tmp_path, line, wanted):
    assert (
        edges(tmp_path, {**PACKAGE, "src/shop/web/here.py": line}).get("src/shop/web/here.py", [])
        == wanted
    )


SHOP = {
    "shop/__init__.py": (
        "from shop.cart import Cart, Cart as Basket\n"
        "from .parts import *\n"
        "from .web import page as start, render\n"
        "from elsewhere import Other\n"
        "VERSION = 1\n"
    ),
    "shop/cart.py": "from shop.money import Cents\nclass Cart:\n    pass\n",
    "shop/money.py": "class Cents:\n    pass\n",
    "shop/parts/__init__.py": "from .screw import *\nfrom .nail import *\nfrom .glue import *\n",
    "shop/parts/screw.py": "__all__ = ['Screw', 'both']\nclass Screw: pass\nclass Hidden: pass\n",
    "shop/parts/nail.py": "if 1:\n    def nail(): pass\nelse:\n    nail = 2\nboth, _own = 1, 2\n",
    "shop/parts/glue.py": "import os\nx = dict(\n    inner=1,\n)\ndef f():\n    deep = 1\n",
    "shop/web/__init__.py": "from shop.web.page import render\nfrom shop import web\n",
    "shop/web/page.py": "def render(): pass\n",
}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("from shop import Cart", ["cart.py"]),
        ("from shop import Basket as B", ["cart.py"]),
        ("from shop.cart import Cents", ["cart.py"]),  # which imports it for itself
        ("from shop import VERSION, Other, nowhere", ["__init__.py"]),
        ("from shop import Screw, nail", ["parts/nail.py", "parts/screw.py"]),
        ("from shop import both", ["parts/nail.py"]),  # the last one has it
        ("from shop import Hidden, _own", ["__init__.py"]),
        ("from shop.parts import inner", ["parts/__init__.py"]),
        ("from shop.parts import deep", ["parts/__init__.py"]),
        ("from shop import start, render", ["web/page.py"]),
        ("from shop import web", ["web/__init__.py"]),
        ("from shop import web\nweb.render()", ["web/page.py"]),
        ("from shop import *", ["__init__.py"]),
        ("import shop", ["__init__.py"]),
        ("import shop\nshop.Cart()", ["cart.py"]),
        (
            "import shop as s\nprint(s.Cart, s.web.page.render.x, t.nail)",
            ["cart.py", "web/page.py"],
        ),
        ("import shop\nshop.VERSION, shop.nail", ["__init__.py", "parts/nail.py"]),
        ("import shop\n'shop.Cart'  # shop.nail\nmy_shop.nail, my.shop.nail", ["__init__.py"]),
        ("import shop.web\nshop.Cart, shop.web.render", ["cart.py", "web/page.py"]),
        ("import shop.web\nshop.Cart", ["cart.py", "web/__init__.py"]),
        ("import shop.web as w\nw.render()", ["web/page.py"]),
    ],
)
def test_an_import_leads_to_the_file_that_defines_the_name(tmp_path, code, wanted):
    found = edges(tmp_path, {**SHOP, "user.py": code})
    assert found["user.py"] == [f"shop/{path}" for path in wanted]


def test_modules_that_import_all_of_each_other_have_an_end(tmp_path):
    found = read(
        tmp_path,
        {
            "p/__init__.py": "from p.a import *\nfrom p import same",
            "p/a/__init__.py": "from p.b import *\nfrom p import *\none = 1",
            "p/b/__init__.py": "from p.a import *\ntwo = 2",
            "user.py": "from p import one, two, same",
        },
    )
    assert found.edges["user.py"] == (
        "p/__init__.py",
        "p/a/__init__.py",
        "p/b/__init__.py",
    )


def test_what_an_import_passes_through_is_known(tmp_path):
    code = "import shop\nfrom shop.web import page\nshop.Cart"
    found = read(tmp_path, {**SHOP, "user.py": code})
    assert found.through["user.py"] == ("shop/__init__.py",)


def test_packages_need_no_init_and_no_src(tmp_path):
    found = edges(
        tmp_path,
        {
            "ns/one/a.py": "import ns.two.b\nfrom ns.two import c",
            "ns/two/b.py": "",
            "ns/two/c/__init__.py": "",
        },
    )
    assert found == {"ns/one/a.py": ["ns/two/b.py", "ns/two/c/__init__.py"]}


def test_tests_find_the_package_in_src_and_scripts_what_is_beside_them(tmp_path):
    found = edges(
        tmp_path,
        {
            **PACKAGE,
            "tests/test_money.py": "import shop.money\nimport helper",
            "tests/helper.py": "",
            "scripts/run.py": "import helper\nimport json",
            "scripts/helper.py": "",
            "other/json.py": "",
        },
    )
    assert found == {
        "tests/test_money.py": ["src/shop/money.py", "tests/helper.py"],
        "scripts/run.py": ["scripts/helper.py"],
    }


def test_of_two_packages_of_one_name_the_nearest_is_meant(tmp_path):
    found = edges(
        tmp_path,
        {
            f"services/{name}/{path}": text
            for name in ("a", "b")
            for path, text in {
                "app/__init__.py": "",
                "app/db.py": "",
                "app/main.py": "from app import db",
            }.items()
        },
    )
    assert found == {
        f"services/{name}/app/main.py": [f"services/{name}/app/db.py"] for name in ("a", "b")
    }


def test_stubs_are_python_too_and_a_module_comes_before_its_stub(tmp_path):
    found = edges(
        tmp_path, {"a.pyi": "import b", "b.py": "", "b.pyi": "", "c.py": "import d", "d.pyi": ""}
    )
    assert found == {"a.pyi": ["b.py"], "c.py": ["d.pyi"]}


def test_a_root_that_is_a_package_is_known_by_the_name_it_is_imported_by(tmp_path):
    files = {
        "__init__.py": "from pkg.a import x",
        "a.py": "import pkg.sub.b\nimport other.a",
        "sub/b.py": "import pkg",
    }
    assert edges(tmp_path / "copy-1", files) == {
        "__init__.py": ["a.py"],
        "a.py": ["sub/b.py"],
        "sub/b.py": ["__init__.py"],
    }
    assert edges(
        tmp_path / "copy-2", {"__init__.py": "import os", "a.py": "from . import b", "b.py": ""}
    ) == {"a.py": ["b.py"]}


def test_what_can_t_be_read_is_said_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory_module, "HUGE", 1_000)
    found = read(
        tmp_path,
        {
            "good.py": "import bad",
            "bad.py": "import good\ndef (:",
            "old.py": "import good\nprint 'x'",
            "nul.py": "import good\0",
            "encoding.py": b"# -*- coding: nonsense -*-\nimport good",
            "latin.py": b"# -*- coding: latin-1 -*-\n'\xe4'\nimport good",
            "escape.py": "import good\n'\\d'",
            "huge.py": "import good\n" * 100,
            "deep.py": "import good\nx = " + "-" * 900 + "1",
        },
    )
    assert {path for path, _ in found.unread} >= {
        "bad.py",
        "old.py",
        "nul.py",
        "encoding.py",
        "huge.py",
    }
    assert dict(found.edges).keys() >= {"good.py", "latin.py", "escape.py"}
    assert any(
        note.startswith("the imports of bad.py can't be read: line 2") for note in found.notes
    )


def test_a_file_that_is_gone_by_now_is_said(tmp_path):
    fill(tmp_path, {"a.py": "import b", "b.py": "import a"})
    inventory = take_inventory(tmp_path)
    (tmp_path / "b.py").unlink()
    found = read_imports(tmp_path, inventory)
    assert [path for path, _ in found.unread] == ["b.py"]
    assert found.edges == {"a.py": ("b.py",)}


def test_edges_are_sorted_each_once_and_never_to_itself():
    assert Imports.of({"b": ["c", "a", "c", "b"], "a": ["a"]}).edges == {"b": ("a", "c")}
