"""What the model calls of a run used and cost, in all and by model."""

from collections.abc import Mapping
from typing import Any

from abreast.core.outcome import NO_USAGE
from abreast.run.outcome_record import usage_of
from abreast.views.job_view import number


class Costs:
    """The sums so far.

    Usage is summed by calls, not by items: that of a nested item is also in the item around it.
    """

    def __init__(self) -> None:
        """Start without calls."""
        self.usage = NO_USAGE
        self.models: dict[str, dict[str, float]] = {}
        self.unpriced = 0

    def add(self, data: Mapping[str, Any]) -> dict[str, float]:
        """Add a call that settled, and return what it used.

        Nothing is counted of a cancelled call: it holds a reservation, not a known usage.
        """
        if data.get("state") == "cancelled":
            return {}
        self.usage += usage_of(data)
        self.unpriced += data.get("usd", 0) is None
        fields = {
            "requests": "requests",
            "usd": "usd",
            "input": "input_tokens",
            "output": "output_tokens",
        }
        used = {name: float(number(data.get(field)) or 0) for name, field in fields.items()}
        total = self.models.setdefault(str(data.get("model", "")), dict.fromkeys(used, 0.0))
        for name, value in used.items():
            total[name] += value
        return used

    @property
    def total(self) -> dict[str, float]:
        """The sums over all models; `usd` is what is known of it."""
        return {
            name: sum(model[name] for model in self.models.values())
            for name in ("requests", "usd", "input", "output")
        }
