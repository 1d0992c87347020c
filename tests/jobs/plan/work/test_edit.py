"""A model edits the files of a subplan: whole files, only its own, that compile.

What breaks a rule is told to it.
"""

import os
import re

import pytest

from abreast.jobs.plan.errors import EditRefused
from abreast.jobs.plan.work.assignment import Assignment, PartRequest
from abreast.jobs.plan.work.edit import EditTask
from abreast.jobs.plan.work.ownership import Ownership
from abreast.models.port import Reply, Request
from abreast.testing import ScriptedModel
from tests.jobs.plan.repositories import fill

FILES = {"a/one.py": "x = 1\n", "a/two.py": "y = 2\n", "b/other.py": "z = 3\n"}
OWNERS = Ownership({"a": ("a/one.py", "a/two.py"), "b": ("b/other.py",)})


def mark_of(request):
    return re.search(r"=== (\w+) FILE path", request.system)[1]


def block(request, path, content):
    return f"=== {mark_of(request)} FILE {path}\n{content}=== {mark_of(request)} END\n"


async def edited(place, *replies, files=None, own=("a/one.py", "a/two.py"), repairs=0):
    """The result of a task whose model gives `replies`: texts or functions of the request."""
    fill(place, files or FILES)
    said = iter(replies)

    def say(request):
        reply = next(said)
        return reply(request) if callable(reply) else reply

    model = ScriptedModel(say)
    task = EditTask(model, OWNERS, repairs=repairs)
    return await task(Assignment("a", "a/", own, "Do it.", place)), model


async def test_whole_files_are_written_and_the_others_left(tmp_path):
    result, model = await edited(
        tmp_path, lambda asked: "Sure!\n" + block(asked, "a/one.py", "x = 10\nw = 0\n")
    )
    assert result["written"] == ["a/one.py"]
    assert (tmp_path / "a/one.py").read_text() == "x = 10\nw = 0\n"
    assert (tmp_path / "a/two.py").read_text() == "y = 2\n"
    (asked,) = model.calls
    prompt = asked.messages[0].content
    assert prompt.startswith("Do it.")
    assert "x = 1\n" in prompt
    assert "z = 3" not in prompt  # a file of another subplan is not shown


async def test_a_reply_has_a_bound_with_room_for_all_files_that_are_shown(tmp_path):
    (asked,) = (await edited(tmp_path / "small", "NOTHING TO CHANGE"))[1].calls
    assert asked.max_tokens == 8_192
    large = "# a line of the file\n" * 6_000
    files = {**FILES, "a/one.py": large}
    (asked,) = (await edited(tmp_path / "large", "NOTHING TO CHANGE", files=files))[1].calls
    assert len(large) / 3 < asked.max_tokens < len(large)


async def test_a_bound_that_is_given_stays(tmp_path):
    fill(tmp_path, FILES)
    model = ScriptedModel(lambda _: "NOTHING TO CHANGE")
    task = EditTask(model, OWNERS, request=Request((), temperature=0.5, max_tokens=77))
    await task(Assignment("a", "a/", ("a/one.py",), "Do it.", tmp_path))
    assert [(asked.max_tokens, asked.temperature) for asked in model.calls] == [(77, 0.5)]


async def test_a_file_may_be_made_beside_them_or_deleted(tmp_path):
    def say(asked):
        return block(asked, "a/deep/new.py", "n = 0\n") + f"=== {mark_of(asked)} DELETE a/two.py\n"

    result, _ = await edited(tmp_path, say)
    assert result["written"] == ["a/deep/new.py", "a/two.py"]
    assert (tmp_path / "a/deep/new.py").read_text() == "n = 0\n"
    assert not (tmp_path / "a/two.py").exists()


async def test_nothing_to_change_is_an_answer(tmp_path):
    assert (await edited(tmp_path, "NOTHING TO CHANGE"))[0]["written"] == []


@pytest.mark.parametrize(
    ("say", "fault"),
    [
        (lambda asked: block(asked, "b/other.py", "z = 0\n"), "b/other.py is not among the files"),
        (lambda asked: block(asked, "../out.py", "z = 0\n"), "../out.py is not among the files"),
        (lambda asked: block(asked, "b/new.py", "z = 0\n"), "b/new.py is not among the files"),
        (lambda asked: block(asked, "a/one.py", "x = (\n"), "a/one.py does not compile: line 1"),
        (lambda asked: block(asked, "a/one.py", "x = 1\n") * 2, "a/one.py comes twice"),
        (
            lambda asked: block(asked, "a/one.py", "x = 5\n").rpartition("===")[0],
            "a/one.py has no end",
        ),
        (
            lambda asked: f"=== {mark_of(asked)} DELETE a/none.py",
            "is not there, and can't be deleted",
        ),
        (lambda asked: "I would rather not.", "there is no file in the reply"),
        (
            lambda asked: Reply(block(asked, "a/one.py", "x = 5\n"), finish="length"),
            "cut off before its end",
        ),
    ],
)
async def test_a_reply_that_breaks_a_rule_writes_nothing(tmp_path, say, fault):
    with pytest.raises(EditRefused, match=re.escape(fault)):
        await edited(tmp_path, say)
    assert {path: (tmp_path / path).read_text() for path in FILES} == FILES
    assert not (tmp_path.parent / "out.py").exists()


async def test_the_model_is_told_what_is_wrong_and_answers_again(tmp_path):
    wrong, right = (
        (lambda asked: block(asked, "a/one.py", "x = (\n")),
        (lambda asked: block(asked, "a/one.py", "x=2\n")),
    )
    result, model = await edited(tmp_path, wrong, right, repairs=1)
    assert result["replies"] == 2
    roles = [turn.role for turn in model.calls[1].messages]
    assert roles == ["user", "assistant", "user"]
    assert "a/one.py does not compile" in model.calls[1].messages[2].content
    assert (tmp_path / "a/one.py").read_text() == "x=2\n"


async def test_a_link_out_of_the_worktree_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    fill(tmp_path / "work", {"a/door": (str(outside),)})
    with pytest.raises(EditRefused, match="not among the files"):
        await edited(tmp_path / "work", lambda asked: block(asked, "a/door/new.py", "n = 0\n"))
    assert list(outside.iterdir()) == []


async def test_line_ends_modes_and_a_missing_last_newline_stay(tmp_path):
    files = {"a/one.py": b"x = 1\r\n", "a/two.py": "y = 2"}
    fill(tmp_path, files)
    (tmp_path / "a/one.py").chmod(0o755)

    def say(asked):
        return block(asked, "a/one.py", "```python\nx = 10\n```\n") + block(
            asked, "a/two.py", "y = 20\n"
        )

    await edited(tmp_path, say, files={"b/other.py": ""})
    assert (tmp_path / "a/one.py").read_bytes() == b"x = 10\r\n"
    assert (tmp_path / "a/one.py").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a/two.py").read_bytes() == b"y = 20"


async def test_what_is_no_text_is_named_but_not_shown_and_not_written(tmp_path):
    files = {"a/one.py": "x = 1\n", "a/two.py": b"\xff\xfe\x00"}
    with pytest.raises(EditRefused, match=r"a/two\.py is no text"):
        await edited(tmp_path, lambda asked: block(asked, "a/two.py", "y = 2\n"), files=files)


async def test_a_file_that_holds_our_own_marks_is_told_from_them(tmp_path):
    _, model = await edited(tmp_path, "NOTHING TO CHANGE")
    mark = mark_of(model.calls[0])
    files = {"a/one.py": f'text = """\n=== {mark} END\n"""\n', "a/two.py": "y = 2\n"}
    content = files["a/one.py"] + "more = 1\n"
    result, model = await edited(
        tmp_path, lambda asked: block(asked, "a/one.py", content), files=files
    )
    assert result["written"] == ["a/one.py"]
    assert mark_of(model.calls[0]) not in content
    assert (tmp_path / "a/one.py").read_text() == content


async def test_files_whose_names_are_no_line_of_text_are_named_but_not_shown(tmp_path):
    odd = ["a/new\nline.py", os.fsdecode(b"a/non\xff.py"), "a/esc\x1b[2J.py", "a/space.py "]
    files = {**FILES, **dict.fromkeys(odd, "secret = 1\n")}
    own = ("a/one.py", *odd)
    result, model = await edited(
        tmp_path, lambda asked: block(asked, "a/one.py", "x = 2\n"), files=files, own=own
    )
    assert result["written"] == ["a/one.py"]
    prompt = model.calls[0].messages[0].content
    assert "secret" not in prompt
    assert (
        r"not to be changed: a/new\nline.py, a/non\udcff.py, a/esc\x1b[2J.py, a/space.py" in prompt
    )
    prompt.encode()  # it can be sent


async def test_a_reply_may_ask_for_changes_of_others_and_is_told_whose_they_are(tmp_path):
    fill(tmp_path, FILES)

    def say(request):
        mark = mark_of(request)
        if len(request.messages) == 1:
            return block(request, "b/other.py", "z = 4\n")
        return f"=== {mark} ASK b/other.py\nMake z 4.\n=== {mark} END\n"

    model = ScriptedModel(say)
    task = EditTask(model, OWNERS, repairs=1, asks=True)
    part = Assignment(
        "a",
        "a/",
        ("a/one.py",),
        "Do it.",
        tmp_path,
        None,
        "Mind it.",
        (PartRequest("b", "x", "D"),),
    )
    facts = await task(part)
    assert facts["asks"] == [{"file": "b/other.py", "text": "Make z 4.\n"}]
    assert facts["written"] == []
    first, second = model.calls
    assert first.messages[0].content.startswith("Do it.\n\nMind it.\n\nOthers who work")
    assert "Part b asks for this change of x:\nD" in first.messages[0].content
    assert "it belongs to b" in second.messages[-1].content
