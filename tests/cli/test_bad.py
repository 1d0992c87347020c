"""Bad usage and bad input: one clear sentence, the right exit code, no traceback, nothing lost."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import pytest

from tests.cli.shell import PATIENCE, Shell, end, unmeasured

MAP = ("map", "--", "true")


class Case(NamedTuple):
    """A command that must fail, and its message."""

    arguments: tuple[str, ...]
    sentence: str
    code: int
    given: str | bytes
    prepare: Callable[[Shell], object]


def bad(name, arguments, sentence, *, code=2, given="x\n", prepare=lambda _: None):
    return pytest.param(Case(arguments, sentence, code, given, prepare), id=name[:40])


def as_items(text):
    return lambda abreast: abreast.file("items", text)


def folder(name):
    return lambda abreast: (abreast.folder / name).mkdir()


def fifo(name):
    return lambda abreast: os.mkfifo(abreast.folder / name)


def module(text):
    return lambda abreast: abreast.file("work.py", text)


def store(text):
    return lambda abreast: abreast.file("runs.db", text)


def newer(abreast):
    assert abreast("map", "--store", "runs.db", "--", "true", given="x\n").code == 0
    with closing(sqlite3.connect(abreast.folder / "runs.db")) as db:
        db.execute("PRAGMA user_version = 999")


def of_another(abreast):
    with closing(sqlite3.connect(abreast.folder / "runs.db")) as db:
        db.execute("CREATE TABLE things (name TEXT)")


def damaged(abreast):
    assert abreast("map", "--store", "runs.db", "--", "true", given="x\n").code == 0
    path = abreast.folder / "runs.db"
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8000)


def one_run(abreast):
    assert abreast("map", "--name", "job", "--", "true", given="x\n").code == 0


def gone_directory(abreast):
    (abreast.folder / "inner").mkdir()
    assert (
        abreast(
            "map", "--budget", "1req", "--", "true", given="x\ny\n", cwd=abreast.folder / "inner"
        ).code
        == 3
    )
    (abreast.folder / "inner").rmdir()


def gone_command(abreast):
    tool = abreast.file("tool", "#!/bin/sh\n", 0o755)
    assert abreast("map", "--budget", "1req", "--", "./tool", given="x\ny\n").code == 3
    tool.unlink()


def gone_input(abreast):
    abreast.file("items", "x\n\xff\n".encode("latin-1"))
    assert abreast("map", "--input", "items", "--", "true").code == 2
    (abreast.folder / "items").unlink()


def option(flag, value, sentence):
    return bad(f"{flag} {value}", ("map", flag, value, "--", "true"), sentence)


NOT_WHOLE = "must be a whole number, not"
NO_TIME = "--timeout: must be a time such as"
NO_SIZE = "--keep: must be a size such as"
NO_AMOUNT = "is no amount; write 50req"

USAGE = [
    bad(
        "an item in shell code",
        ("map", "--", "sh", "-c", "echo {}"),
        "is shell code, in which an item's text would be run",
    ),
    bad(
        "an item in a login shell's code",
        ("map", "--", "/bin/bash", "-lc", "echo {key}"),
        "hand it over as an argument",
    ),
    bad(
        "runs in a state there is not", ("runs", "--state", "nosuch"), "there is no state 'nosuch'"
    ),
    bad("an unknown command", ("mpa",), "there is no command 'mpa'; did you mean map?"),
    bad(
        "a command that resembles none",
        ("xyzzy",),
        "there is no command 'xyzzy'; `abreast --help` lists them",
    ),
    bad("an unknown option", ("map", "--nope", "--", "true"), "no such option"),
    bad("an unknown option of the group", ("--nope",), "no such option"),
    bad("an option without its value", ("map", "--width"), "requires an argument"),
    bad(
        "no command",
        ("map",),
        "there is no command to run; write: abreast map -- COMMAND {} < items",
    ),
    bad("no command after the dashes", ("map", "--"), "there is no command to run"),
    bad("an empty command", ("map", "--", ""), "the command's name is empty"),
    bad(
        "a missing command",
        ("map", "--", "no-such-tool"),
        "there is no command 'no-such-tool' (it is not on the PATH)",
    ),
    bad("a missing path", ("map", "--", "./no-such-tool"), "it is not a program that can be run"),
    bad("a directory as a command", ("map", "--", "/tmp"), "it is not a program that can be run"),
    bad(
        "a file that is no program",
        ("map", "--", "./items"),
        "it is not a program that can be run",
        prepare=as_items("x"),
    ),
    option("--width", "0", "--width: it must be at least 1, not 0"),
    option("--width", "-1", "--width: it must be at least 1, not -1"),
    option("--width", "2.5", f"--width: {NOT_WHOLE} '2.5'"),
    option("--width", "many", f"--width: {NOT_WHOLE} 'many'"),
    option("--width", "nan", f"--width: {NOT_WHOLE} 'nan'"),
    option("--width", "", f"--width: {NOT_WHOLE} ''"),
    option("--width", "9" * 400, f"--width: {NOT_WHOLE}"),
    option("--width", "1e3", f"--width: {NOT_WHOLE} '1e3'"),
    option("-P", "0", "--width: it must be at least 1, not 0"),
    option("--width", "100000000", "need more open files"),
    option("--retries", "-1", "--retries: it must be at least 0, not -1"),
    option("--retries", "x", f"--retries: {NOT_WHOLE} 'x'"),
    option("--retries", "inf", f"--retries: {NOT_WHOLE} 'inf'"),
    option("--until", "0", "--until: it must be at least 1, not 0"),
    option("--until", "x", f"--until: {NOT_WHOLE} 'x'"),
    option("--until", "1.0", f"--until: {NOT_WHOLE} '1.0'"),
    option("--timeout", "0", NO_TIME),
    option("--timeout", "0s", NO_TIME),
    option("--timeout", "-5s", NO_TIME),
    option("--timeout", "nan", NO_TIME),
    option("--timeout", "inf", NO_TIME),
    option("--timeout", "5 parsecs", NO_TIME),
    option("--timeout", "s", NO_TIME),
    option("--timeout", "1e400", NO_TIME),
    option("--budget", "nan", NO_AMOUNT),
    option("--budget", "nanreq", NO_AMOUNT),
    option("--budget", "infusd", NO_AMOUNT),
    option("--budget", "", NO_AMOUNT),
    option("--budget", "5", NO_AMOUNT),
    option("--budget", "-5req", NO_AMOUNT),
    option("--budget", "5bananas", NO_AMOUNT),
    option("--budget", "5req,", NO_AMOUNT),
    option("--budget", "0req", "must be a positive number, not 0"),
    option("--budget", "0.5req", "must be a whole number, not 0.5"),
    option("--budget", "5req,6req", "the budget names requests twice"),
    option("--budget", "9" * 400 + "req", "must be a whole number, not inf"),
    option("--budget", "9" * 400 + "usd", "must be a positive number"),
    option("--keep", "0", NO_SIZE),
    option("--keep", "-1", NO_SIZE),
    option("--keep", "lots", NO_SIZE),
    option("--keep", "nan", NO_SIZE),
    option("--seed", "x", f"--seed: {NOT_WHOLE} 'x'"),
    option("--seed", "1.5", f"--seed: {NOT_WHOLE} '1.5'"),
    option("--name", "", "--name: a name must be a line of text"),
    option("--name", "a\nb", "--name: a name must be a line of text"),
    option("--name", "last", "'last' stands for the newest run"),
    option("--key", "fixed", "a key is made from the item"),
    option("--key", "{#}", "a key is made from the item"),
    option("--key", "{.id}", "--key: {.id} is a field of a JSON item; add --jsonl"),
    option("--executor", "process", "--executor is for --call"),
    bad(
        "a field without --jsonl",
        ("map", "--", "echo", "{.id}"),
        "the command: {.id} is a field of a JSON item; add --jsonl",
    ),
    bad(
        "a path's part with --jsonl",
        ("map", "--jsonl", "--", "echo", "{/}"),
        "{/} works on lines that are paths",
    ),
    bad(
        "a command and a call",
        ("map", "--call", "os:getpid", "--", "true"),
        "--call and a command exclude each other",
    ),
    bad(
        "an unknown executor",
        ("map", "--call", "os.path:basename", "--executor", "rays"),
        "there is no executor 'rays'",
    ),
    bad(
        "resources that are no numbers",
        ("map", "--call", "os.path:basename", "--executor", "ray:GPU"),
        "write resources as ray:GPU=1,CPU=4",
    ),
    bad(
        "resources of another executor",
        ("map", "--call", "os.path:basename", "--executor", "process:CPU=1"),
        "there is no executor 'process:CPU=1'",
    ),
    bad(
        "a prompt on a cluster",
        ("map", "--prompt", "Say {}", "-m", "local/smollm2", "--executor", "ray"),
        "models are called from here",
    ),
    bad(
        "a call without a function",
        ("map", "--call", "os"),
        "'os' is no function; write it as pkg.mod:function",
    ),
    bad("a call without a module", ("map", "--call", ":f"), "is no function"),
    bad("a call of nonsense", ("map", "--call", "a b:c d"), "is no function"),
    bad("a call of nothing", ("map", "--call", ""), "there is no command to run"),
    bad(
        "a missing module", ("map", "--call", "no_such.mod:f"), "there is no module 'no_such' here"
    ),
    bad("a missing function", ("map", "--call", "os:no_such"), "os has no 'no_such'"),
    bad(
        "something that is no function",
        ("map", "--call", "os:sep"),
        "os:sep is not a function, but str",
    ),
    bad(
        "a module with a mistake",
        ("map", "--call", "work:f"),
        "work can't be imported (SyntaxError",
        prepare=module("def f(:\n"),
    ),
    bad(
        "a module that raises",
        ("map", "--call", "work:f"),
        "work can't be imported (ZeroDivisionError",
        prepare=module("1/0"),
    ),
    bad(
        "a module that exits",
        ("map", "--call", "work:f"),
        "work can't be imported (SystemExit",
        prepare=module("raise SystemExit(3)"),
    ),
    bad(
        "a module that misses one",
        ("map", "--call", "work:f"),
        "work can't be imported: No module named",
        prepare=module("import nope"),
    ),
]

INPUT = [
    bad(
        "a missing input",
        ("map", "--input", "no-such", "--", "true"),
        "no-such can't be read: no such file or directory",
    ),
    bad(
        "a directory as input", ("map", "--input", ".", "--", "true"), "is a directory; name a file"
    ),
    bad(
        "an input below a file",
        ("map", "--input", "items/x", "--", "true"),
        "not a directory",
        prepare=as_items("x"),
    ),
    bad(
        "an input that can't be read",
        ("map", "--input", "/proc/self/mem", "--", "true"),
        "can't be read: input/output error",
    ),
    bad(
        "an input with a NUL in its name",
        ("map", "--input", "a\nb", "--", "true"),
        "can't be read: no such file or directory",
    ),
    bad(
        "no UTF-8", MAP, "the input, line 2: it is not UTF-8 (0xff at byte 2)", given=b"ok\nx\xff\n"
    ),
    bad("UTF-16", MAP, "it is not UTF-8 (0xff at byte 1)", given="x\n".encode("utf-16")),
    bad("a NUL in a line", MAP, "line 1: it contains a NUL character", given=b"a\0b\n"),
    bad("a line of 20 MB", MAP, "line 1: it is longer than 16 MiB", given=b"x" * 20_000_000),
    bad(
        "a line of 20 MB after others",
        MAP,
        "line 3: it is longer than 16 MiB",
        given=b"1\n2\n" + b"x" * 20_000_000,
    ),
    bad(
        "no JSON",
        ("map", "--jsonl", "--", "true"),
        "line 2: it is not JSON (Expecting value at column 1)",
        given="1\nx\n",
    ),
    bad("half JSON", ("map", "--jsonl", "--", "true"), "it is not JSON", given='{"a": \n'),
    bad("JSON with NaN", ("map", "--jsonl", "--", "true"), "NaN is not JSON", given="NaN\n"),
    bad(
        "JSON with infinity",
        ("map", "--jsonl", "--", "true"),
        "-Infinity is not JSON",
        given="[-Infinity]\n",
    ),
    bad(
        "JSON nested too deeply",
        ("map", "--jsonl", "--", "true"),
        "nested too deeply",
        given="[" * 100_000 + "\n",
    ),
    bad(
        "a number of too many digits",
        ("map", "--jsonl", "--", "true"),
        "line 1: ",
        given="9" * 5000 + "\n",
    ),
    bad(
        "a field that isn't there",
        ("map", "--jsonl", "--", "echo", "{.id}"),
        "line 1: it has no field .id",
        given="{}\n",
    ),
    bad(
        "a field of a number",
        ("map", "--jsonl", "--", "echo", "{.a.b}"),
        "it has no field .a.b",
        given='{"a": 3}\n',
    ),
    bad(
        "an index that isn't there",
        ("map", "--jsonl", "--", "echo", "{.2}"),
        "it has no field .2",
        given="[1, 2]\n",
    ),
    bad(
        "a NUL in a field",
        ("map", "--jsonl", "--", "echo", "{.a}"),
        "it contains a NUL",
        given='{"a": "\\u0000"}\n',
    ),
    bad(
        "half a surrogate pair",
        ("map", "--jsonl", "--", "echo", "{.a}"),
        "half a surrogate pair",
        given='{"a": "\\ud800"}\n',
    ),
    bad(
        "an empty key",
        ("map", "--jsonl", "--key", "{.a}", "--", "true"),
        "its key is empty",
        given='{"a": ""}\n',
    ),
    bad(
        "a key that isn't there",
        ("map", "--jsonl", "--key", "{.a}", "--", "true"),
        "it has no field .a",
        given="{}\n",
    ),
    bad(
        "a key twice",
        ("map", "--key", "{}", "--", "true"),
        "two items have the key 'a'",
        given="a\nb\na\n",
    ),
    bad(
        "a dry run of no JSON",
        ("map", "--dry-run", "--jsonl", "--", "true"),
        "it is not JSON",
        given="x\n",
    ),
    bad(
        "a dry run of no input",
        ("map", "--dry-run", "--input", "nope", "--", "true"),
        "can't be read",
    ),
]

STORES = [
    bad(
        "a store that is none",
        ("map", "--store", "runs.db", "--", "true"),
        "is not an abreast store, or is damaged",
        prepare=store("no " * 400),
    ),
    bad(
        "a listing of no store",
        ("runs", "--store", "runs.db"),
        "is not an abreast store",
        prepare=store("no " * 400),
    ),
    bad("a damaged store", ("runs", "--store", "runs.db"), "damaged", prepare=damaged),
    bad(
        "a store of a later abreast",
        ("map", "--store", "runs.db", "--", "true"),
        "made by a later abreast; this one knows",
        prepare=newer,
    ),
    bad(
        "a listing of a later store",
        ("runs", "--store", "runs.db"),
        "update abreast, or use another with --store",
        prepare=newer,
    ),
    bad(
        "another program's database",
        ("map", "--store", "runs.db", "--", "true"),
        "a database of another program",
        prepare=of_another,
    ),
    bad(
        "a directory as a store",
        ("map", "--store", "dir", "--", "true"),
        "is a directory, not an abreast store",
        prepare=folder("dir"),
    ),
    bad(
        "a FIFO as a store",
        ("map", "--store", "pipe", "--", "true"),
        "is not a file, so it can't be a store",
        prepare=fifo("pipe"),
    ),
    bad(
        "a device as a store",
        ("map", "--store", "/dev/null", "--", "true"),
        "is not a file, so it can't be a store",
    ),
    bad(
        "a store below a file",
        ("map", "--store", "items/x.db", "--", "true"),
        "can't be used",
        code=1,
        prepare=as_items("x"),
    ),
    bad(
        "a store where none can be",
        ("map", "--store", "/proc/x/y.db", "--", "true"),
        "/proc/x/y.db",
        code=1,
    ),
    bad("an empty store name", ("map", "--store", "", "--", "true"), "--store: must be a text"),
    bad(
        "a store of an unknown kind",
        ("map", "--store", "redis://x", "--", "true"),
        "there is no store for redis://",
    ),
    bad("a store that isn't there", ("show", "last", "--store", "no.db"), "there is no store at"),
    bad("no store yet", ("resume",), "there is no store at"),
]

RUNS = [
    bad(
        "an unknown run",
        ("show", "jbo-1"),
        "there is no run 'jbo-1'; did you mean job-1?",
        prepare=one_run,
    ),
    bad("an unknown run to resume", ("resume", "nope"), "there is no run 'nope'", prepare=one_run),
    bad("an unknown run to retry", ("retry", "nope"), "there is no run 'nope'", prepare=one_run),
    bad("an unknown run to cancel", ("cancel", "nope"), "there is no run 'nope'", prepare=one_run),
    bad("an unknown run to export", ("export", "nope"), "there is no run 'nope'", prepare=one_run),
    bad(
        "an unknown run to remove",
        ("rm", "job-1", "nope"),
        "there is no run 'nope'",
        prepare=one_run,
    ),
    bad("no run to show", ("show",), "missing argument 'RUN'"),
    bad("no run to remove", ("rm",), "missing argument 'RUN...'"),
    bad(
        "an unknown item",
        ("show", "job", "0007"),
        "nothing is recorded of an item '0007' in job-1",
        prepare=one_run,
    ),
    bad(
        "an unknown item to retry",
        ("retry", "job", "0007"),
        "nothing is recorded of an item",
        prepare=one_run,
    ),
    bad(
        "an item that did not fail",
        ("retry", "job", "0000"),
        "is done, not failed",
        prepare=one_run,
    ),
    bad("too many arguments", ("show", "a", "b", "c"), "got unexpected extra argument"),
    bad(
        "an unknown format",
        ("export", "job", "--format", "xml"),
        "there is no format 'xml'",
        prepare=one_run,
    ),
    bad(
        "an export into a directory",
        ("export", "job", "-o", "."),
        "can't be written",
        code=1,
        prepare=one_run,
    ),
    bad(
        "an export nowhere",
        ("export", "job", "-o", "no/where"),
        "can't be written: no such file",
        code=1,
        prepare=one_run,
    ),
    bad("a prune without an age", ("prune",), "missing option '--older-than'"),
    bad("a prune of no age", ("prune", "--older-than", "x"), "--older-than: must be a time"),
    bad(
        "a prune of a negative age",
        ("prune", "--older-than", "-1d"),
        "--older-than: must be a time",
    ),
    bad(
        "a prune of an unknown state",
        ("prune", "--older-than", "1d", "--state", "x"),
        "there is no state 'x'",
    ),
    bad("a listing of none", ("runs", "--limit", "0"), "--limit: it must be at least 1"),
    bad("an unknown shell", ("completion", "tcsh"), "there is no completion for 'tcsh'"),
    bad(
        "a resume with a bad width",
        ("resume", "map", "--width", "0"),
        "it must be at least 1",
        prepare=gone_input,
    ),
    bad(
        "a resume where nothing is any more",
        ("resume", "last"),
        "which is gone",
        prepare=gone_directory,
    ),
    bad(
        "a resume without its command",
        ("resume", "last"),
        "there is no command './tool'",
        prepare=gone_command,
    ),
    bad(
        "a resume without its input", ("resume", "last"), "items can't be read", prepare=gone_input
    ),
]

FAILURES = [
    bad(
        "an item too long for an argument",
        MAP,
        "its arguments and environment are too long",
        code=1,
        given="x" * 200_000,
    ),
    bad(
        "a command named by the item",
        ("map", "--", "{}"),
        "there is no such command",
        code=1,
        given="no-such-tool\n",
    ),
    bad(
        "a command that kills itself",
        ("map", "--", "sh", "-c", "kill -9 $$"),
        "failed: killed by SIGKILL",
        code=1,
    ),
    bad(
        "a function that raises",
        ("map", "--call", "work:f"),
        "failed: ZeroDivisionError: division by zero",
        code=1,
        prepare=module("def f(x):\n    return 1/0\n"),
    ),
    bad(
        "a function that exits",
        ("map", "--call", "work:f"),
        "failed: SystemExit: 3",
        code=1,
        prepare=module("def f(x):\n    raise SystemExit(3)\n"),
    ),
    bad(
        "a function of no arguments",
        ("map", "--call", "work:f"),
        "failed: TypeError",
        code=1,
        prepare=module("def f():\n    pass\n"),
    ),
    bad(
        "a value that can't be stored",
        ("map", "--call", "work:f"),
        "can't be stored",
        code=1,
        prepare=module("def f(x):\n    return lambda: x\n"),
    ),
    bad(
        "a flood",
        ("map", "--keep", "1MiB", "--", "sh", "-c", "yes | head -c 5000000"),
        "raise --keep",
        code=1,
    ),
    bad("a lasting flood", ("map", "--timeout", "1s", "--", "yes"), "took longer than 1 s", code=1),
    bad(
        "a command that forks and stays",
        ("map", "--timeout", "1s", "--", "sh", "-c", "(sleep 600 &) ; (sleep 600 &); sleep 600"),
        "took longer than 1 s",
        code=1,
    ),
]


CASES = USAGE + INPUT + STORES + RUNS + FAILURES


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_in_one_sentence(abreast, case):
    case.prepare(abreast)
    said = abreast(*case.arguments, given=case.given)
    assert said.code == case.code, said.err
    lines = said.err.splitlines()
    assert case.sentence in lines[0], said.err
    assert len(lines) <= (1 if case.code == 2 else 2), said.err
    assert all(line.startswith("abreast: ") for line in lines)
    assert all(len(line) < 1000 for line in lines)


# One of each kind of error, run in a new interpreter.
ANEW = {
    "an unknown command",
    "an unknown option of the group",
    "a missing path",
    "--width 2.5",
    "a module that exits",
    "a directory as input",
    "UTF-16",
    "a line of 20 MB",
    "JSON nested too deeply",
    "a damaged store",
    "a FIFO as a store",
    "an unknown run",
    "an unknown shell",
    "a resume without its input",
    "an item too long for an argument",
    "a command that kills itself",
    "a function that exits",
}


@pytest.mark.parametrize("case", [case for case in CASES if case.id in ANEW])
def test_a_new_interpreter_says_the_same(abreast, tmp_path, case):
    (tmp_path / "another").mkdir()
    another = Shell(tmp_path / "another")
    another.environment = unmeasured(another.environment)
    said = []
    for shell, run in ((abreast, abreast), (another, another.anew)):
        case.prepare(shell)
        found = run(*case.arguments, given=case.given)
        said.append(
            (
                found.code,
                re.sub(r"\d+\.\d+ s", "TIME", found.err.replace(str(shell.folder), "HERE")),
            )
        )
    assert said[0] == said[1]
    assert said[1][0] == case.code
    assert case.sentence in said[1][1]


def test_there_are_more_than_a_hundred_of_them_and_of_each_kind_one_is_started_anew():
    assert len(CASES) > 150
    assert {case.id for case in CASES} >= ANEW


def test_a_store_that_somebody_keeps_locked_is_not_waited_for_for_ever(abreast):
    assert abreast("map", "--store", "runs.db", "--", "true", given="x\n").code == 0
    with closing(sqlite3.connect(abreast.folder / "runs.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        said = abreast(
            "map", "--store", "runs.db", "--", "true", given="x\n", ABREAST_PATIENCE="50ms"
        )
    assert said.code == 1
    assert "was kept locked by another process for too long; end that process" in said.err
    assert said.err.count("\n") == 1


def test_a_run_whose_store_is_removed_says_so_and_does_not_seem_to_be_done(abreast):
    said = abreast(
        "map", "--width", "1", "--store", "runs.db", "--", "rm", "-f", given="runs.db\n" * 20
    )
    assert said.code == 1
    assert (
        "runs.db was removed or replaced while it was in use: nothing more can be recorded\n"
        in said.err
    )
    assert "Traceback" not in said.err


def test_a_store_that_can_no_longer_grow_ends_the_run_and_keeps_what_is_recorded(abreast):
    abreast.file("items", "".join(f"{number}\n" for number in range(320)))
    script = (
        "ulimit -f 1600; "
        'exec "$0" -m abreast map --input items -- sh -c "yes long | head -c 3000" sh'
    )
    process = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=abreast.folder,
        env=abreast.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 1
    assert "can't grow" in process.stderr
    assert "abreast resume map-1" in process.stderr
    assert process.stderr.count("\n") == 1
    whole = len(process.stdout) // 3000
    recorded = abreast.recorded()
    assert len(recorded) >= whole > 0
    again = abreast("resume", "map-1")
    assert again.code == 0
    assert again.out == "long\n" * 600 * 320


def test_an_input_that_may_not_be_read(abreast):
    path = abreast.file("items", "x\n", 0o000)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    said = abreast("map", "--input", "items", "--", "true")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "permission denied" in said.err


def test_the_current_directory_may_be_gone(abreast):
    command = 'mkdir gone; cd gone; rmdir ../gone; exec "$0" -m abreast map -- true'
    process = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=abreast.folder,
        env=abreast.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr == "abreast: the current directory is gone; go to one that exists\n"


def test_a_fifo_without_items_is_no_items(abreast):
    os.mkfifo(abreast.folder / "items")
    with abreast.start("map", "--input", "items", "--", "true") as process:
        with (abreast.folder / "items").open("w"):
            pass
        said = end(process)
    assert (said.code, said.err) == (0, "")


def test_what_was_read_before_a_bad_line_is_done_and_the_rest_follows_once_it_is_mended(abreast):
    said = abreast("map", "--jsonl", "--", "echo", "got", given="1\n2\nno\n4\n")
    assert said.code == 2
    assert said.lines == ["got 1", "got 2"]
    assert "the input, line 3: it is not JSON" in said.err
    again = abreast("resume", "last", given="1\n2\n3\n4\n")
    assert (again.code, again.lines) == (0, ["got 1", "got 2", "got 3", "got 4"])


def test_a_fault_of_ours_is_one_line_and_its_traceback_for_those_who_ask(abreast):
    # A store that raises an unexpected error.
    broken = (
        "import abreast.assembly.names\n\ndef broken(*_, **__):\n"
        "    raise LookupError('oh\\nno')\n\n"
    )
    abreast.file("sitecustomize.py", f"{broken}abreast.assembly.names.find_store = broken\n")
    path = os.pathsep.join((str(abreast.folder), abreast.environment["PYTHONPATH"]))
    said = abreast(*MAP, given="x\n", PYTHONPATH=path)
    assert said.code == 1
    assert (
        said.err
        == "abreast: internal error: LookupError: oh no (-v shows where); please report it\n"
    )
    said = abreast("map", "-v", "--", "true", given="x\n", PYTHONPATH=path)
    assert "Traceback (most recent call last)" in said.err


@pytest.mark.parametrize("key", ["inputs", "strategies: {a: {prompt: x, schema: %s}}, inputs"])
def test_a_name_that_is_too_long_for_any_file_is_a_usage_error(abreast, key):
    long = "a" * 300
    body = key % long if "%s" in key else key
    abreast.file("job.yaml", f"matrix: {{models: [local/smollm2], {body}: {long}.jsonl}}\n")
    said = abreast("run", "job.yaml", "--dry-run")
    assert said.code == 2
    assert "internal" not in said.err
