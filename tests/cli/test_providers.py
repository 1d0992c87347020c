"""Every kind of job against a strict imitation of every provider, over loopback."""

import pytest

from abreast.cli.main import run as run_here
from benchmarks.providers import JOBS, KEY, LANES, Said, play, prepare, refused_again
from tests.cli.storms import start_storm


@pytest.mark.parametrize("profile", LANES)
def test_every_job_works_with_the_provider_and_nothing_is_refused_twice(
    profile, abreast, monkeypatch, capfd
):
    monkeypatch.chdir(abreast.folder)

    def run(arguments, given):
        if arguments[0] == "show":  # after each job: it needs no process of its own
            return Said(run_here(arguments), *capfd.readouterr())
        said = abreast(*arguments, given=given, STORM_KEY=KEY)
        return Said(said.code, said.out, said.err)

    with start_storm(strict=profile) as storm:
        prepare(abreast.folder, profile, storm.url)
        cells = {job.name: play(job, profile, run, storm.log) for job in JOBS}
    problems = {name: cell.problem for name, cell in cells.items() if cell.problem}
    assert problems == {}
    again = refused_again(cells, per_command=True)
    assert {*again} == set()
    assert KEY.encode() not in abreast.store.read_bytes()
