"""Which file a test is a test of."""

import pytest

from abreast.jobs.plan.decompose.tested_files import sources_of_tests


@pytest.mark.parametrize(
    ("test", "source"),
    [
        ("shop/test_cart.py", "shop/cart.py"),
        ("shop/tests/test_cart.py", "shop/cart.py"),
        ("tests/shop/test_cart.py", "src/shop/cart.py"),
        ("tests/test_cart.py", "shop/cart.py"),
        ("tests/pay/test_cart.py", "src/shop/pay/cart.py"),
        ("shop/cart_test.go", "shop/cart.go"),
        ("shop/cart.test.ts", "shop/cart.ts"),
        ("src/__tests__/cart.spec.ts", "src/cart.ts"),
        ("tests/cart.rs", "src/cart.rs"),
        ("src/test/java/shop/CartTest.java", "src/main/java/shop/Cart.java"),
    ],
)
def test_by_name(test, source):
    assert sources_of_tests([test, source, "other/cart.md"], {}) == {test: source}


def test_the_nearest_of_a_name_is_the_source_and_a_far_one_is_none():
    paths = ["a/util.py", "a/tests/test_util.py", "b/util.py", "b/tests/test_util.py"]
    assert sources_of_tests(paths, {}) == {
        "a/tests/test_util.py": "a/util.py",
        "b/tests/test_util.py": "b/util.py",
    }
    assert sources_of_tests(["a/b/c/d/util.py", "x/tests/test_util.py"], {}) == {}


def test_without_a_file_of_its_name_it_is_what_it_imports_and_few_others_do():
    paths = ["a/cart.py", "a/money.py", "a/mail.py", "a/tests/test_flow.py", "a/tests/helpers.py"]
    edges = {
        "a/tests/test_flow.py": ["a/cart.py", "a/money.py", "a/tests/helpers.py"],
        "a/cart.py": ["a/money.py"],
        "a/mail.py": ["a/money.py"],
    }
    assert sources_of_tests(paths, edges)["a/tests/test_flow.py"] == "a/cart.py"


def test_what_supports_tests_is_no_test():
    paths = ["a/tests/__init__.py", "a/tests/conftest.py", "a/__init__.py", "a/conftest.py"]
    assert sources_of_tests(paths, {}) == {}
