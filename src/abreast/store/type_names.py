"""Stable names for abreast's own types in a store, so that a recorded value outlives a rename of its class or module.

A store of version 0.x before this table names a type by where it stood then, `module:qualname`. From then on the stable
name is written. Both are read, and lead to where the type stands today.

When a class moves or is renamed, add one line to `_MOVED`; `_FIRST` never changes, because stores hold these names and
digests of recorded items are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIRST: Final[Mapping[str, str]] = {
    "abreast:Item": "abreast.core.item:Item",
    "abreast:Usage": "abreast.core.outcome:Usage",
    "abreast:Timing": "abreast.core.outcome:Timing",
    "abreast:Done": "abreast.core.outcome:Done",
    "abreast:Failed": "abreast.core.outcome:Failed",
    "abreast:Cancelled": "abreast.core.outcome:Cancelled",
    "abreast:Problem": "abreast.core.errors:Problem",
    "abreast:Event": "abreast.core.events:Event",
    "abreast:Retry": "abreast.run.retry:Retry",
    "abreast:Finished": "abreast.executors.commands:Finished",
    "abreast:Message": "abreast.models.port:Message",
    "abreast:Reply": "abreast.models.port:Reply",
    "abreast:Request": "abreast.models.port:Request",
    "abreast:ToolCall": "abreast.models.port:ToolCall",
    "abreast:FlatPrice": "abreast.models.price:FlatPrice",
    "abreast:LaneSettings": "abreast.models.lanes:LaneSettings",
    "abreast:store.Driver": "abreast.store.port:Driver",
    "abreast:store.Recorded": "abreast.store.port:Recorded",
    "abreast:store.Replies": "abreast.store.port:Replies",
    "abreast:store.Request": "abreast.store.port:Request",
    "abreast:store.RunRow": "abreast.store.port:RunRow",
    "abreast:sample.Attempt": "abreast.jobs.sample.attempts:Attempt",
    "abreast:sample.BestOf": "abreast.jobs.sample.strategies:BestOf",
    "abreast:sample.Counts": "abreast.jobs.sample.attempts:Counts",
    "abreast:sample.Draft": "abreast.jobs.sample.checks:Draft",
    "abreast:sample.Escalate": "abreast.jobs.sample.strategies:Escalate",
    "abreast:sample.History": "abreast.jobs.sample.strategies:History",
    "abreast:sample.MultiTurn": "abreast.jobs.sample.strategies:MultiTurn",
    "abreast:sample.Plan": "abreast.jobs.sample.plan:SamplePlan",
    "abreast:sample.Question": "abreast.jobs.sample.strategies:Question",
    "abreast:sample.Rejection": "abreast.jobs.sample.strategies:Rejection",
    "abreast:sample.Repair": "abreast.jobs.sample.strategies:Repair",
    "abreast:sample.Result": "abreast.jobs.sample.attempts:SampleResult",
    "abreast:sample.Spec": "abreast.jobs.sample.spec:SampleSpec",
    "abreast:sample.Turn": "abreast.jobs.sample.strategies:Turn",
    "abreast:sample.Verdict": "abreast.jobs.sample.attempts:Verdict",
    "abreast:sample.Vote": "abreast.jobs.sample.strategies:Vote",
    "abreast:workflow.Ask": "abreast.jobs.workflow.kit:Ask",
    "abreast:workflow.PlannedStep": "abreast.jobs.workflow.plan:PlannedStep",
    "abreast:workflow.Question": "abreast.jobs.workflow.kit:Question",
    "abreast:workflow.Ran": "abreast.jobs.workflow.kit:Ran",
    "abreast:workflow.Record": "abreast.jobs.workflow.records:Record",
    "abreast:workflow.Result": "abreast.jobs.workflow.flow:FlowResult",
    "abreast:workflow.StepContext": "abreast.jobs.workflow.kit:StepContext",
    "abreast:matrix.ArmChange": "abreast.jobs.matrix.changes:ArmChange",
    "abreast:matrix.Attempt": "abreast.jobs.matrix.bench:Attempt",
    "abreast:matrix.Cell": "abreast.jobs.matrix.study:Cell",
    "abreast:matrix.Changes": "abreast.jobs.matrix.changes:Changes",
    "abreast:matrix.Choice": "abreast.jobs.matrix.study:Choice",
    "abreast:matrix.Comparison": "abreast.jobs.matrix.statistics:Comparison",
    "abreast:matrix.Control": "abreast.jobs.matrix.statistics:Control",
    "abreast:matrix.Correlation": "abreast.jobs.matrix.inference:Correlation",
    "abreast:matrix.Design": "abreast.jobs.matrix.design:Design",
    "abreast:matrix.Estimate": "abreast.jobs.matrix.inference:Estimate",
    "abreast:matrix.Findings": "abreast.jobs.matrix.findings:Findings",
    "abreast:matrix.Judged": "abreast.jobs.matrix.scores:Judged",
    "abreast:matrix.ModelArm": "abreast.jobs.matrix.study:ModelArm",
    "abreast:matrix.Offer": "abreast.jobs.matrix.statistics:Offer",
    "abreast:matrix.Paired": "abreast.jobs.matrix.inference:Paired",
    "abreast:matrix.Quantile": "abreast.jobs.matrix.inference:Quantile",
    "abreast:matrix.Row": "abreast.jobs.matrix.rows:Row",
    "abreast:matrix.ScoreChange": "abreast.jobs.matrix.changes:ScoreChange",
    "abreast:matrix.ScoreSpec": "abreast.jobs.matrix.study:ScoreSpec",
    "abreast:matrix.Scored": "abreast.jobs.matrix.findings:Scored",
    "abreast:matrix.Strategy": "abreast.jobs.matrix.study:Strategy",
    "abreast:matrix.Study": "abreast.jobs.matrix.study:Study",
    "abreast:matrix.StudyInput": "abreast.jobs.matrix.study:StudyInput",
    "abreast:matrix.SubResult": "abreast.jobs.matrix.rows:SubResult",
    "abreast:matrix.Summary": "abreast.jobs.matrix.statistics:Summary",
    "abreast:plan.Assignment": "abreast.jobs.plan.assignment:Assignment",
    "abreast:plan.Blamed": "abreast.jobs.plan.gate:Blamed",
    "abreast:plan.Bound": "abreast.jobs.plan.score:Bound",
    "abreast:plan.Change": "abreast.jobs.plan.merge:Change",
    "abreast:plan.Changed": "abreast.jobs.plan.snapshots:Changed",
    "abreast:plan.Clash": "abreast.jobs.plan.three_way:Clash",
    "abreast:plan.Conflict": "abreast.jobs.plan.merge:Conflict",
    "abreast:plan.ConflictKind": "abreast.jobs.plan.three_way:ConflictKind",
    "abreast:plan.Difference": "abreast.jobs.plan.snapshots:Difference",
    "abreast:plan.Entry": "abreast.jobs.plan.snapshots:Entry",
    "abreast:plan.Fault": "abreast.jobs.plan.gate:Fault",
    "abreast:plan.FileEntry": "abreast.jobs.plan.inventory:FileEntry",
    "abreast:plan.Form": "abreast.jobs.plan.inventory:Form",
    "abreast:plan.Held": "abreast.jobs.plan.kept:Held",
    "abreast:plan.How": "abreast.jobs.plan.execute:How",
    "abreast:plan.Hub": "abreast.jobs.plan.score:Hub",
    "abreast:plan.Imports": "abreast.jobs.plan.imports:Imports",
    "abreast:plan.Inventory": "abreast.jobs.plan.inventory:Inventory",
    "abreast:plan.Kind": "abreast.jobs.plan.nodes:Kind",
    "abreast:plan.Looked": "abreast.jobs.plan.checks:Looked",
    "abreast:plan.Merged": "abreast.jobs.plan.merge:Merged",
    "abreast:plan.Module": "abreast.jobs.plan.facts:Module",
    "abreast:plan.Node": "abreast.jobs.plan.nodes:Node",
    "abreast:plan.Options": "abreast.jobs.plan.nodes:Options",
    "abreast:plan.Outside": "abreast.jobs.plan.merge:Outside",
    "abreast:plan.Pair": "abreast.jobs.plan.score:Pair",
    "abreast:plan.Plan": "abreast.jobs.plan.nodes:Plan",
    "abreast:plan.Reason": "abreast.jobs.plan.nodes:Reason",
    "abreast:plan.Request": "abreast.jobs.plan.merge:Request",
    "abreast:plan.Result": "abreast.jobs.plan.execute:PlanResult",
    "abreast:plan.Score": "abreast.jobs.plan.score:Score",
    "abreast:plan.Seen": "abreast.jobs.plan.snapshots:Seen",
    "abreast:plan.Strategy": "abreast.jobs.plan.merge:Strategy",
    "abreast:plan.Subplan": "abreast.jobs.plan.execute:Subplan",
    "abreast:plan.Whole": "abreast.jobs.plan.checks:Whole",
    "abreast:candidates.Behaviour": "abreast.jobs.candidates.behaviour:Behaviour",
    "abreast:candidates.Bounds": "abreast.jobs.candidates.laboratory:Bounds",
    "abreast:candidates.Call": "abreast.jobs.candidates.generate:Call",
    "abreast:candidates.Checked": "abreast.jobs.candidates.tried:Checked",
    "abreast:candidates.Diff": "abreast.jobs.candidates.tried:Diff",
    "abreast:candidates.Difference": "abreast.jobs.candidates.matching:Difference",
    "abreast:candidates.Doubt": "abreast.jobs.candidates.matching:Doubt",
    "abreast:candidates.Finding": "abreast.jobs.candidates.record:Finding",
    "abreast:candidates.Input": "abreast.jobs.candidates.inputs:Input",
    "abreast:candidates.Inputs": "abreast.jobs.candidates.inputs:Inputs",
    "abreast:candidates.Interval": "abreast.jobs.candidates.measure:Interval",
    "abreast:candidates.Invocation": "abreast.jobs.candidates.record:Invocation",
    "abreast:candidates.Line": "abreast.jobs.candidates.tried:Line",
    "abreast:candidates.Link": "abreast.jobs.candidates.roll:Link",
    "abreast:candidates.Measurement": "abreast.jobs.candidates.measure:Measurement",
    "abreast:candidates.Probe": "abreast.jobs.candidates.probing:Probe",
    "abreast:candidates.Proposal": "abreast.jobs.candidates.tried:Proposal",
    "abreast:candidates.Report": "abreast.jobs.candidates.report:Report",
    "abreast:candidates.Rules": "abreast.jobs.candidates.rules:Rules",
    "abreast:candidates.Seen": "abreast.jobs.candidates.laboratory:Seen",
    "abreast:candidates.Spec": "abreast.jobs.candidates.spec:CandidatesSpec",
    "abreast:candidates.Target": "abreast.jobs.candidates.target:Target",
    "abreast:candidates.Timed": "abreast.jobs.candidates.tried:Timed",
    "abreast:candidates.Tried": "abreast.jobs.candidates.tried:Tried",
    "abreast:candidates.Verdict": "abreast.jobs.candidates.compare:Verdict",
}
"""Each stable name with the `module:qualname` that stores held before there were stable names."""

_MOVED: Final[Mapping[str, str]] = {
    "abreast:matrix.Attempt": "abreast.jobs.matrix.notes:Attempt",
    "abreast:plan.Change": "abreast.jobs.plan.merge_change:Change",
    "abreast:plan.Conflict": "abreast.jobs.plan.merge_change:Conflict",
}
"""Each stable name whose class no longer stands where `_FIRST` says, with where it stands now."""

_HOME: Final = {**_FIRST, **_MOVED}
_STABLE_BY_FIRST: Final = {first: stable for stable, first in _FIRST.items()}
_STABLE_BY_HOME: Final = {home: stable for stable, home in _HOME.items()}


def stable_name(home: str) -> str | None:
    """The stable name of the type that stands at `module:qualname` today; None if it has none.

    >>> stable_name("abreast.models.port:Reply")
    'abreast:Reply'
    """
    return _STABLE_BY_HOME.get(home)


def digest_name(stable: str) -> str:
    """The name that digests are made of: the first one, so that what was recorded before has the same digest."""
    return _FIRST[stable]


def home_of(name: str) -> str | None:
    """Where the type that a store names stands today, by its stable or its first name; None if it isn't abreast's.

    >>> home_of("abreast:Reply") == home_of("abreast.models.port:Reply") == "abreast.models.port:Reply"
    True
    """
    return _HOME.get(_STABLE_BY_FIRST.get(name, name))
