"""Find a Chromium to open reports with, or install one.

`python scripts/get_chromium.py` installs one if needed, `--find` only looks.

It prints the path of the program. Where apt is there and may be used, the distribution's headless
shell is installed; elsewhere playwright's own, into the user's cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
APT = (
    "apt-get",
    "-q",
    "-o",
    "Dpkg::Options::=--force-unsafe-io",
)  # nothing here must outlive a power cut


def find() -> str | None:
    """The program that `ABREAST_CHROMIUM` names, one on the path, or playwright's own."""
    named = os.environ.get("ABREAST_CHROMIUM")
    found = filter(None, (named, *map(shutil.which, NAMES), _of_playwright()))
    return next((path for path in found if Path(path).exists()), None)


def install() -> None:
    """Install one; what goes wrong is said on stderr."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        wanted = ("install", "-y", "--no-install-recommends", NAMES[0], "fonts-dejavu-core")
        if _run(*APT, *wanted) or (_run(*APT, "update") and _run(*APT, *wanted)):
            return
    _run(sys.executable, "-m", "playwright", "install", "chromium", "--only-shell")


def _run(*command: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode == 0


def _of_playwright() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    cache = Path(
        os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache" / "ms-playwright")
    )
    if not cache.exists():  # starting playwright only to ask takes a second
        return None
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def main() -> int:
    """Print the path; 1 if there is none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--find", action="store_true", help="install nothing")
    if not parser.parse_args().find and find() is None:
        install()
    path = find()
    print(path or "no Chromium", file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
