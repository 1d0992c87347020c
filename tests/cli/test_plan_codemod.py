"""Renames a keyword throughout a real package by a function, in many subplans, then merges.

The package is docutils, which the documentation is made with. Its distribution has no tests, so its
behaviour is compared: every module is imported, and a text is turned into seven formats.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.jobs.plan.repositories import git, repository

OLD, NEW = "reporter", "messenger"
WIDTH = 15
PROBE = '''
"""Prints what the package in this directory does: whether its modules can be imported, \
and what becomes of a text. With names of formats, just what becomes of it in those."""
import importlib, io, json, pkgutil, sys
sys.path.insert(0, "")
import docutils
from docutils import core

wanted = sys.argv[2:]
modules = {}
for found in () if wanted else pkgutil.walk_packages(docutils.__path__, "docutils."):
    try:
        importlib.import_module(found.name)
        modules[found.name] = "imported"
    except ImportError as error:
        modules[found.name] = f"{type(error).__name__}: {error}"
text = """
=====
Title
=====

.. contents::

A *paragraph* with |words|, a footnote [1]_ and a `link`_.

.. |words| replace:: some words
.. [1] Note.
.. _link: https://example.org
.. note:: Beware of ``code``.
.. math:: a^2 + b^2

Section
-------

===  ===
a    b
===  ===
1    2
===  ===

- item

  1. inner

:unknown:`role`
"""
formats = {}
every = ("html5", "html4", "latex", "xetex", "manpage", "docutils_xml", "pseudoxml")
for name in wanted or every:
    said = io.StringIO()
    settings = {"warning_stream": said, "_disable_config": True, "embed_stylesheet": False, \
"datestamp": None}
    formats[name] = core.publish_string(text, writer=name, \
settings_overrides=settings).decode() + said.getvalue()
assert docutils.__file__.startswith(sys.argv[1]), docutils.__file__
print(json.dumps({"modules": modules, "formats": formats}, sort_keys=True))
'''


def behaviour(folder):
    """What the package in a directory does."""
    probe = folder.parent / "probe.py"
    probe.write_text(PROBE)
    argv = [sys.executable, "-W", "ignore", str(probe), str(folder)]
    # Compiled beside the package, and only once what is not changed.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def package(tmp_path):
    """abreast in a repository that is the package."""
    folder = tmp_path / "package"
    source = Path(find_spec("docutils").origin).parent
    shutil.copytree(source, folder / "docutils", ignore=shutil.ignore_patterns("__pycache__"))
    shell = Shell(folder)
    (folder / ".git").rmdir()
    repository(folder, {})
    shell.environment["ABREAST_CACHE"] = str(tmp_path / "cache")
    return shell


@pytest.mark.timeout(300)
def test_a_keyword_is_renamed_in_a_whole_package_by_many_subplans_and_it_works_as_before(package):
    before = behaviour(package.folder)
    said = package(
        "plan",
        "run",
        "--call",
        "tests.jobs.plan.codemod:rename_keyword",
        "--prompt",
        f"{OLD} {NEW}",
        "-w",
        WIDTH,
        "--json",
    )
    assert said.code == 0, said
    found = json.loads(said.out)
    assert len(found["subplans"]) >= 15
    assert found["peak"] == WIDTH
    changed = [file for one in found["subplans"] for file in one["value"]["value"]]
    assert len(changed) == len(set(changed)) > 30
    assert git(package.folder, "status", "--porcelain") == b""
    said = package("plan", "apply", "plan", "--json")
    assert said.code == 0, said
    assert json.loads(said.out)["written"] == sorted(changed)
    assert git(package.folder, "status", "--porcelain").decode().split() == [
        word for file in sorted(changed) for word in ("M", file)
    ]
    assert behaviour(package.folder) == before
    assert git(package.folder, "grep", "-lw", NEW, "--", "*.py").decode().split() == sorted(changed)
    assert git(package.folder, "worktree", "list").count(b"\n") == 1


@pytest.mark.timeout(300)
def test_a_change_that_forgets_a_part_is_stopped_by_the_check(package):
    """The same with one subplan left out: a call by the old keyword fails, and is caught."""
    probe = package.file("../probe.py", PROBE)
    package.file("../codemods/forgetful.py", FORGETFUL)
    package.environment["PYTHONPATH"] += f":{package.folder.parent}/codemods"
    ran = (
        "plan",
        "run",
        "--call",
        "forgetful:rename",
        "--prompt",
        f"{OLD} {NEW}",
        "-w",
        "4",
        "--quiet",
    )
    assert package(*ran).code == 0
    apart = f"env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX={package.folder.parent}/compiled"
    check = f'{apart} {sys.executable} -W ignore {probe} "$PWD" pseudoxml'
    said = package("plan", "apply", "plan", "--check", check)
    assert said.code == 1
    assert "fails (exit code 1" in said.out
    assert git(package.folder, "status", "--porcelain") == b""


FORGETFUL = """
from tests.jobs.plan.codemod import rename_keyword

def rename(subplan):
    return [] if "transforms" in subplan.scope else rename_keyword(subplan)
"""
