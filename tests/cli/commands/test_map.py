"""`abreast map`: a command per line, in order, whatever is in the lines."""

import json
import stat
from pathlib import Path

import pytest

from tests.cli.shell import unmeasured


def numbers(count):
    return "".join(f"{number}\n" for number in range(1, count + 1))


def test_a_command_runs_for_each_line_and_outputs_leave_in_item_order(abreast):
    # The first item can only end after the last one has, so the order is not that of their ends.
    wait = (
        'if [ "$1" = 1 ]; then until [ -e last ]; do :; done; fi; if [ "$1" = 8 ]; '
        'then touch last; fi; echo "got $1"'
    )
    said = abreast("map", "--width", "8", "--", "sh", "-c", wait, "sh", "{}", given=numbers(8))
    assert (said.code, said.err) == (0, "")
    assert said.lines == [f"got {number}" for number in range(1, 9)]


def test_width_is_reached_and_never_passed(abreast):
    # Each item waits until four are there, which a serial map never comes to; a fifth would be seen
    # in the directory.
    wait = "until [ $(ls {0} | wc -l) -ge 4 ]; do :; done"
    meet = (
        f"touch here/$1; {wait.format('here')}; ls here | wc -l; touch gone/$1; "
        f"{wait.format('gone')}"
    )
    (abreast.folder / "here").mkdir()
    (abreast.folder / "gone").mkdir()
    said = abreast("map", "-P", "4", "--", "sh", "-c", meet, "sh", "{}", given=numbers(4))
    assert said.code == 0
    assert {line.strip() for line in said.lines} == {"4"}
    assert abreast("show", "last", "--json").rows[0]["items"]["done"] == 4


@pytest.mark.parametrize("flag", ["--width", "-w", "-P", "-j", "--jobs", "--max-procs"])
def test_the_width_goes_by_the_names_that_xargs_and_parallel_have_for_it(abreast, flag):
    said = abreast(
        "map",
        flag,
        "1",
        "--",
        "sh",
        "-c",
        "mkdir busy && echo alone && rmdir busy",
        given=numbers(5),
    )
    assert (said.code, said.lines) == (0, ["alone"] * 5)


NASTY = [
    "a b",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "'",
    '"',
    "-n",
    "--",
    "*",
    "~",
    "\\",
    "{}",
    "ümläut 🙂",
    "\t",
]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_is_one_argument_whatever_is_in_it(abreast, value):
    said = abreast("map", "--", "printf", "<%s>", "{}", given=value + "\n")
    assert (said.code, said.out) == (0, f"<{value}>")
    assert not (abreast.folder / "pwned").exists()


def test_the_item_is_appended_if_no_placeholder_names_it(abreast):
    assert abreast("map", "--", "echo", "-", given="x\n").lines == ["- x"]
    assert abreast("map", "--", "echo", "{#}", given="x\n").lines == ["1 x"]
    assert abreast("map", "--", "echo", "{}{}", given="x\n").lines == ["xx"]


def test_placeholders_are_filled_in(abreast):
    said = abreast(
        "map", "--key", "k-{}", "--", "echo", "{#}", "{key}", "[{}]", "{other}", given="a\nb\n"
    )
    assert said.lines == ["1 k-a [a] {other}", "2 k-b [b] {other}"]
    said = abreast("map", "--", "echo", "{.}", "{/}", "{//}", "{/.}", given="dir/file.tar.gz\n")
    assert said.lines == ["dir/file.tar file.tar.gz dir file.tar"]


def test_fields_of_json_lines_are_filled_in(abreast):
    row = {
        "id": 7,
        "user": {"name": "Ann B"},
        "tags": ["x", "y"],
        "on": True,
        "none": None,
        "f": 1.5,
    }
    fields = ["{.user.name}", "{.tags.1}", "{.on}", "{.none}", "{.f}", "{.user}", "{key}"]
    said = abreast(
        "map", "--jsonl", "--key", "{.id}", "--", "printf", "%s|", *fields, given=json.dumps(row)
    )
    assert said.out == 'Ann B|y|true|null|1.5|{"name":"Ann B"}|7|'
    said = abreast("map", "--jsonl", "--", "printf", "%s|", given='{"a": "ü"}\n"text"\n3\n\n')
    assert said.out == '{"a":"ü"}|text|3|'


def test_items_may_be_separated_by_nul_and_empty_lines_are_passed_over(abreast):
    assert abreast("map", "-0", "--", "printf", "<%s>", given=b"a\nb\0c").out == "<a\nb><c>"
    assert abreast("map", "--", "printf", "<%s>", given="\na\n\n\nb").out == "<a><b>"


def test_no_items_are_done_at_once(abreast):
    said = abreast("map", "--", "false")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_items_come_from_a_file_too(abreast):
    abreast.file("items", numbers(3))
    assert abreast("map", "--input", "items", "--", "echo").lines == ["1", "2", "3"]
    assert abreast("map", "-a", "items", "--", "echo").lines == ["1", "2", "3"]


def test_an_item_that_fails_is_told_and_the_rest_goes_on(abreast):
    said = abreast(
        "map",
        "--",
        "sh",
        "-c",
        'echo "out $1"; echo "err $1" >&2; [ "$1" != 2 ]',
        "sh",
        "{}",
        given=numbers(3),
    )
    assert said.code == 1
    assert said.lines == ["out 1", "out 2", "out 3"]
    assert said.err.splitlines() == [
        "err 1",
        "err 2",
        "abreast: item 0001 failed: exit code 1: err 2",
        "err 3",
        said.err.splitlines()[-1],
    ]
    assert "2 done, 1 failed" in said.err
    assert "abreast retry map-1" in said.err


def test_bytes_that_are_no_text_come_out_as_they_went_in(abreast):
    process = abreast("map", "--json", "--", "printf", "\\377\\000{}", given="x\n").rows[0]
    assert process["stdout"] == "\ufffd\0x"
    assert process["stdout_base64"] == "/wB4"
    assert abreast("export", "last").rows[0]["stdout_base64"] == "/wB4"
    assert abreast("map", "--", "printf", "\\377{}", given="x\n").out == "\ufffdx"


def test_json_is_one_object_per_item(abreast):
    said = abreast(
        "map",
        "--json",
        "--",
        "sh",
        "-c",
        'echo o; echo e >&2; exit "$1"',
        "sh",
        "{}",
        given="0\n3\n",
    )
    assert said.code == 1
    good, bad = said.rows
    assert good == {
        "run": "map-1",
        "key": "0000",
        "index": 0,
        "state": "done",
        "exit_code": 0,
        "stdout": "o\n",
        "stderr": "e\n",
        "attempts": 1,
        "seconds": good["seconds"],
    }
    assert (bad["state"], bad["exit_code"], bad["stdout"], bad["stderr"]) == (
        "failed",
        3,
        "o\n",
        "e\n",
    )
    assert bad["error"] == {
        "type": "abreast.cli.jobs.map.command.CommandFailed",
        "message": "exit code 3: e",
    }


def test_halt_ends_at_the_first_failure_in_item_order(abreast):
    # Item 3 fails only after item 6 has: which of them is first is a question of order, not of
    # time.
    script = (
        "case $1 in 3) until [ -e six ]; do :; done; exit 1;; 6) touch six; exit 1;; "
        "*) echo $1;; esac"
    )
    said = abreast(
        "map", "--halt", "-P", "8", "--", "sh", "-c", script, "sh", "{}", given=numbers(8)
    )
    assert said.code == 1
    assert said.lines == ["1", "2"]
    assert "item 0002 failed" in said.err
    assert "0005" not in said.err
    assert [row["key"] for row in abreast("export", "last").rows] == ["0000", "0001", "0002"]


def test_until_ends_after_so_many_successes(abreast):
    said = abreast(
        "map",
        "--until",
        "2",
        "-P",
        "1",
        "--",
        "sh",
        "-c",
        '[ "$1" -gt 2 ] && echo $1',
        "sh",
        "{}",
        given=numbers(9),
    )
    assert (said.code, said.lines) == (0, ["3", "4"])
    assert [row["state"] for row in abreast("export", "last").rows] == [
        "failed",
        "failed",
        "done",
        "done",
    ]
    short = abreast("map", "--until", "5", "--", "true", given=numbers(2))
    assert short.code == 1
    assert "5 were wanted" in short.err


def test_a_failing_item_is_retried(abreast):
    script = 'echo x >> tries; [ $(wc -l < tries) -ge 3 ] && echo "$1"'
    said = abreast(
        "map", "--retries", "2", "--", "sh", "-c", script, "sh", "{attempt}", given="x\n"
    )
    assert (said.code, said.lines) == (0, ["3"])
    assert abreast("export", "last").rows[0]["attempts"] == 3


def test_an_attempt_past_its_timeout_is_ended_with_all_that_it_started(abreast):
    script = "sleep 600 & echo $! > pid; wait"
    said = abreast("map", "--timeout", "2s", "--", "sh", "-c", script, given="x\n")
    assert said.code == 1
    assert "took longer than 2 s" in said.err
    assert not Path("/proc", (abreast.folder / "pid").read_text().strip()).exists()


def test_a_spent_budget_stops_the_run_which_can_go_on_with_a_larger_one(abreast):
    said = abreast(
        "map",
        "--budget",
        "3req",
        "--",
        "sh",
        "-c",
        "echo x >> ran; echo $1",
        "sh",
        "{}",
        given=numbers(5),
    )
    assert said.code == 3
    assert said.lines == ["1", "2", "3"]
    assert "the budget is spent" in said.err
    assert "abreast resume map-1 --budget" in said.err
    assert abreast("resume", "map-1").code == 3
    again = abreast("resume", "map-1", "--budget", "10req")
    assert (again.code, again.lines) == (0, ["1", "2", "3", "4", "5"])
    assert (abreast.folder / "ran").read_text().count("x") == 5


def test_a_budget_of_time_stops_the_run(abreast):
    said = abreast(
        "map",
        "--budget",
        "1s",
        "-P",
        "1",
        "--",
        "sh",
        "-c",
        '[ "$1" = 1 ] || sleep 600',
        "sh",
        "{}",
        given=numbers(5),
    )
    assert said.code == 3
    assert "budget of 1 seconds is spent" in said.err


def test_dry_run_prints_the_commands_and_leaves_nothing(abreast):
    said = abreast("map", "--dry-run", "--", "echo", "a b", "{}", given="x y\n")
    assert said.out == "echo 'a b' 'x y'\n"
    rows = abreast("map", "--dry-run", "--json", "--", "echo", "{}", given="x y\n").rows
    assert rows == [{"key": "0000", "index": 0, "argv": ["echo", "x y"]}]
    assert not abreast.store.exists()


def test_a_dry_run_of_prompts_says_that_its_cost_is_an_estimate(abreast):
    priced = '[lanes.x]\nbase_url = "http://127.0.0.1:9"\nprice = {input = 1.0, output = 10.0}\n'
    (abreast.folder / "abreast.toml").write_text(priced)
    words = ("map", "--dry-run", "--prompt", "Say {}", "-m", "x/y", "--max-tokens", "100")
    said = abreast(*words, given="a\nb\n")
    assert said.lines == ["x/y 'Say a'", "x/y 'Say b'"]
    assert "2 calls, 218 tokens, 0.002018 usd: estimated, without retries" in said.err


def test_the_store_is_the_projects_own_and_private(abreast):
    inner = abreast.folder / "src/deep"
    inner.mkdir(parents=True)
    assert abreast("map", "--", "pwd", given="-L\n", cwd=inner).lines == [str(inner)]
    assert stat.S_IMODE(abreast.store.stat().st_mode) == 0o600
    assert (abreast.folder / ".abreast/.gitignore").read_text() == "*\n"


def test_children_learn_their_run_and_the_seed_of_their_item(abreast):
    command = ("--", "sh", "-c", 'echo "$ABREAST_RUN_ID $1"', "sh", "{seed}")
    first = abreast("map", "--seed", "7", "--name", "job", *command, given="x\ny\n")
    second = abreast("map", "--seed", "7", "--name", "job", *command, given="x\ny\n")
    (run, seed), (_, other) = (line.split() for line in first.lines)
    assert run == "job-1"
    assert seed != other
    assert second.lines == [f"job-2 {seed}", f"job-2 {other}"]


def test_a_python_function_is_called_for_each_item(abreast):
    abreast.file(
        "tools/work.py",
        (
            "async def double(n):\n    return {'twice': n * 2}\n\ndef shout(text):\n"
            "    return text.upper()\n"
        ),
    )
    said = abreast("map", "--call", "tools.work:shout", given="a\nb\n")
    assert (said.code, said.lines, said.err) == (0, ["A", "B"], "")
    said = abreast("map", "--jsonl", "--call", "tools.work:double", given="1\n2\n")
    assert said.rows == [{"twice": 2}, {"twice": 4}]
    assert abreast("export", "last").rows[1]["value"] == {"twice": 4}
    said = abreast("map", "--jsonl", "--json", "--call", "tools.work:double", given='1\n{"a": 1}\n')
    assert said.code == 1
    assert [row["state"] for row in said.rows] == ["done", "failed"]
    assert said.rows[1]["error"]["type"] == "TypeError"


def test_a_python_function_may_be_called_in_processes(abreast):
    abreast.file("work.py", "import os\n\ndef where(text):\n    return os.getpid()\n")
    said = abreast("map", "--call", "work:where", "--executor", "process", given="a\nb\n")
    assert said.code == 0, said.err
    assert len(said.lines) == 2


def test_quiet_says_nothing_of_failures_but_the_exit_code(abreast):
    said = abreast("map", "--quiet", "--", "false", given="x\n")
    assert (said.code, said.out, said.err) == (1, "", "")


def test_verbose_names_the_run(abreast):
    said = abreast("map", "-v", "--", "true", given="x\n")
    assert "run map-1 in sqlite:///" in said.err
    assert "1 done" in said.err


def test_more_output_than_is_kept_is_a_failure_that_keeps_the_beginning(abreast):
    said = abreast("map", "--keep", "1k", "--", "sh", "-c", "yes | head -c 1000000", given="x\n")
    assert said.code == 1
    assert len(said.out) == 1024
    assert "wrote 1000000 bytes to stdout, and 1024 are kept; raise --keep" in said.err
    assert abreast("show", "last", "0000", "--json").rows[0]["stdout_bytes"] == 1_000_000
    assert (
        abreast(
            "map", "--keep", "1k", "--", "sh", "-c", "yes | head -c 100000 >&2", given="x\n"
        ).code
        == 0
    )


def test_a_command_that_leaves_a_process_behind_leaves_none(abreast):
    said = abreast("map", "--", "sh", "-c", "sleep 600 & echo $! > pid", given="x\n")
    assert said.code == 0
    assert not Path("/proc", (abreast.folder / "pid").read_text().strip()).exists()


LAST_WORDS = """
import atexit
import threading

def write(text):
    with open("said", "a") as file:
        file.write(text + " ")

def linger():
    threading.main_thread().join()
    write("thread")

def work(line):
    if not hasattr(work, "seen"):
        work.seen = True
        atexit.register(write, "exit")
        threading.Thread(target=linger, daemon=False).start()
    if line == "bad":
        raise ValueError("no")
    print("no newline", end="")
"""


@pytest.mark.parametrize(("line", "code"), [("good", 0), ("bad", 1)])
def test_a_function_s_threads_and_what_it_has_left_to_do_at_the_end_are_waited_for(
    abreast, line, code
):
    abreast.file("parts.py", LAST_WORDS)
    abreast.environment = unmeasured(
        abreast.environment
    )  # a measurement is registered first, and is the last
    said = abreast.anew("map", "--call", "parts:work", given=line)
    assert (said.code, (abreast.folder / "said").read_text()) == (code, "thread exit ")
    assert ("no newline" in said.out) == (line == "good")
