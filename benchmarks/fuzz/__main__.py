"""Broken input of every kind: no traceback, no hang.

    python -m benchmarks.fuzz [--tries 10000] [--commands 200] [--seed N] [--target NAME]

Each try changes something of a corpus a little and gives it to what reads it: in this process, and
to the command in processes of their own. What comes of it must be documented: a result, an error of
abreast, an exit code.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

from benchmarks.chaos.damages import BAD, damage_at_random
from benchmarks.fuzz.commands import COMMANDS, fuzz_agents, fuzz_commands
from benchmarks.fuzz.forked import fuzz_forked
from benchmarks.fuzz.http_bytes import fuzz_http
from benchmarks.fuzz.patches import fuzz_patches
from benchmarks.fuzz.replies import fuzz_replies
from benchmarks.fuzz.results import Fuzzed


def fuzz_stores(tries: int, seed: int) -> Fuzzed:
    """Damage stores, and count as `benchmarks.chaos.damages` does."""
    damages = damage_at_random(tries, seed)
    found = Fuzzed(damages.tries, damages.found)
    found.broken = sum(damages.found[name] for name in BAD)
    found.examples = damages.examples
    return found


TARGETS: Final[Mapping[str, Callable[[int, int], Fuzzed]]] = {
    **{target: partial(fuzz_commands, target) for target in COMMANDS},
    "agents": fuzz_agents,
    "replies": fuzz_replies,
    "http": fuzz_http,
    "stores": fuzz_stores,
    "patches": fuzz_patches,
}


def main() -> int:
    """Print two lines for each kind of input; 1 if something broke or hung."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=2000, help="of each kind, in this process")
    parser.add_argument("--commands", type=int, default=200, help="of each kind, as a command")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    faulthandler.enable()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="abreast-fuzz-") as home:
        os.environ |= dict.fromkeys(("HOME", "ABREAST_STATE", "ABREAST_CACHE"), home)
        for target in given.target or TARGETS:
            # Forks first: later this process may have threads.
            for how, fuzz, tries in (
                ("commands", partial(fuzz_forked, target), given.commands),
                ("in-process", TARGETS[target], given.tries),
            ):
                if not tries:
                    continue
                began = time.monotonic()
                found = fuzz(tries, seed)
                bad += found.broken + found.hung
                print(f"{target:10} {how:10} {found}  {time.monotonic() - began:.0f} s")
                print("\n".join(found.examples), flush=True)
    print(f"seed {seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
