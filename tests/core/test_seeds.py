"""Seeds: the same in every process, different for every path, spread evenly."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.seeds import derive_fraction, derive_seed, draw_seed

SEEDS = st.integers(0, 2**63 - 1)
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
PATHS = [f"run/map/{index:04}" for index in range(4000)]


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_another_process_derives_the_same_seeds(hash_seed):
    script = (
        "from abreast.core.seeds import derive_fraction, derive_seed\n"
        "seeds = derive_seed(7, 'run/map/0000'), derive_seed(-1, 'größe/\\u96ea')\n"
        "print(*seeds, derive_fraction(2**62, ''))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONUTF8": "1"}
    child = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    here = (
        derive_seed(7, "run/map/0000"),
        derive_seed(-1, "größe/\u96ea"),
        derive_fraction(2**62, ""),
    )
    assert child.stdout.split() == [str(number) for number in here]


def test_seeds_are_the_ones_they_were_when_runs_were_recorded():
    assert derive_seed(7, "run/map/0000") == 7093573336637459141
    assert derive_seed(0, "") == 7556725741714545743


@given(seed=SEEDS, path=ANY_TEXT)
def test_a_seed_fits_a_signed_column_and_is_derived_from_any_text(seed, path):
    assert 0 <= derive_seed(seed, path) < 2**63
    assert derive_seed(seed, path) == derive_seed(seed, path)
    assert 0.0 <= derive_fraction(seed, path) < 1.0


@given(seed=SEEDS, one=ANY_TEXT, other=ANY_TEXT)
def test_different_paths_have_different_seeds(seed, one, other):
    assert (derive_seed(seed, one) == derive_seed(seed, other)) == (one == other)


@given(one=SEEDS, other=SEEDS)
def test_different_runs_have_different_seeds_at_one_path(one, other):
    assert (derive_seed(one, "run/map/0000") == derive_seed(other, "run/map/0000")) == (
        one == other
    )


def test_seed_and_path_do_not_run_into_each_other():
    assert derive_seed(1, "2/x") != derive_seed(12, "/x")


def test_derived_seeds_are_distinct_and_every_bit_is_set_half_the_time():
    seeds = [derive_seed(7, path) for path in PATHS]
    assert len(set(seeds)) == len(PATHS)
    for bit in range(63):
        assert abs(sum(seed >> bit & 1 for seed in seeds) / len(PATHS) - 0.5) < 0.05


def test_fractions_are_spread_evenly():
    tenths = [0] * 10
    for path in PATHS:
        tenths[int(derive_fraction(7, path) * 10)] += 1
    assert all(abs(number / len(PATHS) - 0.1) < 0.02 for number in tenths)


def test_the_largest_seed_is_still_a_fraction_below_one(monkeypatch):
    monkeypatch.setattr("abreast.core.seeds.derive_seed", lambda seed, path: 2**63 - 1)
    assert derive_fraction(7, "run") < 1.0


def test_a_drawn_seed_is_fresh_and_fits():
    drawn = {draw_seed() for _ in range(20)}
    assert len(drawn) == 20
    assert all(0 <= seed < 2**63 for seed in drawn)
