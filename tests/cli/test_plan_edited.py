"""`plan show -o`, and `plan run` of what people make of that file."""

import json

from abreast.jobs.plan.settings import divide
from abreast.jobs.plan.written.planner import planner_prompt
from tests.cli.commands.test_plan import project

__all__ = ["project"]

TOLD = 'echo "$ABREAST_SCOPE:" {instructions} >> "$(head -1 "$ABREAST_FILE_LIST")"'


def test_a_plan_is_written_edited_run_and_applied(project):
    project.file("docs/a.md", "a\n")
    project.file("src/beta/new.md", "b\n")
    project.git("add", "-A")
    assert project("plan", "show", "-o", "plan.yaml").code == 0
    text = (project.folder / "plan.yaml").read_text()
    assert "- src/beta/" in text
    # Once more the same; with other options it would overwrite what was edited.
    assert project("plan", "show", "-o", "plan.yaml").code == 0
    said = project("plan", "show", "--min-files", "1", "-o", "plan.yaml")
    assert (said.code, "is there, and may have been edited" in said.err) == (2, True)
    project.file(
        "plan.yaml",
        """
plan:
  exclude: ["*.md"]
  parts:
    - id: greek
      name: greek letters
      files: [src/alpha/, src/beta/]
      instructions: |
        Keep "$HOME" as it is.
    - name: late
      files: [src/gamma/m5.py, "src/delta/m[0-2].py"]
      after: [greek letters]
""",
    )
    said = project("plan", "run", "plan.yaml", "--command", TOLD, "--json")
    assert said.code == 0, said
    subplans = json.loads(said.out)["subplans"]
    assert [one["leaf"][:5] for one in subplans] == ["greek", "late-"]
    assert "in no part, and not worked on: .gitignore, src/delta/m3.py" in said.err
    # The second starts from what the first has done.
    assert subplans[1]["value"]["base"] == subplans[0]["value"]["result"]
    assert project("plan", "apply", "last", "--no-gate").code == 0
    first = (project.folder / "src/alpha/m0.py").read_text()
    assert first == 'x = 0\ny = 1\ngreek letters: Keep "$HOME" as it is.\n'
    assert (project.folder / "src/delta/m0.py").read_text() == "x = 0\nlate: \n"
    # The same file by `abreast run`, shown, and scored with a price.
    project.file("abreast.toml", "[lanes.local]\nprice = {input = 1000, output = 1000}\n")
    found = json.loads(project("plan", "score", "plan.yaml", "-m", "local/smollm2", "--json").out)
    assert [node["id"] for node in found["nodes"]][:2] == ["root", "greek"]
    assert found["score"]["balance"] >= 1
    assert found["forecast"]["requests"] == 2
    assert 0 < found["forecast"]["usd"][0] < found["forecast"]["usd"][1]


def test_what_no_part_has_is_not_written(project):
    project.file(
        "plan.yaml",
        "plan: {parts: [{name: a, id: a, files: [src/alpha/m0.py]}, {name: b, files: src/beta/}]}",
    )
    stray = "echo y >> src/alpha/m1.py; echo z >> src/alpha/m0.py"
    assert project("plan", "run", "plan.yaml", "--command", stray).code == 0
    said = project("plan", "apply", "last")
    assert said.code == 1
    assert "src/alpha/m1.py: written by a, owned by no part" in said.out


def test_a_wrong_file_of_a_plan_is_one_sentence_and_exit_2(project):
    for text, said in (
        ("steps: []", "plan.yaml:1: the file of a plan has one top-level key"),
        ("plan:\n  parts: [{name: a, files: [src/nope.py]}]", "plan.yaml:2: there is no file"),
        ("plan:\n  max_files: 3\n  parts: [{name: a, files: [src/]}]", "plan.yaml:2: max_files is"),
    ):
        project.file("plan.yaml", text)
        found = project("plan", "run", "plan.yaml", "--command", "true")
        assert (found.code, found.err.count("\n")) == (2, 1)
        assert said in found.err
    assert project("plan", "show", "--exclude", "*").code == 2


def test_only_chosen_files_are_divided_also_when_it_goes_on(project):
    command = 'echo "$ABREAST_FILES" >> "$LOG/seen"; [ -e "$LOG/fixed" ]'
    log = project.folder / ".abreast/log"
    log.mkdir(parents=True)
    options = ("--include", "src/alpha", "--include", "*.toml", "--exclude", "m[1-5].py")
    said = project("plan", "run", *options, "--command", command, LOG=str(log))
    assert said.code == 1
    (log / "fixed").touch()
    assert project("plan", "resume", LOG=str(log)).code == 0
    assert (log / "seen").read_text() == "src/alpha/m0.py\n" * 2


def files_of(said):
    return json.loads(said.out)["nodes"][0]["files"]


def test_generated_files_are_in_no_part_but_may_be_written(project):
    project.file("src/alpha/yarn.lock", "one\n")
    project.file("src/vendor/x.py", "# of others\n")
    project.git("add", "-A")
    aside = ["alpha/yarn.lock", "vendor/x.py"]
    generated = "1 generated file is in no part, such as alpha/yarn.lock; --all-files takes them in"
    for command in ("show", "score"):
        assert f"note: {generated}\n" in project("plan", command, "src").out
    shown = project("plan", "show", "src", "--json")
    assert not {*aside} & {*files_of(shown)}
    assert shown.err.startswith("abreast: 1 vendored file is in no part, such as vendor/x.py")
    every = files_of(project("plan", "show", "src", "--all-files", "--json"))
    assert every == sorted([*files_of(shown), *aside])
    # Parts of the same directory may write them, and conflicts are found as ever.
    command = "[ ! -e alpha/m0.py ] || [ $ABREAST_SCOPE != alpha/ ] || echo two > alpha/yarn.lock"
    said = project("plan", "run", "src", "--command", command)
    assert (said.code, generated in said.err) == (0, True)
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "src/alpha/yarn.lock").read_text() == "two\n"
    project.file("src/.gitattributes", "yarn.lock linguist-generated=false\n")
    project.git("add", "-A")
    assert "alpha/yarn.lock" in files_of(project("plan", "show", "src", "--json"))


def test_a_written_plan_has_the_generated_files_that_it_names(project):
    project.file("src/alpha/yarn.lock", "one\n")
    project.file("src/beta/Cargo.lock", "one\n")
    project.git("add", "-A")
    assert project("plan", "show", "src", "--all-files", "-o", "all.yaml").code == 0
    text = (project.folder / "all.yaml").read_text()
    assert "  all_files: true\n" in text
    assert "alpha/yarn.lock" in files_of(project("plan", "show", "all.yaml", "--json"))
    project.file(
        "plan.yaml",
        "plan: {parts: [{name: a, files: [src/alpha/, src/alpha/yarn.lock, src/beta/]}]}",
    )
    found = files_of(project("plan", "show", "plan.yaml", "--json"))
    assert "src/alpha/yarn.lock" in found
    assert "src/beta/Cargo.lock" not in found


def test_a_model_proposes_parts_once_also_when_the_run_goes_on(project):
    plan, _ = divide(str(project.folder), {"include": ["src"]})
    alpha, beta, delta, gamma = (leaf.id for leaf in plan.leaves)
    parts = [
        {"name": "greek", "parts": [alpha, beta], "files": [], "instructions": "Be brief."},
        {"name": "kept", "parts": [delta], "files": [], "instructions": ""},
        {"name": "more", "parts": [gamma], "files": ["src/delta/m0.py"], "instructions": ""},
    ]
    command = f'{TOLD}; echo x >> "$LOG/ran"; [ -e "$LOG/fixed" ]'
    script = {"prompt": planner_prompt(plan, command), "reply": json.dumps({"parts": parts})}
    project.file("planner.jsonl", json.dumps(script))
    log = project.folder / ".abreast/log"
    log.mkdir(parents=True)
    options = ("--include", "src", "--command", command, "--planner", "scripted/planner.jsonl")
    said = project("plan", "run", *options, LOG=str(log))
    assert said.code == 1, said
    assert "scripted/planner.jsonl proposes 3 parts: greek, kept, more" in said.err
    project.file("planner.jsonl", json.dumps({**script, "reply": "nonsense"}))
    (log / "fixed").touch()
    said = project("plan", "resume", "--json", LOG=str(log))
    assert said.code == 0, said
    found = json.loads(said.out)["subplans"]
    assert [one["leaf"].rpartition("-")[0] for one in found] == ["greek", "src-delta", "more"]
    assert found[1]["leaf"] == delta
    assert [len(one["value"]["files"]) for one in found] == [12, 5, 7]
    assert project("plan", "apply", "last", "--no-gate").code == 0
    assert (project.folder / "src/alpha/m0.py").read_text().endswith("greek: Be brief.\n")


def test_a_proposal_is_shown_without_a_run_and_one_that_is_recorded_is_not_paid_again(project):
    plan, _ = divide(str(project.folder), {"include": ["src"]})
    parts = [
        {"name": "all", "parts": [leaf.id for leaf in plan.leaves], "files": [], "instructions": ""}
    ]
    script = {"prompt": planner_prompt(plan, "true"), "reply": json.dumps({"parts": parts})}
    project.file("planner.jsonl", json.dumps(script))
    options = ("--include", "src", "--prompt", "true", "--planner")
    said = project("plan", "show", *options, "scripted/planner.jsonl", "-o", "plan.yaml")
    assert said.code == 0, said
    assert "scripted/planner.jsonl proposes 1 part: " in said.err
    assert "name: all" in (project.folder / "plan.yaml").read_text()
    # A file that is there is not replaced, and the model is not asked: its script is gone.
    (project.folder / "planner.jsonl").rename(project.folder / "moved.jsonl")
    for file, why in (("plan.yaml", "may have been edited"), ("no/plan.yaml", "not there")):
        said = project("plan", "show", *options, "scripted/moved.jsonl", "-o", file)
        assert (said.code, why in said.err, "proposes" in said.err) == (2, True, False)
    said = project("plan", "show", *options, "replay/plan-1")
    assert (said.code, "there is no store" in said.err) == (2, True)
    run = ("plan", "run", "--include", "src", "--command", "true", "--planner")
    assert project(*run, "scripted/moved.jsonl").code == 0
    said = project("plan", "show", *options, "replay/plan-1", "--json")
    assert said.code == 0, said
    assert len(json.loads(said.out)["nodes"]) == 1
    said = project("plan", "show", *options, "scripted/planner.jsonl")
    assert (said.code, said.err.startswith("abreast: --planner: ")) == (2, True), said


def test_a_written_plan_is_shown_in_its_order_with_what_parts_wait_for(project):
    project.file(
        "plan.yaml",
        """
plan:
  include: [src/]
  parts:
    - {name: last, files: [src/gamma/], after: [first]}
    - {name: one, files: [src/alpha/m0.py]}
    - {name: first, files: [src/beta/], instructions: Be brief.}
    - {name: rest, files: [src/]}
    - {name: two, files: [src/alpha/]}
""",
    )
    shown = project("plan", "show", "plan.yaml").out.splitlines()[:7]
    assert [line.lstrip(" │├└─").partition("  ")[0] for line in shown] == [
        "./",
        "last",
        "src/alpha/",
        "one",
        "two",
        "first",
        "rest",
    ]
    assert shown[1].endswith("  as given  after first")
    assert shown[5].endswith("  as given  with instructions")


def test_a_part_that_waits_does_not_start_from_what_another_wrote_into_its_files(project):
    project.file(
        "plan.yaml",
        """
plan:
  include: [src/]
  parts:
    - {id: early, files: [src/alpha/]}
    - {id: late, files: [src/], after: [early]}
""",
    )
    work = """
case $ABREAST_SUBPLAN in
    early) echo "y = 1" >> src/alpha/m1.py; echo "y = 1" >> src/beta/m1.py ;;
    late) grep y src/alpha/m1.py && git apply --allow-empty "$ABREAST_REQUESTS_FILE" ;;
esac
"""
    said = project("plan", "run", "plan.yaml", "--command", work)
    assert said.code == 0, said
    assert [line.split()[:4] for line in said.out.splitlines()] == [
        ["subplan", "state", "attempts", "round"],
        ["early", "done", "1", "1"],
        ["late", "done", "1", "2"],
    ]
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "src/beta/m1.py").read_text() == "x = 1\ny = 1\n"
