"""How often the README's question about a review is answered right.

Reads the wording from README.md, asks `local/smollm2` about the forty reviews that the package has,
and prints how many replies are right, and how many a plainer wording gets. `--reviews N` asks about
the first N alone.

    python -m benchmarks.readme_example
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
PLAIN_PROMPT = "Is this review positive or negative? {.text}"


def reviews() -> list[dict[str, str]]:
    text = files("abreast.models").joinpath("data/reviews.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def readme_wording() -> tuple[list[str], str]:
    """The options of the README's `abreast map` about reviews, and its schema."""
    page = README.read_text("utf-8")
    schema = re.search(r"cat > sentiment\.json <<'EOF'\n(.*?)EOF\n", page, re.DOTALL)
    command = re.search(r"\nabreast (map --jsonl .*?) < reviews\.jsonl\n", page, re.DOTALL)
    if schema is None or command is None:
        raise SystemExit("README.md has no question about reviews.jsonl any more")
    return shlex.split(command[1].replace("\\\n", " ")), schema[1]


def count_right(words: list[str], schema: str, asked: list[dict[str, str]]) -> int:
    """Run that command over the reviews; how many replies are the right ones."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sentiment.json").write_text(schema, "utf-8")
        ended = subprocess.run(
            [sys.executable, "-m", "abreast", *words, "--store", "here.db"],
            cwd=folder,
            input="".join(f"{json.dumps(review)}\n" for review in asked),
            capture_output=True,
            text=True,
            check=True,
        )
    said: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    return sum(one["sentiment"] == review["label"] for one, review in zip(said, asked, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--reviews", type=int, default=40, metavar="N")
    asked = reviews()[: parser.parse_args().reviews]
    words, schema = readme_wording()
    print(f"the README's wording   {count_right(words, schema, asked)} of {len(asked)}", flush=True)
    plain = ["map", "--jsonl", "--prompt", PLAIN_PROMPT, "--schema", "sentiment.json", "--quiet"]
    print(f"a plain question       {count_right(plain, schema, asked)} of {len(asked)}")


if __name__ == "__main__":
    main()
