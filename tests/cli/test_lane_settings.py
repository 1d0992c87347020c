"""Settings of lanes from the command line: faults, proxies, keys of commands, names of models."""

import json

import pytest

from tests.cli.storms import start_storm

KEY = "sk-planted-5e1f0b7d-by-a-command"
REPLIES = '{"prompt": "Say a", "reply": "A"}\n'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("headrs = {}", "did you mean headers?"),
        ('headers = {Authorization = "x"}', "a secret doesn't belong in this file"),
        ("api_key_command = 3", "must be a text"),
        ("extra = 3", "must be a table"),
        ("drop = 3", "must be a list"),
        ('structured = "xml"', "there are json_schema, tool, json"),
        ('proxy = "me"', "must begin with http://"),
        ("ca_file = 3", "must be a text"),
        ("price = {input = 1, output = 1, cached = 1}", "did you mean cached_input?"),
    ],
)
def test_a_fault_in_a_lane_is_one_sentence_and_exit_2(abreast, line, said):
    abreast.file("abreast.toml", f'[lanes.mine]\nbase_url = "http://127.0.0.1:9"\n{line}\n')
    heard = abreast("ask", "Hello", "-m", "mine/model")
    assert heard.code == 2
    assert heard.err.startswith("abreast: ")
    assert "abreast.toml: lanes.mine" in heard.err
    assert said in heard.err
    assert len(heard.err.splitlines()) == 1


@pytest.mark.parametrize("source", ["ca_file", "SSL_CERT_FILE"])
def test_certificates_that_can_not_be_read_are_exit_2_before_a_store_is_made(abreast, source):
    lane = '[lanes.mine]\nbase_url = "https://127.0.0.1:9"\n'
    ca = 'ca_file = "no-such.pem"\n' if source == "ca_file" else ""
    abreast.file("abreast.toml", lane + ca)
    environment = {} if ca else {"SSL_CERT_FILE": str(abreast.folder / "no-such.pem")}
    command = ("map", "--prompt", "Say {}", "-m", "mine/model")
    heard = abreast(*command, given="a\n", **environment)
    assert heard.code == 2
    named = f"{source}: {abreast.folder / 'no-such.pem'} can't be read"
    assert named in heard.err
    assert len(heard.err.splitlines()) == 1
    assert not abreast.store.exists()
    assert named in abreast("doctor", **environment).out


def test_the_doctor_shows_the_proxy_of_each_lane_without_its_password(abreast):
    lanes = (
        '[lanes.inside]\nbase_url = "https://llm.corp.example/v1"\n'
        '[lanes.own]\nbase_url = "https://llm.example/v1"\nproxy = "env:OWN_PROXY"\n'
        '[lanes.none]\nbase_url = "https://llm.example/v1"\nproxy = "none"\n'
    )
    abreast.file("abreast.toml", lanes)
    heard = abreast(
        "doctor",
        "--json",
        HTTPS_PROXY=f"http://me:{KEY}@proxy.example:3128",
        NO_PROXY=".corp.example",
        OWN_PROXY=f"http://me:{KEY}@other.example",
    )
    found = {}
    for row in heard.rows:
        if row["what"] == "proxy":
            address, _, names = row["detail"].partition(" for ")
            found |= dict.fromkeys(names.split(", "), address)
    assert found["openai"] == "http://me:***@proxy.example:3128"
    assert found["own"] == "http://me:***@other.example"
    assert found["inside"] == found["none"] == found["ollama"] == "none"
    assert KEY not in heard.out + heard.err


def test_a_key_of_a_command_is_in_nothing_that_is_written_or_printed(abreast, tmp_path_factory):
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_text(f"{KEY}\n")
    with start_storm() as storm:
        lane = f'[lanes.mine]\nbase_url = "{storm.url}/v1"\napi_key_command = "cat {secret}"\n'
        abreast.file("abreast.toml", lane)
        command = ("map", "-v", "--prompt", "Say {}", "-m", "mine/storm")
        said = [abreast(*command, given="a\nfault-401\nfault-html\n")]
        said += [
            abreast(*command, "-v")
            for command in (
                ("show", "last", "--json"),
                ("export", "last"),
                ("models",),
                ("doctor",),
                ("doctor", "mine/storm"),
            )
        ]
        assert said[0].code == 1
        assert len(said[0].lines) == 1
        assert said[0].err.count("refused the key") == 1
    secret.unlink()
    said.append(abreast("ask", "Hello", "-m", "mine/storm"))
    assert said[-1].code == 1
    assert "lanes.mine.api_key_command failed with exit code 1" in said[-1].err
    assert not [one for one in said if KEY in one.out + one.err or "Traceback" in one.err]
    files = [path for path in abreast.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert abreast.store.exists()


def test_a_model_may_be_named_with_a_colon_wherever_one_is_named(abreast):
    name = "scripted:replies.jsonl"
    abreast.file("replies.jsonl", REPLIES)
    assert abreast("ask", "Say a", "-m", name).out == "A\n"
    assert abreast("map", "--prompt", "Say {}", "-m", name, given="a\n").out == "A\n"
    assert abreast("map", "--prompt", "Say {}", "-m", "replay:map-1", given="a\n").out == "A\n"
    assert abreast("sample", "Say a", "-m", name, "--check", "hidden contains A").code == 0
    workflow = {"model": name, "steps": [{"id": "s", "type": "prompt", "prompt": "Say a"}]}
    abreast.file("flow.yaml", json.dumps({"workflow": {"id": "flow"}, **workflow}))
    heard = abreast("run", "flow.yaml")
    assert heard.code == 0, heard.err
    abreast.file("prompt.txt", "Say {{ input.text }}")
    study = {
        "models": [name],
        "strategies": {"plain": "prompt.txt"},
        "inputs": [{"id": "one", "text": "a"}],
    }
    abreast.file("study.yaml", json.dumps({"matrix": study}))
    heard = abreast("run", "study.yaml", "--json")
    assert heard.code == 0, heard.err
    (row,) = heard.rows
    assert (row["done"], list(row["lanes"])) == (1, ["scripted"])
