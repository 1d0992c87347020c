"""Fill the caches of Python, pytest and Hypothesis before workers read them.

On a fresh checkout every worker would compile every module, rewrite the assertions of every test
file and search all of them for constants, which takes longer than to collect all tests.
"""

import fcntl
import os
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType

from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key
from hypothesis.configuration import storage_directory
from hypothesis.internal.constants_ast import constants_from_module


def fill(files, config):
    """Do for these files what workers would do, in a process per processor.

    A session that begins at the same time waits for it, and finds it done.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        _fill(files, config)
    finally:
        os.close(folder)


def _fill(files, config):
    searched = storage_directory("constants").path.exists()
    new = [file for file in files if not (searched and _compiled(file))]
    if sys.dont_write_bytecode or not new:
        return
    count = len(os.sched_getaffinity(0))
    children = [_forked(new[number::count], config) for number in range(count)]
    for child in children:
        os.waitpid(child, 0)


def _forked(files, config):
    child = os.fork()
    if child:
        return child
    try:
        for file in files:
            module = ModuleType(file.stem)
            module.__file__ = str(file)
            constants_from_module(module)
            if not _compiled(file):
                _compile(file, config)
    finally:  # a file that is no Python is told when it is imported
        os._exit(0)


def _compile(file, config):
    if not file.name.startswith("test_"):
        py_compile.compile(str(file), quiet=2)
        return
    source, code = rewrite._rewrite_test(file, config)
    _rewritten(file).parent.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[assertstate_key], code, source, _rewritten(file))


def _compiled(file):
    if file.name.startswith("test_"):
        return rewrite._read_pyc(file, _rewritten(file)) is not None
    return Path(cache_from_source(str(file))).exists()


def _rewritten(file):
    return rewrite.get_cache_dir(file) / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
