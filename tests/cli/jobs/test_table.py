"""The table of jobs: what it names is there, and belongs to the job."""

import pytest

from abreast.cli.jobs.driver import JobDriver
from abreast.cli.jobs.table import JOBS, find_name


@pytest.mark.parametrize("name", JOBS)
def test_a_row_names_the_driver_of_its_job(name):
    driver = JOBS[name].load()

    assert issubclass(driver, JobDriver)
    assert driver.kind == name


def test_no_two_jobs_share_a_key_of_files():
    keys = [key for job in JOBS.values() for key in job.file_keys]

    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.schema])
def test_a_schema_is_that_of_a_file_of_the_job(name):
    schema = find_name(JOBS[name].schema or "")()

    assert set(JOBS[name].file_keys) & set(schema["properties"])
