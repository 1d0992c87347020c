"""The best cut that METIS finds for the same number of parts and the same largest part.

METIS has no bounds: it gets as much imbalance as the largest part allows. It is tried with both of
its methods and some seeds, and the least cut counts among those that keep the bound.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

_CHILD = """
import json, sys
import pymetis
asked = json.load(sys.stdin)
best = None
for seed in range(asked["seeds"]):
    for recursive in (False, True):
        for share in (1.0, 0.5):
            slack = max(1, int(share * asked["slack"] * 1000))
            options = pymetis.Options(seed=seed, ufactor=slack)
            _, part_of = pymetis.part_graph(
                asked["parts"], xadj=asked["starts"], adjncy=asked["targets"],
                vweights=asked["sizes"], eweights=asked["weights"], recursive=recursive,
                options=options,
            )
            sizes, cut = [0] * asked["parts"], 0
            for node, part in enumerate(part_of):
                sizes[part] += asked["sizes"][node]
                for place in range(asked["starts"][node], asked["starts"][node + 1]):
                    if part_of[asked["targets"][place]] != part:
                        cut += asked["weights"][place]
            found = (max(sizes) > asked["high"], cut, list(part_of))
            if best is None or found[:2] < best[:2]:
                best = found
print()  # METIS prints, too, what it meets
print(json.dumps(best[2]))
"""


def divide(
    python: Path,
    sizes: Mapping[str, int],
    edges: Sequence[tuple[str, str]],
    tied: Mapping[str, str],
    *,
    parts: int,
    high: int,
    seeds: int = 10,
) -> dict[str, str]:
    """The part of each file; `tied` files are kept with another if both fit into one part.

    A file that is larger than `high` is a part alone, and not given to METIS.
    """
    group = {path: path for path in sizes}
    held = dict(sizes)
    for one, other in sorted(tied.items()):
        if sizes[one] + held[group[other]] <= high:
            group[one] = group[other]
            held[group[other]] += sizes[one]
    alone = [path for path in sizes if sizes[path] > high]
    nodes = [path for path in sizes if group[path] == path and sizes[path] <= high]
    number = {path: place for place, path in enumerate(nodes)}
    weights: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one, other in edges:
        first, second = number.get(group[one]), number.get(group[other])
        if first is not None and second is not None and first != second:
            weights[first][second] += 1
            weights[second][first] += 1
    starts, targets, values = [0], [], []
    for place in range(len(nodes)):
        targets += list(weights[place])
        values += list(weights[place].values())
        starts.append(len(targets))
    count = parts - len(alone)
    total = sum(held[path] for path in nodes)
    asked = {
        "parts": count,
        "starts": starts,
        "targets": targets,
        "weights": values,
        "sizes": [max(1, held[path]) for path in nodes],
        "slack": max(0.001, high * count / total - 1),
        "high": high,
        "seeds": seeds,
    }
    printed = subprocess.run(
        [str(python), "-c", _CHILD],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    ).stdout
    found = json.loads(printed.splitlines()[-1])
    own = {path: f"part {found[number[path]]}" for path in nodes} | {path: path for path in alone}
    return {path: own[group[path]] for path in sizes}
