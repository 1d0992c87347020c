"""An agent that is replayed: `python -I -S replayed.py RECORDING`, with its number as the prompt.

It makes the recorded changes in its directory and prints the recorded lines. In the directory
NOTES it appends to `ran-NUMBER` when it begins. If there is a file `together` there, it waits until
as many agents have begun as that says; if there is a file `free`, it stops half-way until the
number in it is greater than its own.
"""

import json
import os
import subprocess
import sys
import time

PAUSE = 0.01  # seconds between two looks at the notes


def read_number(path: str, default: int) -> int:
    """The number in a file; the default if there is none."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes longer to import
            return int(file.read() or 0)
    except FileNotFoundError:
        return default


def main() -> None:
    notes, number = os.environ["NOTES"], int(sys.stdin.read())
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 - as above
        agent = json.loads(file.readlines()[number])
    with open(f"{notes}/ran-{number}", "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
        file.write("x")
    together = read_number(f"{notes}/together", 0)
    while sum(name.startswith("ran-") for name in os.listdir(notes)) < together:  # noqa: PTH208 - as above
        time.sleep(PAUSE)
    first, *rest = agent["events"]
    print(json.dumps(first), flush=True)
    words = ["git", "apply", "--unidiff-zero", "-"]
    subprocess.run(words, input=agent["patch"], text=True, check=True)
    while number >= read_number(f"{notes}/free", number + 1):
        time.sleep(PAUSE)
    for event in rest:
        print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
