"""What `top_words` promises."""
# ruff: noqa: S101 - tests assert

import pytest
from wordcount import top_words

SENTENCE = "the quick brown fox jumps over the lazy dog and the dog sleeps while the fox runs"


def made_up(count: int) -> str:
    """A text of so many words, some of them more frequent."""
    return " ".join(
        f"{'ab'[at % 2]}{chr(97 + at * at % 23)}{chr(97 + at * 7 % 19)}" for at in range(count)
    )


def test_words_are_counted() -> None:
    assert top_words(SENTENCE, 2) == [("the", 4), ("dog", 2)]


def test_ties_are_in_the_order_of_the_alphabet() -> None:
    assert top_words("b a c a b", 3) == [("a", 2), ("b", 2), ("c", 1)]


def test_case_is_of_no_matter() -> None:
    assert top_words("Fox fox FOX", 5) == [("fox", 3)]


@pytest.mark.parametrize("n", [0, 1, 40])
def test_no_more_than_n(n: int) -> None:
    assert len(top_words(made_up(400), n)) == min(n, len(set(made_up(400).split())))


def test_a_long_text() -> None:
    top = top_words(made_up(900), 10)
    assert [count for _, count in top] == sorted((count for _, count in top), reverse=True)


def test_nothing() -> None:
    assert top_words("", 3) == []
