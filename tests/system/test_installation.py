"""How a copy was installed is read from what installers leave behind."""

import json
import re
import sys
from pathlib import Path

import pytest

from abreast.system import installation as module
from abreast.system.installation import Installation, install_hint, read_installation

ROOT = Path(__file__).parents[2]


def direct(url, **facts):
    return json.dumps({"url": url, **facts})


@pytest.fixture(autouse=True)
def _pip_of_this_environment(monkeypatch):
    monkeypatch.setattr(module, "_pip", lambda: ("pip",))


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "a clone"
    folder.mkdir()
    return folder


def read(tmp_path, direct_url="", installer="pip", **receipts):
    for name, text in receipts.items():
        (tmp_path / {"uv": "uv-receipt.toml", "pipx": "pipx_metadata.json"}[name]).write_text(text)
    return read_installation({"direct_url.json": direct_url, "INSTALLER": installer}, tmp_path)


def test_what_came_from_an_index_is_installed_by_its_name(tmp_path):
    assert read(tmp_path).hint("local") == "pip install 'abreast[local]'"


def test_a_clone_is_installed_by_its_path_and_stays_editable(tmp_path, clone):
    found = read(tmp_path, direct(clone.as_uri(), dir_info={"editable": True}))
    assert found == Installation("pip", str(clone), editable=True)
    assert found.hint("ui") == f"pip install --editable '{clone}[ui]'"
    copied = read(tmp_path, direct(clone.as_uri(), dir_info={}))
    assert copied.hint("ui") == f"pip install '{clone}[ui]'"


def test_in_the_clone_itself_it_is_a_dot(tmp_path, clone, monkeypatch):
    monkeypatch.chdir(clone)
    assert Installation("pip", str(clone)).hint("local") == "pip install '.[local]'"


def test_a_clone_that_is_gone_is_not_taken_for_a_name_on_an_index(tmp_path, clone):
    clone.rmdir()
    said = read(tmp_path, direct(clone.as_uri(), dir_info={})).hint("local")
    assert said == "pip install '.[local]' in a clone of abreast"


@pytest.mark.parametrize(
    ("url", "facts", "source"),
    [
        (
            "https://example.org/abreast.git",
            {"vcs_info": {"vcs": "git", "commit_id": "0f", "requested_revision": "main"}},
            "git+https://example.org/abreast.git@main",
        ),
        (
            "https://example.org/abreast.git",
            {"vcs_info": {"vcs": "git", "commit_id": "0f"}},
            "git+https://example.org/abreast.git",
        ),
        ("https://example.org/a.whl", {"archive_info": {}}, "https://example.org/a.whl"),
    ],
)
def test_what_came_from_an_address_comes_from_there_again(tmp_path, url, facts, source):
    said = read(tmp_path, direct(url, **facts)).hint("local")
    assert said == f"pip install 'abreast[local] @ {source}'"


def test_an_environment_of_uv_is_named_unless_it_is_the_active_one(tmp_path, monkeypatch):
    found = read(tmp_path, installer="uv\n")
    monkeypatch.setattr(sys, "prefix", "/env")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert found.hint("local") == "uv pip install --python /env 'abreast[local]'"
    monkeypatch.setenv("VIRTUAL_ENV", "/env")
    assert found.hint("local") == "uv pip install 'abreast[local]'"


def test_uv_tool_is_told_the_extras_that_are_there_already(tmp_path, clone):
    receipt = '[tool]\nrequirements = [{ name = "abreast", extras = ["ui"] }, { name = "other" }]\n'
    found = read(tmp_path, installer="uv", uv=receipt)
    assert found.hint("local") == "uv tool install 'abreast[local,ui]'"
    from_clone = read(tmp_path, direct(clone.as_uri(), dir_info={"editable": True}), uv=receipt)
    assert from_clone.hint("ui") == f"uv tool install --editable '{clone}[ui]'"


@pytest.mark.parametrize(
    ("package", "says"),
    [("abreast", "abreast[local]"), ("abreast[ui, prices]", "abreast[local,prices,ui]")],
)
def test_pipx_is_told_the_extras_that_are_there_already(tmp_path, package, says):
    receipt = json.dumps({"main_package": {"package": "abreast", "package_or_url": package}})
    assert read(tmp_path, pipx=receipt).hint("local") == f"pipx install --force '{says}'"


def test_this_copy_is_a_clone_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert install_hint("local").endswith(f"{ROOT}[local]'")


def test_no_other_text_says_to_install_a_name():
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "docs").rglob("*"), ROOT / "README.md"]
    texts = {
        path: path.read_text("utf-8")
        for path in files
        if path.suffix in (".py", ".js", ".html", ".md") and path.name != "installation.py"
    }
    assert texts
    assert [path for path, text in texts.items() if re.search(r"install\s+'?abreast\b", text)] == []
