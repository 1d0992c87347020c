"""Prints how well repositories are divided, beside directories and METIS, as a table."""

from collections.abc import Sequence

from abreast.jobs.plan.settings import MAX_TOKENS
from benchmarks.decomposition import metis
from benchmarks.decomposition.figures import (
    Divided,
    by_folders,
    cut_share,
    stability,
    together,
    within_bounds,
)
from benchmarks.decomposition.repositories import (
    REPOSITORIES,
    NotFetched,
    Repository,
    metis_python,
)

HEAD = (
    "repository",
    "files",
    "imports",
    "parts",
    "directories",
    "abreast",
    "METIS",
    "METIS, tests tied",
    "abreast / METIS",
    "fewer than directories",
    "tests with sources",
    "within bounds",
    "kept: file added",
    "kept: 1% edited",
    "CPU",
)
MOST_OF_METIS = 1.1
"""Cut imports in multiples of those of METIS."""
LEAST_FEWER = 0.15
"""Share of the imports that directories cut, which ours must save, unless METIS can't either."""
LEAST_TOGETHER = 0.90
LEAST_WITHIN = 0.95


def print_quality(names: Sequence[str]) -> int:
    """Print the table; 1 if a bar is missed."""
    rows: list[tuple[str, ...]] = []
    missed: list[str] = []
    for repository in REPOSITORIES:
        if names and repository.name not in names:
            continue
        try:
            found = measure(repository)
        except NotFetched as error:
            print(f"{repository.name}: skipped, {error}")
            continue
        rows.append(found[0])
        missed += found[1]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    for row in (HEAD, tuple("-" * width for width in widths), *rows):
        print("| " + " | ".join(map(str.ljust, row, widths)) + " |")
    for line in missed:
        print(line)
    return int(bool(missed))


def measure(repository: Repository) -> tuple[tuple[str, ...], list[str]]:
    """A row of the table, and the bars that are missed. Raises `NotFetched`."""
    python = metis_python()
    divided = Divided.of(repository.place())
    edges, sizes, sources = divided.edges, divided.sizes, divided.sources
    parts = len(divided.plan.leaves)
    own = divided.own()
    folders = cut_share(by_folders(sizes), edges)
    ours = cut_share(own, edges)
    free, tied = (
        cut_share(metis.divide(python, sizes, edges, ties, parts=parts, high=MAX_TOKENS), edges)
        for ties in ({}, sources)
    )
    near = together(own, sources)
    inside, large = within_bounds(divided.plan)
    added, edited = stability(divided)
    row = (
        f"{repository.name} ({repository.language})",
        f"{len(sizes):,}",
        f"{len(edges):,}",
        f"{parts:,}",
        f"{folders:.1%}",
        f"{ours:.1%}",
        f"{free:.1%}",
        f"{tied:.1%}",
        f"{ours / free:.2f}",
        f"{1 - ours / folders:.0%} (METIS {1 - free / folders:.0%})",
        f"{near:.0%} of {len(sources):,}",
        f"{inside:.0%}" + (f", {large} larger alone" if large else ""),
        f"{added:.1%}",
        f"{edited:.1%}",
        f"{divided.seconds:.1f} s",
    )
    possible = inside + large / parts
    bars = {
        f"abreast cuts {ours / free:.2f} times as many as METIS": ours > MOST_OF_METIS * free,
        f"{1 - ours / folders:.0%} fewer than directories": (
            ours > (1 - LEAST_FEWER) * folders and free <= (1 - LEAST_FEWER) * folders
        ),
        f"{near:.0%} of tests are with their sources": near < LEAST_TOGETHER,
        f"{possible:.0%} of parts are within bounds": possible < LEAST_WITHIN,
    }
    return row, [f"missed, {repository.name}: {what}" for what, fails in bars.items() if fails]
