"""Checks after a merge: a fault that two changes cause together is found, and both are named."""

import itertools
import sys

import pytest

from abreast.executors.commands import Commands
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.work.checks import CheckedMerge, MergeCheck, affected_tests, check_imports
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.plan.work.import_gate import ImportGate, blame, importers
from abreast.worktrees.merge.merge import merge
from abreast.worktrees.pool import open_worktrees
from tests.jobs.plan.repositories import Bench, fill

CHECK = """
import runpy, sys
sys.path.insert(0, "")
for test in sys.argv[1:]:
    for name, thing in runpy.run_path(test).items():
        if name.startswith("test_"):
            thing()
"""
SHOP = {
    "check.py": CHECK,
    "shop/__init__.py": "",
    "shop/money.py": "def total(prices):\n    return sum(prices)\n",
    "shop/cart.py": (
        "from shop.money import total\n\n\ndef pay(prices):\n    return total(prices)\n"
    ),
    "shop/words.py": "from . import money\n\nNAME = 'shop'\n",
    "tests/test_cart.py": (
        "from shop.cart import pay\n\n\ndef test_pay():\n    assert pay([1, 2]) == 3\n"
    ),
    "tests/test_words.py": (
        "from shop.words import NAME\n\n\ndef test_name():\n    assert NAME == 'shop'\n"
    ),
}


def whole_of(bench):
    source = bench.snapshots.take(bench.root)

    def merge_some(changes):
        return merge(bench.snapshots, source, changes)

    imports = read_imports(bench.root, take_inventory(bench.root))
    return CheckedMerge(
        merge_some(bench.changes), bench.changes, merge_some, imports, bench.snapshots
    )


def rename(work):
    """One renames a function, and all that call it as far as it can see."""
    fill(work, {"shop/money.py": "def sum_up(prices):\n    return sum(prices)\n"})
    fill(work, {"shop/cart.py": SHOP["shop/cart.py"].replace("total", "sum_up")})


def call(work):
    """The other calls it, by the name that it had."""
    fill(
        work,
        {"shop/words.py": "from shop.money import total\n\nNAME = 'shop'\nNOTHING = total([])\n"},
    )


async def test_a_clean_merge_that_breaks_an_import_is_caught_and_names_the_pair(tmp_path):
    bench = Bench(tmp_path, SHOP)
    bench.subplan("quiet", lambda work: fill(work, {"shop/__init__.py": "# nothing\n"}))
    bench.subplan("renames", rename)
    bench.subplan(
        "silent",
        lambda work: fill(work, {"tests/test_words.py": SHOP["tests/test_words.py"] + "\n"}),
    )
    bench.subplan("calls", call)
    whole = whole_of(bench)
    assert whole.merged.blocked == ()  # as text, all is well
    (found,) = (await check_imports(whole)).faults
    assert found.leaves == ("renames", "calls")
    assert str(found) == (
        "shop/words.py: imports total from shop.money, which doesn't have it, "
        "by renames and calls together; none of them does it alone"
    )


async def test_one_alone_is_blamed_alone(tmp_path):
    bench = Bench(tmp_path, SHOP)
    bench.subplan("good", lambda work: fill(work, {"shop/words.py": "NAME = 'shop'\n"}))
    bench.subplan("bad", lambda work: (work / "shop/money.py").unlink())
    found = (await check_imports(whole_of(bench))).faults
    assert [(str(each.fault), each.leaves) for each in found] == [
        ("shop/cart.py: imports shop.money, which is not there", ("bad",))
    ]


async def test_what_does_not_compile_is_a_fault(tmp_path):
    bench = Bench(tmp_path, {**SHOP, "shop/broken.py": "def (\n"})
    bench.subplan(
        "bad", lambda work: fill(work, {"shop/cart.py": "return 1\n", "shop/broken.py": "def (:\n"})
    )
    found = (await check_imports(whole_of(bench))).faults
    assert str(found[0].fault).startswith("shop/cart.py: does not compile ('return' outside")
    assert all(each.fault.path != "shop/broken.py" for each in found)  # it was so before


async def test_a_fault_with_what_changed_in_the_tree_itself_names_the_tree(tmp_path):
    bench = Bench(tmp_path, SHOP)
    bench.subplan("calls", call)
    rename(bench.root)
    fill(bench.root, {"shop/words.py": SHOP["shop/words.py"]})
    (found,) = (await check_imports(whole_of(bench))).faults
    assert found.leaves == ("source", "calls")


async def test_what_is_no_fault_is_not_reported(tmp_path):
    files = {
        "pkg/__init__.py": "from .one import *\nfrom outside import *\n",
        "pkg/one.py": "__all__ = ['a']\na = 1\nb = 2\n",
        "pkg/lazy.py": "def __getattr__(name):\n    return name\n",
        "pkg/made.py": "for n in 'ab':\n    globals()[n] = 1\n",
        "pkg/stars.py": "from .one import *\n",
        "pkg/fast.pyx": "",
        "pkg/_native.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
        "pkg/space/deep.py": (
            "if 1:\n    (x, [y, *z]) = 1, [2]\nelse:\n    w: int = 1\nwith open('f') as f: pass\n"
        ),
    }
    bench = Bench(tmp_path, files)
    text = """
import json, pkg.space.deep, numpy.linalg
import pkg._native
from pkg import one, c, fast
from pkg.fast import quick
from pkg._native import native
from pkg.lazy import anything
from pkg.made import a
from pkg.stars import a
from pkg.space import deep
from pkg.space.deep import x, y, z, w, f, __name__
try:
    from pkg.gone import thing
except ImportError:
    thing = None
"""
    bench.subplan("uses", lambda work: fill(work, {"pkg/uses.py": text}))
    assert (await check_imports(whole_of(bench))).faults == ()
    bench.subplan(
        "wrong",
        lambda work: fill(work, {"pkg/wrong.py": "from .stars import b\nfrom .space import no\n"}),
    )
    wrong = [str(each.fault) for each in (await check_imports(whole_of(bench))).faults]
    assert wrong == [
        "pkg/wrong.py: imports b from .stars, which doesn't have it",
        "pkg/wrong.py: imports no from .space, which doesn't have it",
    ]


def test_our_own_files_have_no_fault(pytestconfig):
    """Imports of this repository resolve, so none may be reported."""
    from abreast.jobs.plan.decompose.languages.python_modules import Modules
    from abreast.jobs.plan.decompose.module_facts import ModuleFacts, read_module

    root = pytestconfig.rootpath
    files = {
        path.relative_to(root).as_posix(): path for path in (root / "src/abreast").rglob("*.py")
    }
    modules = {name: read_module(path.read_bytes()) for name, path in files.items()}
    facts = ModuleFacts(Modules(sorted(files)), modules.__getitem__)
    assert [
        (name, text) for name in sorted(files) for text in facts.unresolved(name, modules[name])
    ] == []


@pytest.mark.parametrize("guilty", [(), (3,), (0, 7), (6, 7), (0, 1), (1, 4, 6)])
async def test_blame_finds_the_least_that_breaks_it_in_few_questions(guilty):
    asked = []

    async def breaks(some):
        asked.append(tuple(some))
        assert list(some) == sorted(some)  # in the order of the plan
        return set(guilty) <= set(some)

    assert await blame(range(8), breaks) == guilty
    assert len(asked) <= 4 * (len(guilty) + 1)


def test_importers_are_found_near_and_far():
    imports = Imports.of({"b": ["a"], "c": ["b"], "d": ["c"], "x": ["y"]})
    assert importers(imports, ["a"]) == {"a", "b"}
    assert importers(imports, ["a"], all_of_them=True) == {"a", "b", "c", "d"}
    passed_on = Imports({"b": ("a",)}, through={"b": ("__init__",)})
    assert importers(passed_on, ["__init__"]) == {"__init__", "b"}


def test_the_same_tree_has_the_same_faults_whatever_was_looked_at_before(tmp_path):
    bench = Bench(tmp_path, SHOP)
    trees = [bench.base, bench.subplan("a", rename).result, bench.subplan("b", call).result]
    wanted = {tree: ImportGate(bench.snapshots).faults(tree, SHOP) for tree in trees}
    for order in itertools.permutations(trees):
        gate = ImportGate(bench.snapshots)
        assert {tree: gate.faults(tree, SHOP) for tree in order} == wanted


async def checked(bench, command):
    async with (
        open_worktrees(bench.root, 1, cache=bench.place / "cache") as trees,
        Commands() as commands,
    ):
        return await MergeCheck(command, trees.slots[0], Processes(commands)).look(whole_of(bench))


RUN = f"{sys.executable} -S check.py {{tests}}"


async def test_a_check_that_fails_only_on_the_merge_names_the_pair(tmp_path):
    bench = Bench(tmp_path, SHOP)
    bench.subplan("other", lambda work: fill(work, {"shop/words.py": "NAME = 'shop'\n"}))
    taxed = "TAX = 1\n\n\ndef total(prices):\n    return sum(prices)\n"
    bench.subplan("taxes", lambda work: fill(work, {"shop/money.py": taxed}))
    asks = (
        "from shop import money\n\n\ndef pay(prices):\n"
        "    return money.total(prices) + getattr(money, 'TAX', 0)\n"
    )
    bench.subplan("asks", lambda work: fill(work, {"shop/cart.py": asks}))
    whole = whole_of(bench)
    assert affected_tests(whole) == ("tests/test_cart.py", "tests/test_words.py")
    assert (await check_imports(whole)).faults == ()
    (found,) = (await checked(bench, RUN)).faults
    assert found.leaves == ("taxes", "asks")
    assert "tests/test_cart.py" in str(found)
    assert "exit code 1" in str(found)


async def test_a_check_that_failed_before_is_nobodys_fault(tmp_path):
    bench = Bench(
        tmp_path,
        {
            **SHOP,
            "tests/test_words.py": (
                "from shop.words import NAME\n\n\ndef test_name():\n    assert NAME == 'no'\n"
            ),
        },
    )
    bench.subplan("one", lambda work: fill(work, {"shop/words.py": "NAME = 'shops'\n"}))
    looked = await checked(bench, RUN)
    assert looked.faults == ()
    assert "failed before" in looked.notes[0]


async def test_a_check_without_tests_is_one_thing_and_one_that_nothing_concerns_is_not_run(
    tmp_path,
):
    bench = Bench(tmp_path, {**SHOP, "README": "text\n"})
    bench.subplan("one", lambda work: fill(work, {"README": "texts\n"}))
    assert (await checked(bench, "exit 1; {tests}")).notes == (
        "no test imports what was changed: the check was not run",
    )
    (found,) = (await checked(bench, "grep -qx text README")).faults
    assert found.leaves == ("one",)
    assert (await checked(bench, "grep -qx texts README")).faults == ()
