"""`abreast run FILE`: runs a job file, whose top-level key says which job it is."""

from typing import Any

import click

from abreast.cli import options
from abreast.cli.errors import UsageError
from abreast.cli.jobs.job_file import JobFile, read_node, read_text
from abreast.cli.jobs.table import JOBS


@click.command("run")
@click.option(
    "--input",
    "-i",
    "inputs",
    metavar="NAME=VALUE",
    multiple=True,
    help="An input of a workflow, or GATE=approve; may be repeated.",
)
@click.option("--check", "check_only", is_flag=True, help="Only say what is wrong with the file.")
@options.dry_run
@click.option(
    "--simulate",
    is_flag=True,
    help="Rehearse a workflow: outputs are made up, nothing is done or recorded.",
)
@click.option(
    "--outputs-of",
    metavar="RUN",
    help="With --simulate: take outputs from that run where it has them.",
)
@click.option(
    "--model", "-m", metavar="NAME", help="The model for prompts that name none.  [local/smollm2]"
)
@click.option(
    "--width",
    "-w",
    metavar="N",
    help="Steps of a workflow at once, in all.  [64, or as many as its widest fan-out]",
)
@options.warm
@options.executor
@options.batch_options
@options.wait
@options.budget
@click.option(
    "--name",
    metavar="TEXT",
    help="What the run is called; by default the workflow's id, or the job's kind.",
)
@click.option(
    "--tag",
    "tags",
    metavar="WORD",
    multiple=True,
    help="A word to find the run by; may be repeated.",
)
@click.option("--seed", metavar="N", help="Makes it repeatable; drawn if not given.")
@options.quiet
@options.common
@click.argument("file", metavar="FILE")
def command(*, file: str, **given: Any) -> int:
    """Run the job in FILE. A top-level key says which job it is.

    \b
      workflow: {id: hello}
      steps:
        - {id: list, type: shell, run: "ls *.md"}
        - {id: sum, type: prompt, prompt: "What are these? {{ steps.list.output.stdout }}"}

    \b
      sample:
        prompt: Name a colour.
        checks: ["regex ^(red|green|blue)$"]
        breadth: 4
    """  # noqa: D301 - click wants the character itself
    text = read_text(file)
    node = read_node(text, file)
    keys = set(node.pairs) if node is not None else set()
    jobs = {name: job for name, job in JOBS.items() if job.file_keys}
    job = next(
        (
            each
            for each in jobs.values()
            if keys.intersection(each.file_keys) and (len(keys) == 1 or not each.alone)
        ),
        None,
    )
    if node is None or job is None:
        what = "says" if node is not None else "is a mapping, and says"
        raise UsageError(
            f"{file}:1: a job file {what} by a top-level key what it is: {', '.join(jobs)}"
        )
    if given["width"] is not None and job.refused:
        raise UsageError(
            f"--width is for workflows here; the file {file} has words of its own for that"
        )
    for flag in job.refused:
        if given[flag]:
            written = flag.removesuffix("_only").removesuffix("s").replace("_", "-")
            raise UsageError(f"--{written} {job.refusal.format(file=file)}")
    return job.load().of_file(JobFile(file, text, node, given))
