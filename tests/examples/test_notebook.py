"""The notebook among the examples: from a frame to a frame, also if its kernel is killed."""

import json
import os
import signal
import threading

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from abreast.core.events import CALL_SETTLED
from abreast.store.sqlite.store import SqliteStore
from tests.cli.shell import PATIENCE
from tests.cli.storms import start_storm
from tests.docs.pages import ROOT

WIDTH = 2
BEFORE = 6  # calls that are answered before the kernel is killed
CALLS = 6 * (1 + 2)  # of six rows, by one strategy of one step and one of two


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory for the notebook, its kernel's files and the history of its shell."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def client_in(folder):
    notebook = nbformat.read(ROOT / "examples/study.ipynb", 4)
    return NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(folder)}})


def output_of(client, name):
    """What the cell of that id shows, as text."""
    cell = next(one for one in client.nb.cells if one.id == name)
    return cell.outputs[-1].data["text/plain"]


def kill_when_recorded(client, storm, store):
    """Kill the kernel once the calls are recorded that were answered, and all others hang."""
    storm.when(lambda stats: stats.arrived == BEFORE + WIDTH).result(PATIENCE)
    opened = SqliteStore(store)
    while len(opened.events("capitals-1", kinds={CALL_SETTLED}, limit=100)) < BEFORE:
        pass  # they are on disk a moment after they were answered
    opened.close()
    os.kill(client.km.provisioner.pid, signal.SIGKILL)


@pytest.mark.filterwarnings("default")  # those of Jupyter's packages
def test_a_killed_kernel_goes_on_in_a_new_one_and_no_cell_is_paid_twice(folder, monkeypatch):
    stalls = dict.fromkeys(range(BEFORE + 1, BEFORE + WIDTH + 1), "stall")
    with start_storm(fault_at=stalls) as storm:
        lane = f'[lanes.storm]\nbase_url = "{storm.url}/v1"\nwidth = {WIDTH}\n'
        (folder / "abreast.toml").write_text(lane, "utf-8")
        monkeypatch.setenv("STUDY_MODEL", "storm/one")

        first = client_in(folder)
        killer = threading.Thread(
            target=kill_when_recorded, args=(first, storm, folder / "runs.db")
        )
        killer.start()
        with pytest.raises(DeadKernelError):
            first.execute()
        killer.join()

        second = client_in(folder)
        second.execute()
        outcomes = [entry.outcome for entry in storm.log()]

    assert output_of(second, "study") == "<StudyResult capitals-1: 18 of 18 cells done>"
    assert (outcomes.count("ok"), len(outcomes)) == (CALLS, CALLS + WIDTH)
    assert len(output_of(second, "answers").splitlines()) >= 1 + 18
    assert "truth        1.0" in output_of(second, "means")


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads((ROOT / "examples/study.ipynb").read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert {(str(cell["outputs"]), cell["execution_count"]) for cell in code} == {("[]", None)}
