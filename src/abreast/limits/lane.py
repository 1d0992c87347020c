"""Lanes: names for sets of limits; a child's lane adds its own to its parent's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

from abreast.core.errors import LaneNeedsStore
from abreast.core.window import whole
from abreast.limits.budget import Budget
from abreast.limits.limit import Limit, Need, Weight
from abreast.limits.pool import Pool

if TYPE_CHECKING:
    from abreast.limits.shared.ledger import Terms
    from abreast.limits.shared.share import LaneShare
    from abreast.limits.shared.shared_limits import SharedLimits

LaneLimits: TypeAlias = "Limit | Sequence[Limit] | ProviderLane | SharedLimits"
ShareOf: TypeAlias = "Callable[[str, Terms], LaneShare | None]"
"""The share that a run has of a lane; None for a run without a store."""
Holding: TypeAlias = "str | Sequence[str] | Mapping[str, Weight] | None"

Needs: TypeAlias = tuple[tuple[str, Limit, Need], ...]


@runtime_checkable
class ProviderLane(Protocol):
    """The lane of a provider's models.

    Items hold only the limits in `held`; calls keep all limits that the lane has itself.
    """

    held: tuple[Limit, ...]
    terms: Terms | None
    """The limits that several processes keep together, of which items hold the slots."""


class Lanes:
    """The lanes of one scope. A lane of a child has its parent's limits and its own."""

    __slots__ = ("_lanes", "_providers", "_share_of", "_waiting", "budgets")

    def __init__(
        self,
        lanes: Mapping[str, LaneLimits] | None = None,
        budget: Budget | None = None,
        parent: Lanes | None = None,
    ) -> None:
        """`lanes` maps a name to a limit or several; `budget` applies to everything beneath."""
        self._lanes: dict[str, tuple[Limit, ...]] = dict(parent._lanes) if parent else {}  # noqa: SLF001 - same class
        self._providers: dict[str, ProviderLane] = dict(parent._providers) if parent else {}  # noqa: SLF001 - same class
        self._share_of: ShareOf | None = parent._share_of if parent else None  # noqa: SLF001 - same class
        # Shared lanes of a run that is not open yet, and whether items hold their slots only.
        self._waiting: list[tuple[str, Terms, bool]] = []
        for name, limits in (lanes or {}).items():
            self._providers.pop(name, None)
            if isinstance(limits, ProviderLane):
                self._providers[name] = limits
            terms: Terms | None = getattr(limits, "terms", None)
            if terms is not None:
                self._lanes.setdefault(name, ())
                self._waiting.append((name, terms, isinstance(limits, ProviderLane)))
                continue
            if isinstance(limits, ProviderLane):
                limits = limits.held  # noqa: PLW2901 - items hold only this part of a provider's lane
            given = tuple(limits) if isinstance(limits, Sequence) else (limits,)
            own = cast("tuple[Limit, ...]", given)
            for limit in own:
                if not hasattr(limit, "refusal"):  # a user's argument: anything
                    raise TypeError(
                        f"lane {name!r} needs limits such as Slots(8) or Rate(600), not {limit!r}"
                    )
            self._lanes[name] = self._lanes.get(name, ()) + own
        if self._share_of is not None:
            self.open_shared(self._share_of)
        inherited = parent.budgets if parent else ()
        # Those that apply here, the outermost first.
        self.budgets: tuple[Budget, ...] = (*inherited, budget) if budget else inherited

    def open_shared(self, share_of: ShareOf) -> None:
        """Give shared lanes the limits that the run has of them, now that it is open.

        Raises `LaneNeedsStore` if it has no store.
        """
        self._share_of = share_of
        for name, terms, slots_only in self._waiting:
            share = share_of(name, terms)
            if share is None:
                raise LaneNeedsStore(
                    f"lane {name} is shared, and its permits are in the store of a run: "
                    "open the run with a store"
                )
            budget = (share.budget,) if terms.caps else ()
            own = (share.slots,) if slots_only else (*share.limits, *budget)
            self._lanes[name] = self._lanes.get(name, ()) + own
        self._waiting = []

    @property
    def names(self) -> tuple[str, ...]:
        """The lanes that exist here."""
        return tuple(self._lanes)

    def declared(self, name: str) -> tuple[Limit, ...] | None:
        """The limits that calls on a lane hold in place of its provider's.

        None if the lane does not exist here, or is a provider's own.
        """
        return None if name in self._providers else self._lanes.get(name)

    def limits(self, name: str) -> tuple[Limit, ...]:
        """The limits of a lane; raises a ValueError that lists the existing lanes."""
        found = self._lanes.get(name)
        if found is None:
            known = ", ".join(sorted(self._lanes)) or "none are declared"
            raise ValueError(f"there is no lane {name!r}; lanes here: {known}")
        return found

    def needs(self, weights: Iterable[tuple[str, Weight]]) -> Needs:
        """What an item needs that holds these lanes with these weights.

        Each limit occurs once, with the highest weight; budgets are included.
        """
        needs: dict[Limit, tuple[str, Limit, Need]] = {}
        for name, weight in weights:
            need = Need(weight=weight)
            for limit in self.limits(name):
                if weight != 1 and isinstance(limit, Pool):
                    raise ValueError(
                        f"{name!r} hands over one thing at a time; "
                        f"it can't be held with weight {weight!r}"
                    )
                if limit not in needs or _is_heavier(weight, needs[limit][2].weight):
                    needs[limit] = (name, limit, need)
        for budget in self.budgets:
            needs.setdefault(budget, ("budget", budget, Need()))
        return tuple(needs.values())


def _is_heavier(one: Weight, other: Weight) -> bool:
    return other != "all" and (one == "all" or one > other)


def weights_of(hold: Holding) -> tuple[tuple[str, Weight], ...]:
    """Normalize `hold=` to names with weights.

    A weight is a whole number of at least 1, or 'all'.
    """
    if hold is None:
        return ()
    if isinstance(hold, str):
        return ((hold, 1),)
    if isinstance(hold, Mapping):
        return tuple(
            (name, "all" if weight == "all" else whole(f"the weight of {name!r}", weight))
            for name, weight in hold.items()
        )
    return tuple((name, 1) for name in hold)
