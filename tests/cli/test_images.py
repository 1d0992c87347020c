"""Images and PDF files on the command line, over a storm on this machine, and replayed without."""

from contextlib import closing

import pytest

from abreast.store.sqlite.store import SqliteStore
from tests.cli.storms import start_storm
from tests.models.pictures import pdf, png

LANES = """
[lanes.anthropic]
kind = "anthropic"
base_url = "{url}/v1"
api_key_env = "STORM_KEY"
price = {{input = 1.0, output = 1.0}}
"""
MODEL = "anthropic/claude"
SHOTS = "".join(f"shot{number}.png\n" for number in range(5))


@pytest.fixture(scope="module")
def storm():
    with start_storm() as storm:
        yield storm


@pytest.fixture
def project(abreast, storm):
    """Five images that differ, a PDF file, and a lane to the storm."""
    for number in range(5):
        abreast.file(f"shot{number}.png", png(40 * number))
    abreast.file("paper.pdf", pdf(2))
    abreast.file("abreast.toml", LANES.format(url=storm.url))
    abreast.environment["STORM_KEY"] = "sk-invented"
    return abreast


def look(project, *options, model=MODEL, given=SHOTS):
    words = ("map", "-q", "--prompt", "What is it?", "-m", model, "--image", "{}")
    return project(*words, *options, given=given)


def test_each_line_is_an_image_and_a_replay_gives_the_same_bytes(project, storm):
    before = storm.stats()
    said = look(project)
    assert (said.code, said.err) == (0, "")
    assert len(set(said.lines)) == 5, "the storm answers by the content of the image"
    after = storm.stats()
    assert (after.arrived - before.arrived, after.files - before.files) == (5, 5)
    again = look(project, model="replay/map-1")
    assert (again.code, again.out) == (0, said.out)
    assert storm.stats().arrived == after.arrived, "a replay calls nobody"


def test_the_store_names_a_file_and_has_none_of_its_bytes(project):
    assert look(project, "--image", "paper.pdf").code == 0
    with closing(SqliteStore(project.store)) as store:
        bodies = [event.body or "" for event in store.events("map-1", limit=10_000)]
    assert sum("[image/png" in body for body in bodies) == 5
    assert sum("[application/pdf" in body for body in bodies) == 5
    whole = b"".join(path.read_bytes() for path in project.store.parent.iterdir() if path.is_file())
    assert b"iVBORw0KGgo" not in whole, "base64 of an image"
    assert b"\x89PNG" not in whole


def test_another_place_is_the_same_file_for_a_replay(project, storm):
    said = look(project)
    for number in range(5):
        (project.folder / f"shot{number}.png").rename(project.folder / f"moved{number}.png")
    again = look(project, model="replay/map-1", given=SHOTS.replace("shot", "moved"))
    assert (again.code, again.out) == (0, said.out)


def test_a_replay_of_another_image_is_not_recorded(project):
    assert look(project).code == 0
    project.file("shot2.png", png(7))
    again = look(project, model="replay/map-1")
    assert (again.code, len(again.lines)) == (1, 4)


def test_the_cache_knows_an_image_by_its_content(project, storm):
    assert look(project, "--cache").code == 0
    asked = storm.stats().arrived
    (project.folder / "shot1.png").rename(project.folder / "copy.png")
    said = look(project, "--cache", given="shot0.png\ncopy.png\n")
    assert (said.code, storm.stats().arrived) == (0, asked)
    project.file("copy.png", png(3))
    said = look(project, "--cache", given="copy.png\n")
    assert (said.code, storm.stats().arrived) == (0, asked + 1)


def test_a_resumed_run_says_which_item_has_another_image_now(project, storm):
    said = look(project, "--budget", "2req", "--width", "1")
    assert (said.code, len(said.lines)) == (3, 2)
    asked = storm.stats().arrived
    project.file("shot1.png", png(250))
    said = project("resume", "map-1", "--budget", "9req")
    assert said.code == 2
    assert "0001" in said.err
    assert "changed" in said.err
    assert storm.stats().arrived == asked
    project.file("shot1.png", png(40))
    project.file("shot3.png", png(251))  # it was not asked about yet
    said = project("resume", "map-1", "--budget", "9req")
    assert (said.code, len(said.lines)) == (0, 5)
    assert storm.stats().arrived == asked + 3


def test_fields_of_json_lines_are_paths(project, storm):
    before = storm.stats().files
    lines = '{"id": "a", "photo": "shot0.png"}\n{"id": "b", "photo": "shot1.png"}\n'
    words = ("--jsonl", "--key", "{.id}", "--image", "{.photo}", "--file", "paper.pdf")
    said = project("map", "-q", *words, "--prompt", "What is it?", "-m", MODEL, given=lines)
    assert (said.code, len(said.lines)) == (0, 2)
    assert storm.stats().files == before + 4
    assert project.recorded() >= {"a", "b"}


@pytest.mark.parametrize(
    ("content", "why"), [(None, "can't be read"), (b"", "is empty"), (b"text", "neither an image")]
)
def test_a_bad_path_in_a_file_is_found_before_anything_is_asked(project, storm, content, why):
    if content is not None:
        project.file("bad.png", content)
    project.file("list", SHOTS + "bad.png\n")
    asked = storm.stats().arrived
    said = look(project, "--input", "list")
    assert said.code == 2
    assert "line 6: bad.png" in said.err
    assert why in said.err
    assert said.err.count("\n") == 1
    assert (storm.stats().arrived, project.store.exists()) == (asked, False)


def test_a_model_that_can_not_see_is_refused_before_anything_starts(project):
    for words in (("map", "--prompt", "Hi"), ("ask", "Hi"), ("sample", "Hi")):
        said = project(*words, "-m", "local/smollm2", "--image", "shot0.png", given="x\n")
        assert said.code == 2, words
        assert "can't see images" in said.err
    assert not project.store.exists()


def test_ask_sends_an_image(project, storm):
    before = storm.stats().files
    said = project("ask", "-m", MODEL, "--image", "shot0.png", "--file", "paper.pdf", "What is it?")
    assert (said.code, storm.stats().files) == (0, before + 2)
    said = project("ask", "-m", MODEL, "--image", "nowhere.png", "What is it?")
    assert said.code == 2
    assert "--image: nowhere.png can't be read" in said.err


def test_a_sample_sends_its_image_with_every_draw(project, storm):
    before = storm.stats().files
    words = ("sample", "What is it?", "-m", MODEL, "--image", "shot0.png", "--json")
    more = ("--check", "contains nothing-like-this", "--strategy", "multi-turn", "--depth", "3")
    said = project(*words, *more)
    assert (said.code, storm.stats().files) == (1, before + 3), said.err
    said = project(*words, "--dry-run")
    assert said.rows[0]["worst_tokens"] > 4784
    said = project("sample", "What is it?", "-m", MODEL, "--image", "nowhere.png")
    assert said.code == 2
    assert "nowhere.png can't be read" in said.err


def test_a_job_file_of_a_sample_names_images_beside_the_place_where_it_is_run(project, storm):
    before = storm.stats().files
    project.file(
        "job.yaml", f"sample: {{prompt: What is it?, model: {MODEL}, images: [paper.pdf]}}"
    )
    said = project("run", "job.yaml")
    assert (said.code, storm.stats().files) == (0, before + 1), said.err
    project.file("job.yaml", f"sample: {{prompt: Hm?, model: {MODEL}, images: paper.pdf}}")
    said = project("run", "job.yaml")
    assert said.code == 2
    assert "a list of paths" in said.err


def test_a_sample_whose_image_changed_is_not_resumed(project, storm):
    words = ("sample", "What is it?", "-m", MODEL, "--image", "shot0.png")
    said = project(*words, "--check", "contains xyz", "--depth", "3", "--budget", "1req")
    assert said.code == 3
    project.file("shot0.png", png(99))
    said = project("resume", "sample-1", "--budget", "9req")
    assert said.code == 2
    assert "has changed" in said.err
    project.file("shot0.png", png(0))
    assert project("resume", "sample-1", "--budget", "9req").code == 1


def test_without_a_prompt_an_image_is_refused(project):
    said = project("map", "--image", "{}", "--", "echo", given=SHOTS)
    assert said.code == 2
    assert "--image is for --prompt" in said.err


FLOW = """
workflow: {id: looks}
inputs:
  paper: {default: paper.pdf}
steps:
  - id: read
    type: prompt
    model: anthropic/claude
    prompt: What does it say?
    images: "{{ inputs.paper }}"
  - id: each
    type: fan-out
    items: [{image: shot0.png}, {image: shot1.png}]
    step:
      type: prompt
      model: anthropic/claude
      prompt: What is it?
      images: ["{{ item }}", shot4.png]
  - id: draw
    type: sample
    sample: {prompt: Describe it., model: anthropic/claude, images: ["{{ inputs.paper }}"]}
outputs:
  said: {value: "{{ steps.read.output.text }}"}
"""


def test_steps_of_a_workflow_send_images(project, storm):
    project.file("flow.yaml", FLOW)
    before = storm.stats()
    said = project("run", "flow.yaml")
    assert said.code == 0, said.err
    after = storm.stats()
    assert (after.arrived - before.arrived, after.files - before.files) == (4, 6)


@pytest.mark.parametrize(
    ("changed", "asked_again"), [(None, 0), ("paper.pdf", 2), ("shot1.png", 1), ("shot4.png", 2)]
)
def test_a_resumed_workflow_asks_again_where_an_image_changed(project, storm, changed, asked_again):
    broken = FLOW.replace("outputs:", "  - {id: last, type: shell, run: test -e ready}\noutputs:")
    project.file("flow.yaml", broken)
    assert project("run", "flow.yaml").code == 1
    asked = storm.stats().arrived
    if changed is not None:
        project.file(changed, pdf(5) if changed.endswith("pdf") else png(222))
    project.file("ready", "")
    said = project("resume", "looks-1")
    assert (said.code, storm.stats().arrived - asked) == (0, asked_again), said.err


def test_a_workflow_that_shows_images_to_a_model_without_sight_is_refused(project):
    project.file(
        "flow.yaml",
        FLOW.replace("model: anthropic/claude\n    prompt: What does", "prompt: What does"),
    )
    said = project("run", "flow.yaml")
    assert said.code == 2
    assert "flow.yaml:6: " in said.err
    assert "can't see images" in said.err
    assert not project.store.exists()


def test_a_step_without_its_image_fails_with_a_sentence(project, storm):
    asked = storm.stats().arrived
    project.file("flow.yaml", FLOW)
    said = project("run", "flow.yaml", "--input", "paper=nowhere.pdf")
    assert (said.code, storm.stats().arrived) == (1, asked)
    assert "nowhere.pdf can't be read" in said.err
    project.file("flow.yaml", FLOW.replace('images: "{{ inputs.paper }}"', "images: 7"))
    said = project("run", "flow.yaml", "--check")
    assert said.code == 2
    assert "a path, or a list of paths" in said.err


STUDY = """
matrix:
  name: seen
  models: [{model}]
  strategies:
    look: {{prompt: "What is {{{{ input.id }}}}?"}}
    blind: {{prompt: "Guess {{{{ input.id }}}}.", images: [paper]}}
    own: {{python: "mine:own"}}
    flow: {{workflow: flow.yaml}}
    drawn: {{sample: {{prompt: "Draw {{{{ input.id }}}}."}}, images: photo}}
  inputs:
    - {{id: a, photo: {{image: data/shot0.png}}, paper: paper.pdf}}
    - {{id: b, photo: {{image: data/shot1.png}}, paper: paper.pdf}}
"""

MINE = """
def own(value, model):
    return model.ask(f"Own: {value['id']}", files=[value["photo"]["image"]])
"""
ONE_STEP = """
workflow: {id: one}
inputs: {photo: {required: true}, id: {required: true}}
steps:
  - {id: see, type: prompt, prompt: "Flow: {{ inputs.id }}", images: ["{{ inputs.photo }}"]}
outputs: {said: {value: "{{ steps.see.output.text }}"}}
"""


@pytest.fixture
def study(project):
    """A study of two inputs with an image each, beside it in a directory, and a PDF file."""
    for number in range(2):
        project.file(f"studies/data/shot{number}.png", png(40 * number))
    project.file("studies/paper.pdf", pdf(2))
    project.file("studies/seen.yaml", STUDY.format(model=MODEL))
    project.file("studies/mine.py", MINE)
    project.file("studies/flow.yaml", ONE_STEP)
    return project


def run_study(project, *options, file="studies/seen.yaml"):
    return project("matrix", "run", file, "--no-report", "--seed", "7", *options)


def test_a_study_over_images_is_replayed_without_a_network(study, storm):
    before = storm.stats()
    said = run_study(study)
    assert said.code == 0, said.err
    after = storm.stats()
    assert (after.arrived - before.arrived, after.files - before.files) == (10, 10)

    def rows(run):
        exported = study("matrix", "export", run, "--format", "jsonl").rows
        return [[row["strategy"], row["input"], row["output"], row["state"]] for row in exported]

    first = rows("seen-1")
    assert len({output for _, _, output, _ in first}) == 10
    label = f"{{name: replay/seen-1, label: {MODEL}}}"
    study.file("studies/again.yaml", STUDY.format(model=label).replace("name: seen", "name: again"))
    said = run_study(study, file="studies/again.yaml")
    assert said.code == 0, said.err
    assert rows("again-1") == first
    assert storm.stats().arrived == after.arrived


def test_cells_of_a_study_are_known_by_the_content_of_their_images(study, storm):
    before = storm.stats()
    assert run_study(study).code == 0
    asked, files = storm.stats().arrived, storm.stats().files
    assert (asked - before.arrived, files - before.files) == (10, 10)
    folder = study.folder / "studies"
    (folder / "data/shot0.png").rename(folder / "data/moved.png")
    (folder / "paper.pdf").rename(folder / "other.pdf")
    moved = STUDY.format(model=MODEL).replace("shot0", "moved").replace("paper.pdf", "other.pdf")
    study.file("studies/seen.yaml", moved)
    said = run_study(study)
    assert said.code == 0
    # The paper's path is a text of the input for the strategies that do not send it.
    assert "blind" not in said.err
    assert storm.stats().arrived == asked, "their requests are the same, and recorded"
    study.file("studies/data/moved.png", png(201))
    said = run_study(study)
    assert said.code == 0
    assert "the input a changed" in said.err
    assert storm.stats().arrived - asked == 4, "`blind` runs again, with the same request"
    asked = storm.stats().arrived
    assert run_study(study).code == 0
    assert storm.stats().arrived == asked


def test_a_bad_image_of_a_study_is_told_with_its_line(study, storm):
    asked = storm.stats().arrived
    (study.folder / "studies/data/shot1.png").unlink()
    said = run_study(study)
    assert said.code == 2
    assert "seen.yaml:13" in said.err
    assert "the input 'b'" in said.err
    assert "shot1.png can't be read" in said.err
    study.file("studies/data/shot1.png", png(40))
    study.file("studies/seen.yaml", STUDY.format(model=MODEL).replace("[paper]", "[letter]"))
    said = run_study(study)
    assert said.code == 2
    assert "no path of an image in 'letter'" in said.err
    assert storm.stats().arrived == asked


def test_a_model_that_can_not_see_is_left_out_of_a_study(study):
    study.file("studies/seen.yaml", STUDY.format(model="local/smollm2"))
    said = run_study(study, "--strategy", "look", "--strategy", "drawn")
    assert said.code == 2
    assert "can't see images" in said.err or "xllamacpp" in said.err


def test_a_dry_run_of_a_study_counts_its_images(study):
    said = run_study(study, "--dry-run", "--json")
    assert said.code == 0
    assert said.rows[0]["tokens"]["likely"] > 4 * 4784
