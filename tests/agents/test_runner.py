"""Rows of agents: rules, command lines, permissions, and the table in abreast.toml."""

import pytest

from abreast.agents.known import KNOWN, find_agent, read_agents
from abreast.agents.process import AgentTask, command_line
from abreast.agents.runner import AgentUnknown, Rule, rules_of


@pytest.mark.parametrize(
    ("rule", "event", "found"),
    [
        ("type=result result", {"type": "result", "result": "yes"}, ["yes"]),
        ("type=result result", {"type": "other", "result": "yes"}, []),
        ("is_error=true a.b", {"is_error": True, "a": {"b": 0}}, [0]),
        ("a.b", {"a": None}, []),
        ("a.b", {"a": {"b": None}}, []),
        ("a.[kind=x].n", {"a": [{"kind": "x", "n": 1}, {"kind": "y", "n": 2}, 3]}, [1]),
        ("a.[].n", {"a": [{"n": 1}, {"n": 2}, 3]}, [1, 2]),
        ("a.[kind=v1.2].n", {"a": [{"kind": "v1.2", "n": 1}]}, [1]),
        ("a.[].n", {"a": "no list"}, []),
    ],
)
def test_a_rule_finds_values_where_its_conditions_hold(rule, event, found):
    assert Rule.read(rule).find(event) == found


@pytest.mark.parametrize("text", ["", "type=result", "type result", "a b=c"])
def test_a_text_without_a_path_at_its_end_is_no_rule(text):
    with pytest.raises(ValueError, match="is no rule"):
        Rule.read(text)


def test_rules_name_fields_that_there_are():
    with pytest.raises(ValueError, match="no field 'prose'"):
        rules_of({"prose": "text"})
    with pytest.raises(ValueError, match="text must be a rule"):
        rules_of({"text": 3})


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_no_agent_is_allowed_everything_unless_that_is_asked_for(name):
    runner = KNOWN[name]
    dangerous = set(runner.allow["everything"])
    for allow in ((), ("read",), ("edit",), ("run",)):
        words = command_line(runner, AgentTask("hello", allow))
        assert not dangerous & set(words)
        assert not any("danger" in word or "bypass" in word for word in words)
    assert dangerous <= set(command_line(runner, AgentTask("hello", ("everything",))))


def test_command_lines_have_what_was_asked_for_at_its_place():
    claude = command_line(
        KNOWN["claude"],
        AgentTask("hi", ("Bash(make *)",), "opus", "Be brief.", {"type": "object"}),
    )
    assert claude[:3] == ["claude", "-p", "--output-format"]
    assert claude[-8:] == [
        *("--allowedTools", "Bash(make *)", "--model", "opus"),
        *("--append-system-prompt", "Be brief.", "--json-schema", '{"type": "object"}'),
    ]
    codex = command_line(KNOWN["codex"], AgentTask("hi", ("edit",), session="abc"))
    assert codex == [
        *("codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        *("resume", "abc", "-"),
    ]


def test_a_permission_that_an_agent_lacks_is_one_sentence():
    with pytest.raises(AgentUnknown, match="codex can't be allowed 'Bash'; it knows read, edit"):
        KNOWN["codex"].permissions(("Bash",))


def test_a_table_adds_an_agent_and_changes_a_known_one():
    agents = read_agents(
        {
            "mine": {"argv": ["mine", "{prompt}"], "rules": {"text": "out"}, "env": {"N": 1}},
            "claude": {"argv": ["claude", "--bare"], "allow": {"run": ["--yes"]}, "home": "own"},
        }
    )
    assert find_agent("mine", agents).is_structured
    assert agents["mine"].env == {"N": "1"}
    assert agents["claude"].program == "claude"
    assert agents["claude"].home == "own"
    assert agents["claude"].permissions(("run", "edit")) == [
        *("--yes", "--permission-mode", "acceptEdits"),
    ]
    assert agents["codex"] == KNOWN["codex"]
    with pytest.raises(AgentUnknown, match="did you mean claude"):
        find_agent("claud", agents)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"a": 1}, "agents.a must be a table"),
        ({"a": {}}, "agents.a needs a command"),
        ({"a": {"argv": []}}, "agents.a.argv is empty"),
        ({"a": {"argv": "a"}}, "agents.a.argv must be a list of texts"),
        ({"a": {"argv": ["a"], "flags": 1}}, "agents.a has no 'flags'"),
        ({"a": {"argv": ["a"], "home": "none"}}, 'agents.a.home must be "user" or "own"'),
        ({"a": {"argv": ["a"], "allow": 1}}, "agents.a.allow must be a table"),
        ({"a": {"argv": ["a"], "rules": {"text": "x=y"}}}, "agents.a.rules: 'x=y' is no rule"),
    ],
)
def test_what_is_wrong_in_a_table_is_one_sentence_with_its_place(table, sentence):
    with pytest.raises(ValueError, match=r"abreast\.toml: ") as raised:
        read_agents(table)
    assert sentence in str(raised.value)
