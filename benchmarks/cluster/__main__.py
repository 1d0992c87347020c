"""Jobs on two nodes of Ray with a PostgreSQL, while one after another is killed.

    python -m benchmarks.cluster [--rounds 20] [--seed N] [--items 18] [--width 3]

In every round a map, a study, `optimize` on an example and a plan run, and each meets one kill: of
an agent with its work, of a node, of the driver, which is then resumed, or of the database, which
is started again. What is killed, and when, is drawn from the seed, which is printed. It ends with
1 unless nothing was lost, nothing recorded was repeated, at most `width` items were repeated for a
kill, the result is that of an undisturbed run on this machine with a file as its store, and no
process and no worktree is left.
"""

from __future__ import annotations

import argparse
import sys
from random import Random

from benchmarks.cluster.jobs import PREPARE
from benchmarks.cluster.rounds import Arena, play
from benchmarks.ray_nodes import open_nodes
from scripts.postgres import open_server


def main() -> int:
    """Play, and say whether all was well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--items", type=int, default=18)
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", default=list(PREPARE), choices=list(PREPARE))
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    with open_server() as database, open_nodes(cpus=given.width) as cluster:
        arena = Arena(cluster, database, given.items, given.width, Random(seed))
        found = play(arena, given.rounds, given.jobs)
    good = all(report.is_good(given.width) for report in found)
    sys.stdout.write(
        f"{len(found)} kills: {sum(one.lost for one in found)} lost, "
        f"{sum(one.recorded_repeated for one in found)} recorded repeated, "
        f"at most {max((one.repeated for one in found), default=0)} in flight repeated for one: "
        f"{'all promises kept' if good else 'NOT KEPT'}\n"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
