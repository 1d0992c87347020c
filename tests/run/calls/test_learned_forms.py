"""What models refused is kept on disk, shared in a process, and tried again after a week."""

import json
import logging
from pathlib import Path

import pytest

from abreast.core.errors import RequestRefused
from abreast.run.calls.learned_forms import LearnedForms

REFUSED = RequestRefused(
    "x", status=400, raw=json.dumps({"error": {"message": "temperature is not supported"}})
)
URL = "http://127.0.0.1:1/v1"


def learn(forms: LearnedForms, model: str) -> None:
    body = {"model": model, "temperature": 0, "messages": []}
    assert forms.of(model).learn(REFUSED, body, None, own_tool=True)


def test_a_lesson_is_there_for_the_next_process(tmp_path: Path) -> None:
    forms = LearnedForms("mine", URL, tmp_path)
    assert forms.of("a") is forms.of("a")
    learn(forms, "a")
    forms.of("a").accept({"model": "a"})
    forms.of("a").store()
    again = LearnedForms("mine", URL, tmp_path)
    assert again.of("a").dropped == {"temperature"}
    assert again.of("a").knows({"model": "a"})
    assert not again.of("b").dropped
    assert again.spoken() == "a: without temperature"
    assert not LearnedForms("mine", "http://127.0.0.1:2/v1", tmp_path).spoken()


def test_what_another_process_learned_meanwhile_is_not_lost(tmp_path: Path) -> None:
    one, other = (LearnedForms("mine", URL, tmp_path) for _ in range(2))
    learn(one, "a")
    learn(other, "b")
    assert LearnedForms("mine", URL, tmp_path).spoken() == (
        "a: without temperature; b: without temperature"
    )


def test_a_refusal_is_tried_again_after_a_week(tmp_path: Path) -> None:
    forms = LearnedForms("mine", URL, tmp_path)
    forms.of("a").accept({"model": "a", "max_tokens": 3})
    learn(forms, "a")
    facts = json.loads(forms.path.read_text())
    facts["models"]["a"]["at"] -= 8 * 86_400
    forms.path.write_text(json.dumps(facts))
    later = LearnedForms("mine", URL, tmp_path)
    assert not later.spoken()
    assert later.of("a").knows({"model": "a", "max_tokens": 3})
    assert not later.of("a").knows({"temperature": 0})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1, "models": 3}', '{"version": 1, "models": {"a": {}}}']
)
def test_a_damaged_file_is_not_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = LearnedForms("mine", URL, tmp_path).path
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        forms = LearnedForms("mine", URL, tmp_path)
    assert "is not used" in caplog.text
    learn(forms, "a")
    assert LearnedForms("mine", URL, tmp_path).spoken() == "a: without temperature"


def test_a_place_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    forms = LearnedForms("mine", URL, tmp_path / "file")
    learn(forms, "a")
    assert "can't be kept" in caplog.text
