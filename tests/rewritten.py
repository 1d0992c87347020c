"""Rewrite the assertions of test files, before workers import them.

Without its cache, pytest takes longer to rewrite all files than to collect all tests, and every
worker would do so for itself, at the same time.
"""

import os
import sys

from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key


def rewrite_all(files, config):
    """Write the cache of every file that has changed, in a process per processor."""
    files = [file for file in files if rewrite._read_pyc(file, _cached(file)) is None]
    if not files or sys.dont_write_bytecode:
        return
    count = len(os.sched_getaffinity(0))
    children = [_forked(files[number::count], config) for number in range(count)]
    for child in children:
        os.waitpid(child, 0)


def _forked(files, config):
    child = os.fork()
    if child:
        return child
    try:
        for file in files:
            source, code = rewrite._rewrite_test(file, config)
            _cached(file).parent.mkdir(parents=True, exist_ok=True)
            rewrite._write_pyc(config.stash[assertstate_key], code, source, _cached(file))
    finally:  # a file that is no Python is told when it is imported
        os._exit(0)


def _cached(file):
    return rewrite.get_cache_dir(file) / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
