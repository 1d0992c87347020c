"""Which file a test tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.decompose.tested_files import is_test, sources_of_tests


@pytest.mark.parametrize(
    ("test", "source", "others"),
    [
        ("tests/test_cart.py", "src/shop/cart.py", []),
        ("shop/tests/test_cart.py", "shop/cart.py", ["web/cart.py"]),
        ("tests/web/test_cart.py", "src/shop/web/cart.py", ["src/shop/cart.py"]),
        ("shop/cart_test.py", "shop/cart.py", ["cart.py"]),
        ("tests/test_cart_when_empty.py", "shop/cart.py", ["shop/empty.py"]),
        ("tests/test_shop.py", "src/shop/__init__.py", ["src/shop/cart.py"]),
        ("tests/test_cart.py", "shop/_cart.py", []),
        ("src/cart.test.ts", "src/cart.ts", ["src/cart.css"]),
        ("src/__tests__/cart.tsx", "src/cart.tsx", []),
        ("packages/a/test/cart.spec.js", "packages/a/src/cart.ts", ["packages/b/src/cart.ts"]),
        ("shop/cart_test.go", "shop/cart.go", []),
        ("tests/cart.rs", "src/cart.rs", []),
        ("src/cart/tests.rs", "src/cart/mod.rs", ["src/lib.rs"]),
        ("src/test/java/org/shop/CartTest.java", "src/main/java/org/shop/Cart.java", []),
        ("a/spec/cart_spec.rb", "a/lib/cart.rb", ["b/lib/cart.rb"]),
    ],
)
def test_by_name_the_nearest(test, source, others):
    assert sources_of_tests([*others, test, source], {}) == {test: source}


def test_by_import_the_nearest_then_the_one_with_the_fewest_importers():
    paths = ["tests/test_all.py", "shop/cart.py", "shop/money.py", "tests/helper.py", "a.py"]
    edges = {
        "tests/test_all.py": ["shop/cart.py", "shop/money.py", "tests/helper.py"],
        "a.py": ["shop/cart.py"],
    }
    assert sources_of_tests(paths, edges) == {"tests/test_all.py": "shop/money.py"}


def test_of_files_of_one_name_the_imported_one_is_meant():
    paths = ["tests/test_cart.py", "a/deep/in/it/cart.py", "cart.py"]
    edges = {"tests/test_cart.py": ["a/deep/in/it/cart.py"]}
    assert sources_of_tests(paths, edges) == {"tests/test_cart.py": "a/deep/in/it/cart.py"}


def test_no_source_is_better_than_any():
    far = [f"{name}/b/c/d/cart.py" for name in "xyz"]
    assert sources_of_tests(["tests/test_cart.py", "tests/test_none.py", *far], {}) == {}
    many = {"tests/test_none.py": [*far, "x/b/c/e.py"]}
    assert sources_of_tests(["tests/test_none.py", *far, "x/b/c/e.py"], many) == {}


def test_what_many_tests_import_is_a_tool_and_tested_only_by_one_of_its_name():
    tests = [f"tests/a{number}/tests.py" for number in range(11)]
    edges = {path: ["web/testing.py"] for path in tests}
    paths = [*tests, "web/testing.py", "web/test_testing.py"]
    assert sources_of_tests(paths, edges) == {"web/test_testing.py": "web/testing.py"}
    few = dict([*edges.items()][:10])
    assert len(sources_of_tests(paths, few)) == 11


def test_what_is_no_test():
    for path in ("tests/__init__.py", "tests/conftest.py", "tests/data/x.json", "test.py"):
        assert not is_test(path)
    for path in ("contest.py", "latest.go", "tests/fixtures/a.js", "Fastest.java", "tests/util.rs"):
        assert not is_test(path)


NAMES = st.sampled_from(["a", "test", "tests", "test_a", "a_test", "ATest", "src", "__init__", "b"])
PATHS = st.builds(
    lambda folders, name, ending: "/".join([*folders, f"{name}.{ending}"]),
    st.lists(NAMES, max_size=3),
    NAMES,
    st.sampled_from(["py", "js", "rs", "java", "txt"]),
)


@given(st.data(), st.lists(PATHS, max_size=12, unique=True))
def test_in_any_order_the_same_and_a_source_is_never_a_test(data, paths):
    some = st.lists(st.sampled_from(paths), max_size=4) if paths else st.just([])
    edges = {path: data.draw(some) for path in paths}
    found = sources_of_tests(paths, edges)
    assert all(is_test(test) and not is_test(source) for test, source in found.items())
    assert set(found) | set(found.values()) <= set(paths)
    turned = {path: edges[path][::-1] for path in reversed(paths)}
    assert sources_of_tests(reversed(paths), turned) == found
