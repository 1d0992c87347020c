"""`abreast store`: check, recover, backup, copy; and what the other commands say of damage."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from abreast.core.errors import StoreCorrupt
from abreast.limits.shared.exchange import exchange
from abreast.limits.shared.ledger import Report, Terms, Wish, ledger_text, read_ledger
from abreast.store.sqlite.store import SqliteStore

ITEMS = 30
LINES = "\n".join(map(str, range(ITEMS))) + "\n"


@pytest.fixture
def ran(abreast):
    abreast("map", "--store", "runs.db", "-q", "echo", "{}", given=LINES)
    return abreast


def flip(ran, what=b"item-settled"):
    """Flip one bit in one row of the finished store."""
    path = ran.folder / "runs.db"
    content = bytearray(path.read_bytes())
    content[content.rindex(what)] ^= 1
    path.write_bytes(content)
    return bytes(content)


def test_a_whole_store_is_ok(ran):
    said = ran("store", "check", "runs.db")
    assert said.code == 0
    assert "map-1  ok" in said.out
    [row] = ran("store", "check", "runs.db", "--run", "last", "--json").rows
    assert (row["run"], row["state"], row["faults"], row["lost"]) == ("map-1", "ok", [], [])
    assert row["rows"] == row["checked"] > ITEMS


@pytest.mark.parametrize(
    "command",
    [("show",), ("export",), ("resume",), ("retry",), ("watch",), ("export", "--html", "-o", "-")],
    ids=" ".join,
)
def test_one_flipped_bit_is_told_by_every_command_that_reads_the_run(ran, command):
    flip(ran)
    name, *more = command
    said = ran(name, "last", *more, "--store", "runs.db")
    assert said.code == 2
    assert "is damaged: row " in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("what", [b"item-settled", b"map-1"], ids=["an event", "the run itself"])
def test_one_flipped_bit_is_told_by_the_list_of_runs_and_the_others_are_listed(ran, what):
    ran("map", "--store", "runs.db", "-q", "--name", "other", "echo", "{}", given="1\n2\n")
    with closing(sqlite3.connect(ran.folder / "runs.db")) as db:
        if what == b"map-1":
            db.execute("UPDATE runs SET reason = 'changed' WHERE id = 'map-1'")
        else:
            db.execute("UPDATE events SET data = '{}' WHERE kind = 'item-settled' AND run = 1")
        db.commit()
    said = ran("runs", "--store", "runs.db")
    assert said.code == 2
    assert "run map-1" in said.err
    assert "abreast store check" in said.err
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["other-1"]
    said = ran("runs", "--store", "runs.db", "--json")
    assert (said.code, [row["run"] for row in said.rows]) == (2, ["other-1"])
    assert "run map-1" in said.err


def test_check_names_the_damaged_rows_and_items(ran):
    flip(ran)
    said = ran("store", "check", "runs.db", "--json")
    assert said.code == 1
    row = said.rows[-1]
    assert row["state"] == "damaged"
    assert [fault["what"] for fault in row["faults"]] == ["changed"]
    assert len(row["lost"]) == 1
    assert "row " in ran("store", "check", "runs.db").out


def test_check_says_that_a_file_is_no_store(abreast):
    (abreast.folder / "runs.db").write_bytes(b"no database" * 1000)
    said = abreast("store", "check", "runs.db", "--json")
    assert said.code == 1
    assert said.rows[0]["store"] == "damaged"
    assert abreast("store", "check", "none.db").code == 2


def test_what_is_whole_is_recovered_and_a_resume_runs_the_rest(ran):
    before = ran("export", "last", "--store", "runs.db").rows
    content = flip(ran)
    said = ran("store", "recover", "runs.db", "-o", "new.db")
    assert said.code == 1
    assert "lost: map/items/" in said.out
    assert (ran.folder / "runs.db").read_bytes() == content
    [row] = ran("runs", "--store", "new.db", "--json").rows
    assert row["state"] == "interrupted"
    assert row["items"]["done"] == ITEMS - 1
    assert ran("resume", "last", "--store", "new.db").code == 0
    [row] = ran("runs", "--store", "new.db", "--json").rows
    assert row["state"] == "done"

    def results(rows):
        return [(found["key"], found["state"], found["stdout"]) for found in rows]

    assert results(ran("export", "last", "--store", "new.db").rows) == results(before)
    assert ran("store", "check", "new.db").code == 0


def test_recover_copies_a_whole_store_and_overwrites_nothing(ran):
    said = ran("store", "recover", "runs.db", "-o", "new.db", "--json")
    assert said.code == 0
    assert said.rows[0]["kept"] == said.rows[0]["rows"]
    assert ran("store", "recover", "runs.db", "-o", "new.db").code == 2
    assert ran("store", "recover", "none.db", "-o", "other.db").code == 2
    assert not Path(ran.folder, "other.db").exists()


def test_a_backup_is_checked(ran):
    said = ran("store", "backup", "runs.db", "-o", "copy.db")
    assert (said.code, said.err) == (0, "abreast: 1 run(s) are in copy.db, and checked\n")
    assert ran("store", "backup", "runs.db", "-o", "copy.db", "--json").rows[0]["state"] == "ok"
    assert (
        ran("export", "last", "--store", "copy.db").out
        == ran("export", "last", "--store", "runs.db").out
    )
    flip(ran)
    assert ran("store", "backup", "runs.db", "-o", "copy.db").code == 1


def test_a_run_is_copied_to_another_store_and_never_over_one(ran):
    said = ran("store", "copy", "last", "--store", "runs.db", "--to", "other.db", "--json")
    assert said.code == 0
    assert said.rows[0]["state"] == "ok"
    assert (
        ran("export", "last", "--store", "other.db").out
        == ran("export", "last", "--store", "runs.db").out
    )
    again = ran("store", "copy", "last", "--store", "runs.db", "--to", "other.db")
    assert again.code == 2
    assert "not overwritten" in again.err
    told = ran("store", "copy", "map-1", "--store", "runs.db", "--to", "third.db").err
    assert told.startswith("abreast: copied map-1: ")


def test_an_unfinished_run_is_not_reported_as_complete(ran):
    """A run whose row says that it is done, though its driver never wrote that."""
    with closing(sqlite3.connect(ran.folder / "runs.db")) as db, db:
        db.execute("UPDATE events SET id = id + 500 WHERE kind = 'run-ended'")
    assert ran("show", "last", "--store", "runs.db").code == 2


# --- shared lanes


def test_shared_lanes_are_shown_and_forgotten(ran):
    path = ran.folder / "runs.db"
    assert "no lane is shared here" in ran("store", "lanes", "--store", "runs.db").err
    terms = Terms(4, {}, {"usd": 1.0}, "day")
    with closing(SqliteStore(path)) as store:

        def change(text, now):
            report = Report("a", 1, slots_wanted=2, budget=Wish({"usd": 0.5}, {"usd": 0.5}))
            ledger, _ = exchange(read_ledger(text), terms, report, now)
            report = Report(
                "a", 2, slots_taken=2, slots_wanted=2, freed={"usd": 0.5}, spent={"usd": 0.25}
            )
            return ledger_text(exchange(ledger, terms, report, now)[0])

        store.change_ledger("team", change)
    [row] = ran("store", "lanes", "--store", "runs.db", "--json").rows
    assert (row["lane"], row["spent"]) == ("team", {"usd": 0.25})
    said = ran("store", "lanes", "--store", "runs.db").out
    assert "team" in said
    assert "0.25 usd" in said
    said = ran("store", "lanes", "--store", "runs.db", "--forget", "other")
    assert (said.code, "lanes: team" in said.err) == (2, True)
    assert ran("store", "lanes", "--store", "runs.db", "--forget", "team").code == 0
    assert ran("store", "lanes", "--store", "runs.db", "--json").rows == []


def test_a_damaged_ledger_is_named_with_the_way_out(ran):
    path = ran.folder / "runs.db"
    with closing(SqliteStore(path)) as store:
        store.change_ledger("team", lambda text, now: "not a ledger")
    said = ran("store", "lanes", "--store", "runs.db")
    assert (said.code, "--forget team" in said.err) == (2, True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE ledgers SET body = '{}'")
    with closing(SqliteStore(path)) as store, pytest.raises(StoreCorrupt, match="--forget team"):
        store.change_ledger("team", lambda text, now: "{}")
