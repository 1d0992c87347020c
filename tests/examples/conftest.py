"""The embedded model, held in memory, and a project with the examples in it."""

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.core.errors import NoSuchModel
from abreast.models.embedded import weights
from abreast.models.embedded.model import EmbeddedModel
from abreast.models.embedded.weights import SMOLLM2
from abreast.models.port import Message, Request
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def held():
    """The model, in memory from test to test.

    To load it for each of the runs would take most of the time.
    """
    try:
        weights.fetch(SMOLLM2)
    except NoSuchModel as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    holder = EmbeddedModel()
    with ThreadPoolExecutor(1) as elsewhere:
        hello = Request((Message("user", "Hello"),), max_tokens=1)
        elsewhere.submit(asyncio.run, holder.complete(hello)).result()
        yield holder
        elsewhere.submit(asyncio.run, holder.close()).result()


@pytest.fixture
def remembered(monkeypatch):
    """Give the reply of the model again when it is asked the same again.

    That the model itself says the same at any width is held by the quickstart and by
    `tests/models/embedded/test_model.py`.
    """
    ask, replies = EmbeddedModel.complete, {}

    async def complete(self, request, hear=None):
        same = repr(request if request.temperature else replace(request, seed=None))
        if same not in replies:
            replies[same] = await ask(self, request, hear)
        return replies[same]

    monkeypatch.setattr(EmbeddedModel, "complete", complete)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with the examples in it, as in a clone."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "abreast.toml").touch()
    for name in [
        name for name in os.environ if name.startswith("ABREAST_") and name != "ABREAST_CACHE"
    ]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)  # where workflows say more
    monkeypatch.setenv(RUN_VARIABLE, "")  # which a run sets, and which is as it was afterwards
    monkeypatch.chdir(folder)
    return folder
