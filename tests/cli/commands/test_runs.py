"""Commands on recorded runs: list, show, resume, retry, cancel, export, remove."""

import csv
import io
import os
import select
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner

from abreast.cli.commands.runs import MAX_COUNTED_ITEMS
from abreast.cli.main import _COMMANDS, cli
from abreast.store.port import Driver
from abreast.store.sqlite.store import SqliteStore
from tests.cli.shell import PATIENCE, end
from tests.store.contract import forget_checksums

NUMBERS = "1\n2\n3\n4\n5\n"
FAILS_UNTIL = (
    '[ "$1" != 2 ] && [ "$1" != 4 ] || [ -e fixed$1 ] || { echo "no $1" >&2; exit 7; }; '
    'echo x >> ran; echo "got $1"'
)


@pytest.fixture
def failed(abreast):
    """A run of which the items 2 and 4 failed."""
    said = abreast(
        "map", "--tag", "nightly", "--", "sh", "-c", FAILS_UNTIL, "sh", "{}", given=NUMBERS
    )
    assert said.code == 1
    return abreast


def test_without_a_store_there_are_no_runs_and_none_is_made(abreast):
    said = abreast("runs")
    assert (said.code, said.out) == (0, "")
    assert "no runs yet" in said.err
    assert not abreast.store.exists()
    assert abreast("prune", "--older-than", "1d").code == 0
    assert not abreast.store.exists()


def test_runs_are_listed_newest_first(abreast):
    for name in ("a", "b", "a"):
        abreast("map", "--name", name, "--tag", f"t{name}", "--", "true", given="x\n")
    assert [row["run"] for row in abreast("runs", "--json").rows] == ["a-2", "b-1", "a-1"]
    assert [row["run"] for row in abreast("runs", "--json", "--name", "a").rows] == ["a-2", "a-1"]
    assert [row["run"] for row in abreast("runs", "--json", "--tag", "tb").rows] == ["b-1"]
    assert [row["run"] for row in abreast("runs", "--json", "--limit", "1").rows] == ["a-2"]
    assert abreast("runs", "--json", "--state", "failed").rows == []
    assert [line.split()[:2] for line in abreast("runs").lines] == [
        ["RUN", "STATE"],
        ["a-2", "done"],
        ["b-1", "done"],
        ["a-1", "done"],
    ]


def test_runs_says_how_many_items_are_in_which_state(failed):
    failed("map", "--", "true", given="1\n2\n")
    assert [
        (row["run"], row["items"], row["items_more"]) for row in failed("runs", "--json").rows
    ] == [
        ("map-2", {"done": 2, "failed": 0, "cancelled": 0}, False),
        ("map-1", {"done": 3, "failed": 2, "cancelled": 0}, False),
    ]
    head, newest, oldest = failed("runs").lines
    assert head.split()[:3] == ["RUN", "STATE", "ITEMS"]
    assert "  2 done  " in newest
    assert "  3 done, 2 failed  " in oldest


def test_of_a_large_run_no_more_items_are_counted_than_come_at_once(abreast):
    abreast.file("numbers", "".join(f"{number}\n" for number in range(MAX_COUNTED_ITEMS + 1)))
    abreast.file("echo.py", "def same(value):\n    return value\n")
    assert abreast("map", "--quiet", "--call", "echo:same", "--input", "numbers").code == 0
    assert f"  more than {MAX_COUNTED_ITEMS:,}  " in abreast("runs").lines[1]
    (row,) = abreast("runs", "--json").rows
    assert (row["items"]["done"], row["items_more"]) == (MAX_COUNTED_ITEMS, True)
    assert abreast("show", "last", "--json").rows[0]["items"]["done"] == MAX_COUNTED_ITEMS + 1


def test_a_run_in_which_all_failed_is_not_done(abreast):
    script = '[ -e fixed ] || { echo "no $1" >&2; exit 7; }; echo "got $1"'
    said = abreast("map", "--", "sh", "-c", script, "sh", "{}", given="1\n2\n3\n")
    assert said.code == 1
    assert "0 done, 3 failed" in said.err
    assert "once more: abreast retry map-1" in said.err
    (row,) = abreast("runs", "--json", "--state", "failed").rows
    assert (row["run"], row["reason"], row["items"]["failed"]) == (
        "map-1",
        "no item succeeded: 3 failed",
        3,
    )
    assert "run the failed again with: abreast retry map-1" in abreast("show", "map-1").out
    said = abreast("resume", "map-1")  # which never runs a recorded item again
    assert (said.code, said.out) == (0, "")
    assert "abreast retry map-1" in said.err
    assert "nothing to resume" in abreast("resume").err
    abreast.file("fixed", "")
    assert abreast("retry", "map-1").lines == ["got 1", "got 2", "got 3"]
    assert abreast("show", "map-1", "--json").rows[0]["state"] == "done"


def test_a_map_that_halted_at_a_failure_says_so_and_a_retry_goes_on_from_there(abreast):
    said = abreast("map", "--halt", "--", "sh", "-c", FAILS_UNTIL, "sh", "{}", given=NUMBERS)
    assert said.code == 1
    for row in (
        *abreast("runs", "--json", "--state", "halted").rows,
        *abreast("show", "map-1", "--json").rows,
    ):
        assert (row["state"], row["reason"]) == (
            "halted",
            "it stopped at its first failure: item 0001 failed",
        )
    assert "run the failed again with: abreast retry map-1" in abreast("show", "map-1").out
    said = abreast("resume", "map-1")
    assert (said.code, said.out) == (0, "")
    assert "map-1 is halted, with 1 failed; run those again with: abreast retry map-1" in said.err
    assert "nothing to resume" in abreast("resume").err
    abreast.file("fixed2", "")
    assert abreast("retry", "map-1").lines == ["got 1", "got 2", "got 3"]
    assert (
        abreast("show", "map-1", "--json").rows[0]["reason"]
        == "it stopped at its first failure: item 0003 failed"
    )
    abreast.file("fixed4", "")
    assert abreast("retry", "map-1").lines == ["got 1", "got 2", "got 3", "got 4", "got 5"]
    assert [row["state"] for row in abreast("runs", "--json").rows] == ["done"]


def test_a_map_with_halt_that_met_no_failure_is_done(abreast):
    assert abreast("map", "--halt", "--", "true", given=NUMBERS).code == 0
    assert [row["state"] for row in abreast("runs", "--json").rows] == ["done"]


def test_a_run_goes_by_its_id_its_name_or_last(abreast):
    for name in ("a", "b", "a"):
        abreast("map", "--name", name, "--", "true", given="x\n")
    for wanted, found in {"a-1": "a-1", "a": "a-2", "b": "b-1", "last": "a-2"}.items():
        assert abreast("show", wanted, "--json").rows[0]["run"] == found


def test_show_tells_what_became_of_a_run(failed):
    said = failed("show", "last")
    assert "3 done, 2 failed" in said.out
    assert "0001: exit code 7: no 2" in said.out
    assert "abreast retry map-1" in said.out
    row = failed("show", "last", "--json").rows[0]
    assert (row["run"], row["state"], row["tags"]) == ("map-1", "done", ["nightly"])
    assert row["items"] == {"done": 3, "failed": 2, "cancelled": 0, "speculative": 0}
    assert row["manifest"]["map"]["command"][:2] == ["sh", "-c"]


def test_show_tells_what_made_outcomes_depend_on_timing(abreast):
    abreast("map", "--timeout", "0.05", "--", "sleep", given="30\n")
    assert abreast("show", "last", "--json").rows[0]["timing_dependent"] == ["timeout"]
    assert "outcomes depend on it: timeout" in abreast("show", "last").out
    abreast("map", "--", "true", given="x\n")
    assert abreast("show", "last", "--json").rows[0]["timing_dependent"] == []
    assert "depend on it" not in abreast("show", "last").out


def test_show_tells_what_became_of_an_item(failed):
    said = failed("show", "last", "0001")
    assert "exit code 7" in said.out
    assert "--- stderr\nno 2\n" in said.out
    row = failed("show", "map", "0000", "--json").rows[0]
    assert (row["state"], row["stdout"], row["exit_code"]) == ("done", "got 1\n", 0)
    assert {"queued", "waited", "seconds", "backoff", "attempts"} <= set(row)
    assert "nothing is recorded of an item '9'" in failed("show", "last", "9").err


def test_retry_runs_all_failed_items_again_and_gives_the_whole_result(failed):
    failed.file("fixed2", "")
    said = failed("retry", "map-1")
    assert said.code == 1
    assert said.lines == ["got 1", "got 2", "got 3", "got 5"]
    failed.file("fixed4", "")
    said = failed("retry", "last")
    assert (said.code, said.lines) == (0, [f"got {number}" for number in range(1, 6)])
    assert (failed.folder / "ran").read_text().count("x") == 5
    assert "nothing to retry" in failed("retry", "last").err


def test_retry_runs_just_the_items_that_are_named(failed):
    failed.file("fixed2", "")
    failed.file("fixed4", "")
    said = failed("retry", "map-1", "0003", "--json")
    assert said.code == 1
    assert [row["state"] for row in said.rows] == ["done", "failed", "done", "done", "done"]
    said = failed("retry", "map-1", "0003")
    assert said.code == 2
    assert "item '0003' of map-1 is done, not failed" in said.err
    assert failed("resume", "map-1", "--retry-failed").code == 0


def test_a_run_that_is_done_is_not_resumed(failed):
    said = failed("resume", "map-1")
    assert (said.code, said.out) == (0, "")
    assert "map-1 is done, with 2 failed; run those again with: abreast retry map-1" in said.err
    assert failed("resume").err == "abreast: nothing to resume: no run is waiting to go on\n"


def test_resume_needs_neither_the_input_nor_the_directory(abreast):
    abreast.file("items", NUMBERS)
    said = abreast(
        "map",
        "--budget",
        "2req",
        "--input",
        "items",
        "--",
        "sh",
        "-c",
        'echo "got $1 in $(pwd)"',
        "sh",
        "{}",
    )
    assert said.code == 3
    (abreast.folder / "items").unlink()
    inner = abreast.folder / "inner"
    inner.mkdir()
    said = abreast("resume", "--budget", "10req", cwd=inner)
    assert (said.code, said.lines) == (
        0,
        [f"got {number} in {abreast.folder}" for number in range(1, 6)],
    )


def test_what_retry_says_of_a_workflow_can_be_typed(abreast):
    abreast.file(
        "flow.yaml",
        "workflow: {id: flow}\nsteps:\n"
        "  - {id: see, type: shell, run: test -e there, continue_on_error: true}\n"
        "  - {id: say, type: shell, run: echo said}\n",
    )
    assert abreast("run", "flow.yaml").code == 0

    said = abreast("retry", "last")

    assert said.code == 2
    assert said.err.startswith("abreast: retry is for the items of a map, and flow-1 is a workflow")
    abreast.file("there", "")
    words = said.err.rpartition("use: abreast ")[2].split()
    assert words == ["resume", "flow-1", "--only-failed"]
    assert abreast(*words).code == 0


def test_a_script_is_to_be_started_again_by_who_knows_it(abreast):
    store = abreast.folder / "runs.db"
    with closing(SqliteStore(store)) as opened:
        manifest = {"argv": ["job.py", "--fast"], "cwd": "/work"}
        row = opened.begin(
            "study",
            kind="script",
            seed=1,
            manifest=manifest,
            tags=(),
            driver=Driver(1, "here", 1.0),
        )
        opened.let_go(row.id)
    said = abreast("resume", "study", "--store", store)
    assert said.code == 2
    assert "study-1 was made by a script" in said.err
    assert "job.py --fast, in /work" in said.err
    assert abreast("runs", "--json", "--store", store).rows[0]["state"] == "crashed"
    assert [
        row["run"] for row in abreast("runs", "--json", "--store", store, "--state", "crashed").rows
    ] == ["study-1"]
    assert abreast("runs", "--json", "--store", store, "--state", "running").rows == []


def start_waiting(abreast, *more):
    os.mkfifo(abreast.folder / "here")
    here = os.open(abreast.folder / "here", os.O_RDWR)
    abreast.file("items", NUMBERS)
    started = abreast.start(
        "map",
        "--input",
        "items",
        "-P",
        "2",
        *more,
        "--",
        "sh",
        "-c",
        "exec 3> here; echo x >&3; sleep 600",
    )
    return started, here


def test_cancel_stops_the_driver_in_its_own_process(abreast):
    started, here = start_waiting(abreast)
    with started as process:
        assert select.select([here], [], [], PATIENCE)[0]
        asked = abreast("cancel", "map-1", "--reason", "enough of it", "--wait")
        assert (asked.code, asked.err) == (0, "abreast: map-1 is cancelled\n")
        said = end(process)
    os.close(here)
    assert said.code == 4
    assert said.err == "abreast: enough of it; go on with: abreast resume map-1\n"
    row = abreast("runs", "--json").rows[0]
    assert (row["state"], row["reason"]) == ("cancelled", "enough of it")
    assert abreast("cancel", "map-1").err == "abreast: map-1 is over already (cancelled)\n"


def test_cancel_of_a_run_that_nobody_drives_ends_it(abreast):
    started, here = start_waiting(abreast)
    with started as process:
        assert select.select([here], [], [], PATIENCE)[0]
        process.kill()
        process.wait()
    os.close(here)
    assert abreast("show", "map-1", "--json").rows[0]["state"] == "crashed"
    assert "go on with: abreast resume map-1" in abreast("show", "map-1").out
    assert "map-1 crashed" in abreast("doctor").out
    said = abreast("cancel", "map-1", "--json")
    assert said.rows[0]["state"] == "cancelled"


def test_export_is_the_result_in_item_order(failed):
    rows = failed("export", "last").rows
    assert [(row["key"], row["state"]) for row in rows] == [
        ("0000", "done"),
        ("0001", "failed"),
        ("0002", "done"),
        ("0003", "failed"),
        ("0004", "done"),
    ]
    assert rows[1]["error"]["message"] == "exit code 7: no 2"
    table = list(csv.DictReader(io.StringIO(failed("export", "last", "--format", "csv").out)))
    assert [(row["key"], row["exit_code"], row["stdout"], row["error"]) for row in table][:2] == [
        ("0000", "0", "got 1\n", ""),
        ("0001", "7", "", "exit code 7: no 2"),
    ]


def test_export_into_a_file_that_appears_whole(failed):
    said = failed("export", "last", "-o", "out.csv")
    assert (said.code, said.out) == (0, "")
    assert said.err == "abreast: 5 results of map-1 are in out.csv\n"
    assert (failed.folder / "out.csv").read_text().startswith("run,path,")
    assert failed("export", "last", "-q", "-o", "out.jsonl").err == ""
    assert len((failed.folder / "out.jsonl").read_text().splitlines()) == 5
    assert not list(failed.folder.glob("*.part"))


@pytest.mark.parametrize("name", ["out.foo", "out.json", "out.csv.gz"])
def test_export_into_a_file_whose_ending_names_no_format_is_refused(failed, name):
    said = failed("export", "last", "-o", name)
    assert said.code == 2
    assert "jsonl, csv, parquet, html" in said.err
    assert not list(failed.folder.glob("out*"))
    assert failed("export", "last", "-q", "--format", "jsonl", "-o", name).code == 0
    assert len((failed.folder / name).read_text().splitlines()) == 5


@pytest.mark.parametrize(
    "words", [("-o", "out.html"), ("-o", "OUT.HTML"), ("--format", "html", "-o", "page")]
)
def test_export_into_a_html_file_is_the_page(failed, words):
    said = failed("export", "last", *words)
    assert (said.code, said.err) == (0, f"abreast: the page of map-1 is in {words[-1]}\n")
    assert (failed.folder / words[-1]).read_text().startswith("<!doctype html>")


def test_export_as_parquet_needs_its_extra(failed):
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        said = failed("export", "last", "-o", "out.parquet")
        assert said.code == 2
        assert "[parquet]'" in said.err
    else:
        assert failed("export", "last", "-o", "out.parquet").code == 0
        script = (
            "import pyarrow.parquet as p; "
            "print(p.read_table('out.parquet')['exit_code'].to_pylist())"
        )
        read = subprocess.run(
            [sys.executable, "-c", script],
            cwd=failed.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert read.stdout.strip() == "[0, 7, 0, 7, 0]"


def test_what_ran_past_the_stop_is_in_no_export(abreast):
    # The fifth item has the place of the fourth, which is recorded by then; the third, which fails,
    # ends the map.
    script = (
        "case $1 in 3) until [ -e five ]; do :; done; exit 1;; 5) touch five; echo 5;; "
        "*) echo $1;; esac"
    )
    abreast("map", "--halt", "-P", "2", "--", "sh", "-c", script, "sh", "{}", given=NUMBERS)
    assert [row["key"] for row in abreast("export", "last").rows] == ["0000", "0001", "0002"]
    assert abreast("show", "last", "--json").rows[0]["items"]["speculative"] >= 1
    again = abreast("map", "--halt", "-P", "1", "--", "sh", "-c", script, "sh", "{}", given=NUMBERS)
    assert again.code == 1
    assert [row["key"] for row in abreast("export", "last").rows] == ["0000", "0001", "0002"]


def test_what_ended_after_an_interrupt_counts_once_the_run_has_gone_on(abreast):
    script = '[ "$1" != 1 ] || [ -e go ] || exit 1; echo "got $1"'
    abreast("map", "--halt", "-P", "2", "--", "sh", "-c", script, "sh", "{}", given=NUMBERS)
    abreast.file("go", "")
    said = abreast("retry", "last")
    assert (said.code, said.lines) == (0, [f"got {number}" for number in range(1, 6)])
    assert [row["stdout"] for row in abreast("export", "last").rows] == [
        f"got {number}\n" for number in range(1, 6)
    ]


def test_rm_removes_runs(failed):
    failed("map", "--", "true", given="x\n")
    assert failed("rm", "map-1", "--dry-run").err == "abreast: would remove map-1\n"
    assert (
        failed("rm", "map-1", "last", "last").err
        == "abreast: removed map-1\nabreast: removed map-2\n"
    )
    assert failed("runs", "--json").rows == []
    assert failed("rm", "map-1").code == 2


def test_prune_removes_what_ended_long_ago(failed):
    assert failed("prune", "--older-than", "1h", "--json").rows == [
        {"removed": [], "would_remove": []}
    ]
    with closing(SqliteStore(failed.store)) as store, store._db.writing() as db:
        db.execute("UPDATE runs SET ended = ended - 90000")
    forget_checksums(failed.store)
    assert failed("prune", "--older-than", "1d", "--dry-run", "--json").rows == [
        {"removed": [], "would_remove": ["map-1"]}
    ]
    assert (
        failed("prune", "--older-than", "1d", "--state", "cancelled").err
        == "abreast: removed 0 run(s)\n"
    )
    assert failed("prune", "--older-than", "1d").err == "abreast: removed 1 run(s): map-1\n"
    assert failed("runs", "--json").rows == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(abreast, shell):
    said = abreast("completion", shell)
    assert said.code == 0
    assert "_ABREAST_COMPLETE" in said.out


def test_a_shell_is_told_commands_and_runs(failed):
    said = failed(_ABREAST_COMPLETE="bash_complete", COMP_WORDS="abreast re", COMP_CWORD="1")
    assert said.lines == ["plain,resume", "plain,retry"]
    said = failed(_ABREAST_COMPLETE="bash_complete", COMP_WORDS="abreast show ", COMP_CWORD="2")
    assert said.lines == ["plain,map-1", "plain,last"]


def test_the_version_is_told(abreast):
    assert abreast("version").out == abreast("--version").out
    assert set(abreast("version", "--json").rows[0]) == {"abreast", "python", "sqlite"}


def test_help_imports_no_command_and_nothing_heavy(abreast):
    script = """
import sys
before = set(sys.modules)  # coverage may have imported modules already
from abreast.cli.main import run
code = run(["--help"])
heavy = {"rich", "sqlite3", "pyarrow", "abreast.cli.commands.map", \
"abreast.cli.jobs.map.driver"} & set(sys.modules) - before
sys.exit(f"imported {heavy}" if heavy else code)
"""
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=abreast.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert "Go on with a run that did not end." in process.stdout


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help(abreast, name):
    said = abreast(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: abreast {name}")


def beneath(command, words):
    """The commands of a command, with the words that call them, however deep."""
    for name, one in getattr(command, "commands", {}).items():
        yield (*words, name), one
        yield from beneath(one, (*words, name))


def test_every_command_of_a_command_has_help_that_names_its_options():
    found = dict(
        each for name in _COMMANDS for each in beneath(cli.get_command(None, name), (name,))
    )
    assert {("plan", "run"), ("matrix", "report"), ("demo", "crash")} <= found.keys()
    for words, command in found.items():
        said = CliRunner().invoke(cli, [*words, "--help"], prog_name="abreast")
        assert (said.exit_code, said.stderr) == (0, ""), words
        assert said.stdout.startswith(f"Usage: abreast {' '.join(words)}")
        assert command.help
        options = [option for option in command.params if not getattr(option, "hidden", False)]
        names = [name for option in options for name in option.opts if name.startswith("--")]
        assert [name for name in names if name not in said.stdout] == []
