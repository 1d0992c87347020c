"""`abreast map --warm`: the long beginning of the prompts is cached, and the hits are shown."""

import re

from tests.cli.storms import start_storm

LONG = "Rules: " + "be kind and brief. " * 300
LANES = """
[lanes.claude]
kind = "anthropic"
base_url = "{url}/v1"
price = {{input = 3.0, output = 15.0, cached_input = 0.3, cache_write = 3.75}}
"""


def test_one_prompt_fills_the_cache_and_the_others_read_from_it(abreast):
    with start_storm(strict="anthropic-new") as storm:
        abreast.file("abreast.toml", LANES.format(url=storm.url))
        prompt = LONG + "Now classify: {}"
        said = abreast(
            "map", "--prompt", prompt, "-m", "claude/opus", "--warm", given=b"a\nb\nc\nd\n"
        )
        (billed,) = storm.billed().values()
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 4
    assert billed.cached == 3 * billed.cache_writes > 0
    assert f"({billed.cached:,} cached)" in said.err
    (usd,) = re.findall(r"([\d.]+) usd", said.err)
    plain = billed.input - billed.cached - billed.cache_writes
    bill = plain * 3 + billed.cached * 0.3 + billed.cache_writes * 3.75 + billed.output * 15
    assert abs(float(usd) - bill / 1e6) <= 0.001 * float(usd)
    shown = abreast("show", "map")
    assert f"({billed.cached:,} cached)" in shown.out


def test_warm_is_for_prompts(abreast):
    said = abreast("map", "--warm", "--", "true", given=b"a\n")
    assert (said.code, "--warm is for --prompt" in said.err) == (2, True)
