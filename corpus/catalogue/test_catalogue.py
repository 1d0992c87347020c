import pytest
from original import Catalogue


@pytest.fixture
def catalogue():
    return Catalogue([f"w{n * 7919 % 997}" for n in range(300)])


class TestSearch:
    def test_nothing(self, catalogue):
        assert catalogue.search("x") == []

    def test_some(self):
        assert Catalogue(["b", "ba", "a", "b"]).search("b") == ["b", "ba"]

    def test_all(self, catalogue):
        assert len(catalogue.search("w")) == len(set(catalogue.words))
