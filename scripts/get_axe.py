"""Find axe-core, the checker of accessibility, or fetch it from npm.

`python scripts/get_axe.py` fetches it if needed, `--find` only looks.

It prints the path of the script, which is kept in the user's cache. Nothing of it is run here: the
tests of the page load it into Chromium. What is fetched must have the digest below.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.10.3"
DIGEST = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"


def place() -> Path:
    """Where it is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "abreast-tests", f"axe-{VERSION}.min.js")


def find() -> Path | None:
    """The script, if it is here and whole."""
    path = place()
    return path if path.is_file() and _digest(path.read_bytes()) == DIGEST else None


def fetch() -> None:
    """Fetch it with npm; what goes wrong is said on stderr."""
    npm = shutil.which("npm")
    if npm is None:
        print("there is no npm to fetch axe-core with", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
        if subprocess.run(command, cwd=folder, stdout=sys.stderr, check=False).returncode:
            return
        with tarfile.open(Path(folder, f"axe-core-{VERSION}.tgz")) as archive:
            member = archive.extractfile("package/axe.min.js")
            content = member.read() if member is not None else b""
    if _digest(content) != DIGEST:
        print("the axe-core that npm gave is not the one that is expected", file=sys.stderr)
        return
    place().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place().parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(place())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    """Print the path; 1 if there is none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--find", action="store_true", help="fetch nothing")
    if not parser.parse_args().find and find() is None:
        fetch()
    path = find()
    print(path or "no axe-core", file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
