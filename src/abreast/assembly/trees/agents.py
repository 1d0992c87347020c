"""Opens an agent for the items of a run: its caller, its lane, and worktrees if asked."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from abreast.agents.caller import AgentCaller
from abreast.agents.model import AgentModel, AgentPlaces, OneFolder, agent_facts
from abreast.agents.runner import AgentRunner, AgentUnknown, Permission
from abreast.agents.trees import TreePlaces
from abreast.assembly.names import lane_of
from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.executors.commands import CommandRunner
from abreast.executors.names import open_commands
from abreast.limits.lane import LaneLimits
from abreast.limits.limit import Limit
from abreast.limits.slots import Slots
from abreast.models.lanes import LaneSettings
from abreast.models.port import Reply
from abreast.models.price import Price, find_price
from abreast.run.calls.lane import ModelLane
from abreast.run.current import CurrentItem
from abreast.worktrees.results.item_trees import ItemTrees

TREE_FACTS = ("base", "result", "commit", "changed", "patch")
# As with models, a lane lives as long as a caller uses it, and there is one in this process.
_LANES: Final[WeakValueDictionary[tuple[str, int | None], ModelLane]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class ChosenAgent:
    """Which agent, and what it may do."""

    runner: AgentRunner
    allow: tuple[Permission, ...] = ()
    """By default: to read, and in a worktree to edit."""
    model: str | None = None
    lanes: Mapping[str, LaneSettings] = field(default_factory=dict)
    """The lanes of abreast.toml; that of the agent's name has its width."""

    def check(self) -> None:
        """Raise `AgentUnknown` if it can't be allowed that, or takes no model."""
        self.runner.permissions(self.allow)
        if self.model is not None and not self.runner.model:
            raise AgentUnknown(
                f"{self.runner.name} takes no model (`model` under [agents.{self.runner.name}])"
            )


class ChildGroups(Protocol):
    """Is told of the process groups of agents."""

    def started(self, item: CurrentItem, group: int) -> None:
        """Note a group that has started."""

    def ended(self, group: int) -> None:
        """Forget a group that has ended."""


def lane_of_agent(options: ChosenAgent) -> ModelLane:
    """The lane of an agent, with the width of `[lanes.NAME]` if there is one.

    There is one in this process, whatever models and permissions the agent is called with: a usage
    limit is one of its account.
    """
    name = options.runner.name
    settings = options.lanes.get(name)
    if settings is not None and not settings.has_models:
        return lane_of(settings)
    width = None if settings is None else settings.width
    if (lane := _LANES.get((name, width))) is not None:
        return lane
    limits: list[Limit] = [] if width is None else [Slots(width)]
    return _LANES.setdefault((name, width), ModelLane(name, limits))


def held_lane(caller: AgentCaller) -> dict[str, LaneLimits]:
    """The agent's lane as a run declares it, so that items wait for it; empty without limits."""
    lane = caller.lane
    return {lane.name: lane} if lane.held else {}


def price_of_agent(options: ChosenAgent) -> Price | None:
    """The price of its model, as far as it is known."""
    settings = options.lanes.get(options.runner.name)
    if settings is not None and settings.price is not None:
        return settings.price
    if options.model is None or not options.runner.provider:
        return None
    return find_price(options.runner.provider, options.model)


async def open_agent(
    stack: AsyncExitStack,
    options: ChosenAgent,
    groups: ChildGroups,
    commands: CommandRunner | None = None,
) -> AgentCaller:
    """Make the caller of an agent; `place_agent` says where it works, once the run is open."""
    options.check()
    runner = options.runner
    model = AgentModel(
        runner,
        await open_commands(stack, "local") if commands is None else commands,
        OneFolder(Path()),
        options.allow or ("read",),
        options.model,
        groups.started,
        groups.ended,
    )
    return AgentCaller(model, lane_of_agent(options), price=price_of_agent(options))


def place_agent(
    caller: AgentCaller,
    run: str,
    *,
    folder: str = "",
    trees: ItemTrees | None = None,
    allow: tuple[Permission, ...] = (),
) -> None:
    """Let the agent work in a directory, or in a worktree for each item, where it may edit."""
    model = caller.agent
    places: AgentPlaces = OneFolder(Path(folder))
    if trees is not None:
        places = TreePlaces(trees)
        caller.restored, caller.cut_off = trees.remember, trees.take_up
        model.allow = allow or ("edit",)
    model.places = places
    model.env = {RUN_VARIABLE: run}


def agent_value(reply: Reply) -> dict[str, Any]:
    """The value of an item that an agent worked on: its text, facts, and its tree."""
    facts = agent_facts(reply)
    tree = {name: facts.pop(name) for name in TREE_FACTS if name in facts}
    value: dict[str, Any] = {"text": reply.text, "agent": facts}
    value |= {} if reply.value is None else {"value": reply.value}
    return value | ({"tree": tree} if tree else {})
