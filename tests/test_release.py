"""The release check finds what is missing, and its commands are those of the Makefile."""

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def checks():
    """The script, as a module."""
    place = ROOT / "scripts/release_check.py"
    spec = importlib.util.spec_from_file_location("release_check", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    yield module if spec.loader.exec_module(module) is None else None
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("held", "says"),
    [({"a.py"}, "the wheel lacks b.sql"), ({"a.py", "b.sql", "c"}, "the wheel has too much: c")],
)
def test_a_file_that_is_missing_or_too_much_is_named(checks, held, says):
    with pytest.raises(checks.CheckFailed, match=says):
        checks._compare("the wheel", held, {"a.py", "b.sql"})
    checks._compare("the wheel", {"a.py", "b.sql"}, {"a.py", "b.sql"})


def test_a_wheel_without_a_page_fails_the_check(checks, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "BUILD", tmp_path)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/abreast-1.tar.gz").touch()
    names = sorted(name for name in checks.source_files(ROOT) if name.startswith("src/"))
    with zipfile.ZipFile(tmp_path / "dist/abreast-1-py3-none-any.whl", "w") as packed:
        for name in names:
            if not name.endswith("web/static/index.html"):
                packed.writestr(name.removeprefix("src/"), "")

    with pytest.raises(checks.CheckFailed, match=r"lacks abreast/web/static/index\.html"):
        checks.check_contents()


def test_the_commands_of_the_image_are_run_in_other_directories(checks):
    text = (ROOT / "Dockerfile").read_text("utf-8")
    steps = checks.build_stage(text, {"/opt/abreast": "/tmp/here/opt", "/build": "/tmp/here/build"})

    assert [step[0] for step in steps] == ["COPY", "RUN", "COPY", "COPY", "RUN"]
    assert steps[0] == ["COPY", "requirements/image.txt", "/tmp/here/build/requirements/"]
    assert "python -m venv /tmp/here/opt" in steps[1][1]
    assert not [step for step in steps if "/opt/abreast" in step[-1]]


def test_a_command_that_fails_is_told_with_what_it_said(checks):
    with pytest.raises(checks.CheckFailed, match=r"exit code 3: sh(.|\n)*no such thing"):
        checks._run(["sh", "-c", "echo no such thing >&2; exit 3"])


def test_every_python_that_is_supported_is_tried(checks):
    classifiers = (ROOT / "pyproject.toml").read_text("utf-8")
    for version in checks.PYTHONS:
        assert f'"Programming Language :: Python :: {version}"' in classifiers
