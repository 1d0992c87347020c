"""Traced runs of ordinary projects: layout, installation, pytest options, what can't be traced."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from abreast.jobs.candidates.behaviour.traced_run import Tests, judge_behaviour
from abreast.jobs.candidates.rules import STRICT
from tests.jobs.candidates.watched import LIMITS, open_project, use_cache

SHOUT = "def shout(text):\n    return text.upper() + '!'\n"
QUIET = "def shout(text):\n    return text.lower() + '!'\n"
TEST = "from {module} import shout\n\ndef test_shout(word):\n    assert shout(word) == 'A!'\n"
CONFTEST = "import pytest\n\n@pytest.fixture\ndef word():\n    return 'a'\n"
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, unmeasured):
    use_cache(monkeypatch, tmp_path)


def environment(place: Path, *, modules=PYTEST, path="", finder="") -> Path:
    """Make a virtual environment with only these modules, and return its interpreter.

    `path` and `finder` are the files that an editable install leaves in it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    (site,) = place.glob("lib/*/site-packages")
    for name in modules:
        origin = Path(importlib.util.find_spec(name).origin)
        package = origin.name == "__init__.py"
        (site / (name if package else origin.name)).symlink_to(origin.parent if package else origin)
    if path:
        (site / "__editable__.pth").write_text(f"{path}\n")
    if finder:
        (site / "editable_finder.py").write_text(finder)
        (site / "__editable__.pth").write_text("import editable_finder\n")
    return place / "bin" / "python"


@pytest.mark.parametrize(
    ("file", "module", "more"),
    [
        ("voice.py", "voice", {}),
        ("pkg/voice.py", "pkg.voice", {"pkg/__init__.py": ""}),
        ("src/pkg/voice.py", "pkg.voice", {"src/pkg/__init__.py": "from pkg.voice import shout\n"}),
        ("src/space/voice.py", "space.voice", {"pytest.ini": "[pytest]\npythonpath = src\n"}),
        (
            "voice.py",
            "voice",
            {"pytest.ini": "[pytest]\naddopts = -n 2 --import-mode=importlib -x\n"},
        ),
    ],
    ids=["flat", "flat package", "src", "namespace", "options"],
)
async def test_code_is_found_wherever_it_lies(tmp_path, file, module, more):
    files = {
        file: SHOUT,
        "tests/test_voice.py": TEST.format(module=module),
        "tests/conftest.py": CONFTEST,
        **more,
    }
    async with open_project(tmp_path / "p", files, f"{file}::shout", ("tests",)) as project:
        original = await project.watch()
        assert (original.failure, original.messages) == (None, {})
        assert [one.name for one in original.invocations] == ["tests/test_voice.py::test_shout#0"]
        assert original.signs.files == ()
        assert judge_behaviour(original, await project.watch(QUIET), STRICT).verdict == "wrong"


FINDER = """
import sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "pkg":
            return PathFinder.find_spec(name, path or [{src!r}], target)

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("way", ["path", "finder"])
async def test_an_editable_install_leads_to_the_slot_and_not_to_the_main_tree(tmp_path, way):
    """In an environment without abreast, with a second module besides the target's."""
    place = tmp_path / "p"
    files = {
        "code/pkg/__init__.py": "",
        "code/pkg/voice.py": "from pkg.mark import MARK\n\n"
        "def shout(text):\n    return text.upper() + MARK\n",
        "code/pkg/mark.py": "MARK = '!'\n",
        "tests/test_voice.py": TEST.format(module="pkg.voice")
        + "\n\ndef test_where():\n    import pkg.mark\n    assert '/cache/' in pkg.mark.__file__\n",
        "tests/conftest.py": CONFTEST,
        ".gitignore": ".venv\n",
    }
    async with open_project(place, files, "code/pkg/voice.py::shout", ("tests",)) as project:
        src = str(place / "code")
        python = environment(
            place / ".venv", **{way: src if way == "path" else FINDER.format(src=src)}
        )
        project.tests = Tests(("tests",), python=str(python))
        original = await project.watch()
        assert (original.failure, original.reason, original.messages) == (None, "", {})
        assert len(original.invocations) == 1
        assert judge_behaviour(original, await project.watch(QUIET), STRICT).verdict == "wrong"


async def test_a_project_may_be_called_abreast_and_need_not_have_ours(tmp_path):
    place = tmp_path / "p"
    test = (
        TEST.format(module="abreast.jobs")
        + "\n\ndef test_own():\n    import abreast\n    assert abreast.OWN\n"
    )
    files = {
        "abreast/__init__.py": "OWN = True\n",
        "abreast/jobs.py": SHOUT,
        "test_it.py": test,
        "conftest.py": CONFTEST,
    }
    async with open_project(place, files, "abreast/jobs.py::shout", ("test_it.py",)) as project:
        project.tests = Tests(("test_it.py",), python=str(environment(place / ".venv")))
        original = await project.watch()
        assert (original.failure, original.passed, len(original.invocations)) == (None, 2, 1)


@pytest.mark.usefixtures("unconfined")
async def test_a_module_from_elsewhere_is_refused(tmp_path):
    files = {
        "voice.py": SHOUT,
        "vendored/voice.py": SHOUT,
        "conftest.py": CONFTEST,
        "test_voice.py": "import sys\n\nsys.path.insert(0, 'vendored')\n"
        + TEST.format(module="voice"),
    }
    async with open_project(
        tmp_path / "p", files, "voice.py::shout", ("test_voice.py",)
    ) as project:
        watched = await project.watch()
        assert watched.failure == "refused"
        assert "vendored/voice.py, not from the slot" in watched.reason


@pytest.mark.usefixtures("unconfined")
@pytest.mark.parametrize(
    ("test", "names", "told"),
    [
        ("def test_a():\n    pass\n", ("test_a.py",), "no test imports the target's file"),
        ("import voice\n", ("test_a.py",), "there are no tests in it"),
        ("import voice\n", ("test_b.py",), "file or directory not found: test_b.py"),
    ],
)
async def test_what_cannot_be_watched_is_said_in_a_sentence(tmp_path, test, names, told):
    files = {"voice.py": SHOUT, "test_a.py": test}
    async with open_project(tmp_path / "p", files, "voice.py::shout", names) as project:
        watched = await project.watch()
        assert watched.failure == "error"
        assert told in watched.reason
        assert judge_behaviour(watched, watched, STRICT).verdict == "error"


@pytest.mark.usefixtures("unconfined")
async def test_tests_that_never_call_the_target_prove_nothing(tmp_path):
    files = {"voice.py": SHOUT, "test_a.py": "import voice\n\ndef test_a():\n    pass\n"}
    async with open_project(tmp_path / "p", files, "voice.py::shout", ("test_a.py",)) as project:
        behaviour = await project.judge(SHOUT)
        assert (behaviour.verdict, behaviour.reason) == ("error", "no test calls the target")


@pytest.mark.parametrize(
    ("missing", "told"), [(True, "could not be started"), (False, "pytest is not installed")]
)
async def test_an_interpreter_without_pytest_or_none_at_all(tmp_path, missing, told):
    place = tmp_path / "p"
    async with open_project(
        place, {"voice.py": SHOUT}, "voice.py::shout", ("test_a.py",)
    ) as project:
        python = place / "no-python" if missing else environment(place / ".venv", modules=())
        project.tests = Tests(("test_a.py",), python=str(python))
        watched = await project.watch(limits=LIMITS)
        assert watched.failure == "error"
        assert told in watched.reason
