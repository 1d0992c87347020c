import asyncio

import pytest
from original import lengths


@pytest.mark.parametrize("texts", [[], ["a", "", "bcd"], ["xy"]])
def test_few(texts):
    assert asyncio.run(lengths(texts)) == [len(text) for text in texts]


def test_many():
    assert asyncio.run(lengths(["abc" * n for n in range(12)])) == [3 * n for n in range(12)]
