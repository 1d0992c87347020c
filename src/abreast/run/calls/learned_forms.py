"""Learned forms: what the models of a lane refused or accepted, stored on disk.

There is one small file for each lane and address, beside its learned limits. A file that can't be
read or parsed is ignored. What a model refused is tried again after a week.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.models.providers.accepted_form import AcceptedForm
from abreast.system.file_names import file_name
from abreast.system.paths import replace_file, state_directory

VERSION: Final = 1
_REFUSED_FOR: Final = 7 * 86_400.0  # seconds
_log = logging.getLogger("abreast")


class LearnedForms:
    """The forms of requests that the models of one lane accept, and the file that keeps them."""

    def __init__(self, lane: str, address: str | None, folder: Path | None = None) -> None:
        mark = hashlib.blake2b(f"{address}".encode(), digest_size=6).hexdigest()
        self.path = (folder or state_directory() / "lanes") / f"{file_name(lane)}-{mark}.forms.json"
        self._forms: dict[str, AcceptedForm] = {}
        self._learned_at: dict[str, float] = {}
        self._read()

    def of(self, model: str) -> AcceptedForm:
        """The form of one model, shared by all who call it in this process."""
        form = self._forms.setdefault(model, AcceptedForm())
        form.keep = self.keep
        return form

    def spoken(self) -> str:
        """What each model refused, in words."""
        return "; ".join(
            f"{model}: {form.spoken()}" for model, form in sorted(self._forms.items()) if form
        )

    def keep(self) -> None:
        """Replace the file atomically, with what others wrote meanwhile."""
        for model, other in LearnedForms._parsed(self.path).items():
            self._forms.setdefault(model, _form_of(other))
        now = SYSTEM_CLOCK.wall()
        models = {
            model: {
                "at": self._learned_at.setdefault(model, now) if form else now,
                "dropped": sorted(form.dropped),
                "renamed": form.renamed,
                "refused_ways": sorted(form.refused_ways),
                "accepted": sorted(form.accepted),
            }
            for model, form in sorted(self._forms.items())
        }
        try:
            replace_file(self.path, json.dumps({"version": VERSION, "models": models}) + "\n")
        except OSError as error:
            _log.warning("what was learned can't be kept in %s: %s", self.path, error)

    def _read(self) -> None:
        now = SYSTEM_CLOCK.wall()
        for model, facts in self._parsed(self.path).items():
            if now - facts["at"] < _REFUSED_FOR:
                self._forms[model] = _form_of(facts)
                self._learned_at[model] = facts["at"]
            else:
                accepted = set(facts["accepted"]) - set(facts["dropped"]) - set(facts["renamed"])
                self._forms[model] = AcceptedForm(accepted=accepted)

    @staticmethod
    def _parsed(path: Path) -> Mapping[str, Any]:
        try:
            facts = json.loads(path.read_text("utf-8"))
            models: dict[str, Any] = facts["models"] if facts["version"] == VERSION else {}
            for model in models.values():
                _form_of(model)
                float(model["at"])
        except OSError:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            _log.warning("what was learned in %s is not used: %s", path, error)
            return {}
        return models


def _form_of(facts: Mapping[str, Any]) -> AcceptedForm:
    sets = [set(map(str, facts[name])) for name in ("dropped", "refused_ways", "accepted")]
    renamed = {str(old): str(new) for old, new in facts["renamed"].items()}
    return AcceptedForm(sets[0], renamed, sets[1], sets[2])
