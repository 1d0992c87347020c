"""What each kind of job shows on its run's page, beside the lanes: one module per kind, each with one function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias, cast

from abreast.store.port import RunRow
from abreast.web.reading import Journal

View: TypeAlias = Callable[[Journal, RunRow], dict[str, object]]


def view_of(kind: str) -> View | None:
    """What shows a job of this kind (`web/jobs/KIND.py`); None if there is nothing beyond lanes and items."""
    name = f"{__name__}.{kind}"
    if not kind.isidentifier() or find_spec(name) is None:
        return None
    return cast("View", import_module(name).view)
