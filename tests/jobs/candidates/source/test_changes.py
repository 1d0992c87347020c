"""Which other files a candidate may change, and how its changes are read, staged and written."""

import pytest

from abreast.jobs.candidates.registry import Link, Registry, child_of
from abreast.jobs.candidates.results import Checked, Proposal, change_patch, change_size
from abreast.jobs.candidates.source.changes import (
    CandidateSource,
    FileChange,
    as_source,
    protected_places,
    read_change,
    refuse_path,
)
from abreast.jobs.candidates.source.checks import check_files, check_text
from abreast.jobs.candidates.source.normal_form import DuplicateFinder
from abreast.jobs.candidates.source.target import CandidateInvalid, Target
from tests.worktrees.repositories import git, make_repository, write

TARGET = Target("pkg/mod.py", "f")
ORIGINAL = "from pkg.helper import step\n\n\ndef f(x):\n    return step(x)\n"
HELPER = "def step(x):\n    return x + 1\n"
FASTER = "def step(x):\n    return 1 + x\n"


@pytest.mark.parametrize("path", ["pkg/helper.py", "pkg/helper.pyi", "docs/a.md", "a.rst"])
def test_code_and_its_documentation_may_change(path):
    assert refuse_path(path, ["tests", "checks/run.py"]) == ""


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../other.py", "outside"),
        ("/etc/passwd.py", "outside"),
        ("pkg/../../x.py", "outside"),
        (".git/hooks/x.py", "git's own"),
        ("pkg/.GIT/config.py", "git's own"),
        ("conftest.py", "tests"),
        ("pkg/conftest.py", "tests"),
        ("test_mod.py", "tests"),
        ("pkg/mod_test.py", "tests"),
        ("pkg/tests/helper.py", "tests"),
        ("checks/run.py", "tests"),
        ("checks2/deep/helper.py", "tests"),
        ("setup.py", "configuration"),
        ("sitecustomize.py", "configuration"),
        ("pyproject.toml", "only"),
        ("pytest.ini", "only"),
        ("setup.cfg", "only"),
        ("tox.ini", "only"),
        ("data/expected.json", "only"),
        ("pkg/native.so", "only"),
        ("x.pth", "only"),
    ],
)
def test_tests_configuration_data_and_what_is_outside_may_not(path, why):
    assert why in refuse_path(path, ["checks/run.py::test_a", "checks2/"])


def test_a_directory_of_tests_that_holds_the_target_protects_only_what_is_named_like_a_test():
    assert protected_places(["pkg", "tests/a.py::b"], ["run.py"], "pkg/mod.py") == (
        "tests/a.py::b",
        "run.py",
    )


def test_links_and_modules_that_would_stand_for_others_are_refused(tmp_path):
    files = {"pkg/__init__.py": "", "pkg/helper.py": HELPER, "plain/a.py": ""}
    project = make_repository(tmp_path / "project", files)
    (project / "link.py").symlink_to("pkg/helper.py")
    (project / "linked").symlink_to("pkg")
    for path, text, why in (
        ("link.py", "x = 1\n", "is a link"),
        ("linked/helper.py", "x = 1\n", "linked is a link"),
        ("random.py", "x = 1\n", "take the place of the module random"),
        ("pytest.py", "x = 1\n", "take the place of the module pytest"),
        ("json/__init__.py", "x = 1\n", "take the place of the module json"),
        ("plain/__init__.py", "", "how the modules beside it are imported"),
        ("pkg/__init__.py", None, "how the modules beside it are imported"),
        ("pkg", "x = 1\n", "no file"),
    ):
        with pytest.raises(CandidateInvalid, match=why):
            read_change(project, path, text)
    assert read_change(project, "pkg/helper.py", HELPER) is None
    assert read_change(project, "pkg/helper.py", None) == FileChange("pkg/helper.py", HELPER, None)
    for new in ("pkg/random.py", "faster.py", "other/__init__.py"):
        assert read_change(project, new, "x = 1\n") == FileChange(new, None, "x = 1\n")


@pytest.mark.parametrize(
    ("change", "verdict", "why"),
    [
        (FileChange("check_sums.py", "", "x = 1\n"), "refused", "belongs to the tests"),
        (FileChange("h.py", "import pytest\n", "x = 1\n"), "refused", "imports pytest"),
        (FileChange("h.py", None, "from unittest import mock\n"), "refused", "imports pytest"),
        (FileChange("h.py", HELPER, "def step(:\n"), "error", "h.py is not Python"),
    ],
)
def test_what_the_tests_are_made_of_and_what_is_no_python_is_not_staged(change, verdict, why):
    found = check_files([FileChange("ok.py", HELPER, FASTER), change], {"check_sums.py"})
    assert (found.verdict, why in found.reason) == (verdict, True)


def test_a_file_that_is_no_python_any_more_may_be_mended():
    assert (
        check_files([FileChange("h.py", "def (", HELPER), FileChange("a.md", "", "b")], ()) is None
    )


@pytest.mark.parametrize(
    "line", ["import ctypes", "import sys\nsys.modules.clear()", "import time\ntime.sleep = None"]
)
def test_what_is_refused_in_the_target_s_file_is_refused_in_the_others(line):
    bad = FileChange("pkg/helper.py", HELPER, f"{line}\n{HELPER}")
    found = check_text(ORIGINAL, ORIGINAL, TARGET, [bad])
    assert found.verdict == "refused"
    assert "of pkg/helper.py" in found.reason
    known = FileChange("pkg/old.py", f"{line}\n", None)
    assert check_text(ORIGINAL, ORIGINAL, TARGET, [bad, known]) is None  # it has only moved


def test_duplicates_are_told_by_the_normal_form_of_every_file():
    finder = DuplicateFinder(ORIGINAL)
    faster, same = (FileChange("pkg/helper.py", HELPER, text) for text in (FASTER, "# " + HELPER))
    comment = FileChange("pkg/helper.py", HELPER, HELPER + "# why\n")
    assert finder.enter("a", ORIGINAL, [comment]).kind == "original"
    assert finder.enter("docs", ORIGINAL, [FileChange("a.md", "", "b")]).kind == "original"
    assert finder.enter("b", ORIGINAL, [faster]).kind == "new"
    longer = FileChange("pkg/helper.py", HELPER, FASTER + "# why\n")
    assert (finder.enter("c", ORIGINAL, [longer]).of, finder.source_of("b").files) == (
        "b",
        (faster,),
    )
    assert finder.enter("d", ORIGINAL, [FileChange("pkg/x.py", None, FASTER)]).kind == "new"
    assert finder.enter("e", ORIGINAL, [FileChange("pkg/helper.py", HELPER, None)]).kind == "new"
    assert finder.enter("f", ORIGINAL, [same]).kind == "new"


def test_the_patch_of_several_files_is_one_that_git_applies(tmp_path):
    project = make_repository(
        tmp_path / "project",
        {"pkg/mod.py": ORIGINAL, "pkg/helper.py": HELPER, "gone.py": "x = 1\n"},
    )
    files = (
        FileChange("pkg/helper.py", HELPER, FASTER),
        FileChange("pkg/new.py", None, "y = 1\n"),
        FileChange("pkg/empty.py", None, ""),
        FileChange("gone.py", "x = 1\n", None),
    )
    text = ORIGINAL.replace("step(x)", "step( x)")
    write(project, {"p.patch": change_patch(ORIGINAL, text, TARGET.file, files)})
    git(project, "apply", "p.patch")
    assert (project / TARGET.file).read_text() == text
    for one in files:
        path = project / one.path
        assert (path.read_text() if path.exists() else None) == one.after
    assert change_size(ORIGINAL, text, files) == 2 + 2 + 1 + 1
    assert change_patch(ORIGINAL, ORIGINAL, TARGET.file) == ""


def test_a_patch_of_a_file_with_one_function_is_taken_as_it_is():
    """A function alone would keep the imports of the original, one of which may be gone."""
    text = ORIGINAL.replace("pkg.helper", "pkg.faster")
    files = (FileChange("pkg/helper.py", HELPER, None), FileChange("pkg/faster.py", None, HELPER))
    registry = Registry(TARGET, ORIGINAL)
    (tried,) = registry.enter([Proposal("a", text, "patch", files=files, whole=True)])
    assert tried.text == text
    registry.settle("a", [Link(text, Checked("wrong"), files), Link(text, Checked("same"), files)])
    assert registry.tried["a-repaired"].text == text
    agent = child_of(tried, CandidateSource(text, files), "refinement")
    assert (agent.whole, agent.text) == (True, text)
    model = child_of(tried, "def f(x):\n    return x\n", "refinement")
    assert (model.whole, model.files) == (False, files)


def test_an_answer_is_text_or_a_source():
    source = CandidateSource("x", (FileChange("a.py", None, ""),))
    assert as_source(source) is source
    assert as_source("x") == CandidateSource("x")
    with pytest.raises(TypeError, match="as text, not int"):
        as_source(1)
