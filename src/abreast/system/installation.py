"""How this copy of abreast was installed, and the command that adds one of its extras to it."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

Installer: TypeAlias = Literal["pip", "uv", "uv tool", "pipx"]

_NAME: Final = "abreast"
_EXTRAS: Final = re.compile(r"\[(?P<extras>[\w\s,.-]+)\]")


@dataclass(frozen=True, slots=True)
class Installation:
    """What a copy was installed from, and by which program."""

    installer: Installer
    source: str = ""
    """A directory, a wheel or an address; empty if it came from a package index."""
    editable: bool = False
    extras: tuple[str, ...] = ()
    """The extras that a receipt of uv tool or pipx names: these replace what they installed."""

    def hint(self, extra: str) -> str:
        """The command that adds an extra, to be pasted into a shell.

            >>> Installation("uv tool", extras=("ui",)).hint("local")
            "uv tool install 'abreast[local,ui]'"

        The name alone stands there only if this copy came from an index, which has it.
        """
        extras = ",".join(sorted({*self.extras, extra}))
        path = "" if "://" in self.source else self.source
        if path and not Path(path).exists():  # it was installed from a clone that is gone
            return " ".join((*self._command(), f"'.[{extras}]' in a clone of {_NAME}"))
        if path and Path(path) == Path.cwd():
            return " ".join((*self._command(), f"'.[{extras}]'"))
        return " ".join((*self._command(), shlex.quote(self._requirement(extras))))

    def _command(self) -> tuple[str, ...]:
        editable = ("--editable",) if self.editable else ()
        match self.installer:
            case "pipx":
                return ("pipx", "install", "--force", *editable)
            case "uv tool":
                return ("uv", "tool", "install", *editable)
            case "uv":
                return ("uv", "pip", "install", *_chosen_python(), *editable)
            case "pip":
                return (*_pip(), "install", *editable)

    def _requirement(self, extras: str) -> str:
        if not self.source:
            return f"{_NAME}[{extras}]"
        if "://" in self.source:
            return f"{_NAME}[{extras}] @ {self.source}"
        return f"{self.source}[{extras}]"


def install_hint(extra: str) -> str:
    """The command that adds an extra (`local`, `ui`, ...) to the copy that is running."""
    return installation().hint(extra)


@cache
def installation() -> Installation:
    """How the running copy was installed."""
    from importlib.metadata import Distribution, PackageNotFoundError

    try:
        found = Distribution.from_name(_NAME)
    except PackageNotFoundError:  # a source tree on PYTHONPATH
        return Installation("pip", str(Path(__file__).parents[3]))
    files = {name: found.read_text(name) or "" for name in ("direct_url.json", "INSTALLER")}
    return read_installation(files, Path(sys.prefix))


def read_installation(files: Mapping[str, str], prefix: Path) -> Installation:
    """Read it from files of the distribution's metadata and receipts in its environment."""
    source, editable = _source(files.get("direct_url.json", ""))
    if (receipt := _text(prefix / "uv-receipt.toml")) is not None:
        return Installation("uv tool", source, editable, _uv_extras(receipt))
    if (receipt := _text(prefix / "pipx_metadata.json")) is not None:
        return Installation("pipx", source, editable, _pipx_extras(receipt))
    by_uv = files.get("INSTALLER", "").strip() == "uv"
    return Installation("uv" if by_uv else "pip", source, editable)


def _source(direct_url: str) -> tuple[str, bool]:
    """A path or an address, and whether it is installed as editable; see PEP 610."""
    if not direct_url:
        return "", False
    told: dict[str, Any] = json.loads(direct_url)
    url = str(told["url"])
    if "vcs_info" in told:
        facts = told["vcs_info"]
        revision = facts.get("requested_revision")
        return f"{facts['vcs']}+{url}" + (f"@{revision}" if revision else ""), False
    if urlsplit(url).scheme == "file":
        return unquote(urlsplit(url).path), bool(told.get("dir_info", {}).get("editable"))
    return url, False


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except OSError:
        return None


def _uv_extras(receipt: str) -> tuple[str, ...]:
    import tomllib

    required: list[dict[str, Any]] = tomllib.loads(receipt).get("tool", {}).get("requirements", [])
    return tuple(
        str(extra)
        for one in required
        if one.get("name") == _NAME
        for extra in one.get("extras", [])
    )


def _pipx_extras(receipt: str) -> tuple[str, ...]:
    main: dict[str, Any] = json.loads(receipt).get("main_package", {})
    found = _EXTRAS.search(str(main.get("package_or_url", "")))
    return tuple(extra.strip() for extra in found["extras"].split(",")) if found else ()


def _pip() -> tuple[str, ...]:
    """`pip`, if that of the shell is this environment's; else this interpreter's."""
    found = shutil.which("pip")
    beside = Path(sys.executable).with_name("pip")
    if found is not None and beside.exists() and Path(found).samefile(beside):
        return ("pip",)
    return (shlex.quote(sys.executable), "-m", "pip")


def _chosen_python() -> tuple[str, ...]:
    """The option that names this environment to uv, which takes the active one by itself."""
    if os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return ()
    return ("--python", shlex.quote(sys.prefix))
