"""A write to another part's file is a request: its owner runs again with it, once."""

import json

from tests.cli.commands.test_plan import project

__all__ = ["project"]

# alpha renames x in its own file and in one of beta; beta does what it is asked for with `patch`.
ASKING = r"""
echo "$ABREAST_SUBPLAN" >> "$LOG/ran"
case $ABREAST_SCOPE in
    src/alpha/) sed -i 's/^x/z/' src/alpha/m1.py src/beta/m1.py ;;
    src/beta/)
        echo "# of beta" >> src/beta/m2.py
        if [ -n "$ABREAST_REQUESTS" ]; then
            printf '%s' {requests} > "$LOG/asked"
            [ -e "$LOG/fixed" ] || exit 7
            sed 1d "$ABREAST_REQUESTS_FILE" | git apply
        fi ;;
esac
"""


def ran(log):
    """How often each part ran."""
    counts = {}
    for line in (log / "ran").read_text().splitlines():
        counts[line.split("-")[1]] = counts.get(line.split("-")[1], 0) + 1
    return counts


def test_an_owner_runs_again_with_what_it_is_asked_for_and_nothing_else_does(project):
    log = project.folder / ".abreast/log"
    log.mkdir(parents=True)
    command = ("plan", "run", "--command", ASKING, "--include", "src")
    said = project(*command, LOG=str(log))
    # It failed in the second round, and is the only one that runs when it goes on.
    assert said.code == 1
    assert "round 2: src-beta-" in said.err
    assert "for changes of src/beta/m1.py" in said.err
    assert ran(log) == {"alpha": 1, "beta": 2, "delta": 1, "gamma": 1}
    asked = (log / "asked").read_text()
    assert asked.startswith("Part src-alpha-")
    assert "asks for this change of src/beta/m1.py:\ndiff --git" in asked
    assert "\n-x = 1\n+z = 1" in asked
    (log / "fixed").touch()
    said = project("plan", "resume", "--json", LOG=str(log))
    assert said.code == 0, said
    assert ran(log) == {"alpha": 1, "beta": 3, "delta": 1, "gamma": 1}
    rounds = {one["leaf"].split("-")[1]: one["round"] for one in json.loads(said.out)["subplans"]}
    assert rounds == {"alpha": 1, "beta": 2, "delta": 1, "gamma": 1}
    assert "is done" in project("resume", "plan-1").err
    said = project("plan", "apply", "plan-1", "--no-gate")
    assert said.code == 0, said
    assert "src/beta/m1.py: written by src-alpha-" in said.err
    assert (project.folder / "src/beta/m1.py").read_text() == "z = 1\n"
    # It started again from where it began: nothing is done twice.
    assert (project.folder / "src/beta/m2.py").read_text() == "x = 2\n# of beta\n"


def test_with_one_round_the_write_is_refused_and_the_option_that_lets_it_through_is_named(project):
    log = project.folder / ".abreast/log"
    log.mkdir(parents=True)
    options = ("--include", "src", "--rounds", "1")
    assert project("plan", "run", "--command", ASKING, *options, LOG=str(log)).code == 0
    assert ran(log) == {"alpha": 1, "beta": 1, "delta": 1, "gamma": 1}
    said = project("plan", "apply", "last")
    assert said.code == 1
    assert said.out.count("--outside allow lets it through") == 1
    assert project("plan", "apply", "last", "--outside", "allow", "--no-gate").code == 0
    assert (project.folder / "src/beta/m1.py").read_text() == "z = 1\n"
    assert (project.folder / "src/beta/m2.py").read_text() == "x = 2\n# of beta\n"


# Every part renames x in all files, those of the others too; beta writes more into its own.
EVERYWHERE = """
sed -i 's/^x/z/' src/*/*.py
case $ABREAST_SCOPE in src/beta/) echo "y = 1" >> src/beta/m1.py ;; esac
"""


def test_what_an_owner_has_made_itself_is_neither_asked_nor_refused(project):
    project.file("src/beta/m1.py", "x = 1\na = 1\nb = 1\n")
    said = project("plan", "run", "--command", EVERYWHERE, "--include", "src", "--json")
    assert said.code == 0, said
    assert "round 2" not in said.err
    said = project("plan", "apply", "last", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert (found["refused"], found["answered"], len(found["written"])) == ([], [], 24)
    assert (project.folder / "src/beta/m1.py").read_text() == "z = 1\na = 1\nb = 1\ny = 1\n"


def test_what_an_owner_has_made_only_in_part_is_asked(project):
    more = "src/alpha/) echo 'y = 2' >> src/beta/m1.py ;; src/beta/)"
    work = EVERYWHERE.replace("src/beta/)", more)
    said = project("plan", "run", "--command", work, "--include", "src")
    assert said.code == 0, said
    assert "src-beta-" in said.err
    assert "for changes of src/beta/m1.py" in said.err
    said = project("plan", "apply", "last")
    assert said.code == 1  # beta has not looked at the request
    assert "which was asked for it, and made the same as before; --outside allow" in said.out


def test_in_a_directory_of_a_repository_git_applies_requests_and_diffs_as_they_are(project):
    project.git("commit", "-qam", "two")
    work = """
case $ABREAST_SCOPE in
    alpha/) sed -i 's/^x/z/' beta/m1.py; git mv beta/m2.py beta/moved.py ;;
    beta/) git apply --allow-empty "$ABREAST_REQUESTS_FILE" ;;
esac
"""
    said = project("plan", "run", "src", "--command", work)
    assert said.code == 0, said
    patch = project("plan", "diff", "last", "beta/").out
    said = project("plan", "apply", "last", "--no-gate")
    assert said.code == 0, said
    beta = project.folder / "src/beta"
    assert (beta / "m1.py").read_text() == "z = 1\n"
    assert [(beta / name).exists() for name in ("m2.py", "moved.py")] == [False, True]
    made = project.git("status", "--porcelain")
    assert project("plan", "undo").code == 0
    (project.folder / "beta.patch").write_text(patch)
    for place in (".", "src"):
        project.git("-C", place, "apply", str(project.folder / "beta.patch"))
        assert project.git("status", "--porcelain").replace("?? beta.patch\n", "") == made
        project.git("-C", place, "apply", "-R", str(project.folder / "beta.patch"))
