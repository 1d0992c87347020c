"""What is told of a workflow's run: `--json`, the line about a failure, `show`, `export` and the page."""

import json


def no_such_number(name):
    raise AssertionError(f"{name} is not JSON")


def strictly(text):
    """What strict JSON says: infinity and NaN have no form in it."""
    return json.loads(text, parse_constant=no_such_number)


INFINITE = """
workflow: {id: infinite}
steps:
  - {id: said, type: shell, run: "echo '[NaN, Infinity, -1e999]'", output_format: json, input: {most: .inf}}
  - {id: fan, type: fan-out, items: [.inf, .nan, 1], max_concurrency: .inf,
     step: {id: one, type: shell, run: "echo {{ item }}"}}
  - {id: all, type: fan-in, wait_for: [said], output: {none: .nan, least: -.inf}}
  - {id: choose, type: switch, expression: .inf, cases: {inf: [{id: chosen, type: shell, run: "echo y"}]}}
  - {id: look, type: gate, message: .nan}
outputs:
  items: {value: "{{ steps.fan.output.items }}"}
"""


def test_infinity_and_nan_give_strict_json(abreast):
    abreast.file("flow.yaml", INFINITE)
    for more in (
        ["--json", "--simulate"],
        ["--json", "--dry-run"],
        ["--json", "--check"],
        ["--json", "-i", "look=approve"],
    ):
        said = abreast("run", "flow.yaml", *more)
        assert (said.code, said.err) == (0, "")
        found = strictly(said.out)
    assert found["status"] == "completed"
    assert found["steps"]["said"]["output"]["data"] == ["nan", "inf", "-inf"]
    assert found["steps"]["fan"]["output"]["items"] == ["inf", "nan", 1]
    assert found["steps"]["fan"]["output"]["max_concurrency"] == "inf"
    assert found["outputs"] == {"items": ["inf", "nan", 1]}
    for line in abreast("export", "infinite").lines:
        strictly(line)
    strictly(abreast("show", "infinite", "--json").out)
