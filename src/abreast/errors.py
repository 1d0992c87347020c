"""The errors that you may catch, each named for a situation.

    try:
        async with abreast.open_run("summaries", store="runs.db", budget="5usd") as run:
            summaries = await run.map(summarise, documents, width=16).values()
    except abreast.errors.BudgetSpent as spent:
        print(spent)                        # what is recorded stays: resume with a larger budget

    AbreastError
    |-- KeyReused        two items of a map, or two maps of a scope, have the same name
    |-- ItemChanged      on resume, items differ from those recorded under their keys
    |-- TimedOut         an attempt took longer than its timeout            (also a TimeoutError)
    |-- CannotStore      a value can't be written to the store              (also a TypeError)
    |-- RecordedError    a failure as it was read back from the store
    |-- ItemsFailed      several items failed at once; the first is its cause
    |-- OutcomeUnknown   a `once` step was in flight when its driver died: it may be done or not
    |-- ItemCancelled    an item was stopped before it ended: the `error` of a `Cancelled`
    |-- WouldBlock       a blocking function was called where it would stop the loop
    |-- WorkerDied       a worker process ended in the middle of an item
    |-- CallFailed       a model call did not give a usable reply; what came instead is in `raw`
    |   |-- Throttled        too many requests: the lane is held, and the call goes on later
    |   |-- QuotaSpent       the account's quota is used up: the lane is parked
    |   |-- ServerFault      the provider failed (5xx)
    |   |   `-- Unavailable      it is down or overloaded (502, 503, 529): the lane is held
    |   |-- ConnectionLost   the connection failed or broke off            (also a ConnectionError)
    |   |-- ReplyTimeout     no reply in time                              (also a TimeoutError)
    |   |-- BatchMissed      several batches ended without an answer to the call
    |   |-- ReplyBroken      a reply that can't be read: malformed, empty, wrong type, too long
    |   |-- ReplyInvalid     a reply that can be read but does not obey the schema
    |   |-- Refused          the model or its provider declined to answer
    |   |-- TooLong          the request does not fit the model's context
    |   |-- KeyRefused       the key is wrong, or may not do this
    |   |-- NoSuchModel      the provider has no model of that name
    |   |-- NotRecorded      a replayed run did not record this request
    |   |-- RequestRefused   the provider says that the request is wrong
    |   `-- AgentFailed      a coding agent ended without a result
    |-- BranchesFailed   no branch of a sample passed, and some raised; the first error is its cause
    |-- CheckBroken      a check raised instead of judging; what it raised is the cause
    |-- WorkflowInvalid  a workflow file can't be run; names every problem  (also a ValueError)
    |-- CommandMissing   there is no command of that name             (also a FileNotFoundError)
    |-- CommandRefused   the command can't be started
    |-- ClusterUnusable  there is no Ray cluster, or it refuses this driver
    |-- NodeDiffers      a node has other versions than the driver, of Python, abreast or your code
    |-- InputIncomplete  a run was killed before it had read all items: they must be given again
    |-- StepHalted       a step of a workflow did not succeed
    |-- CannotDo         a step needs an agent, a model or a function that does not exist here
    |-- AgentUnknown     there is no such agent, or it can't be allowed that
    |-- CellFailed       a strategy of a matrix, or its provider, failed
    |-- TargetInvalid    there is no such function to optimize              (also a ValueError)
    |-- CandidateInvalid the text can't replace the target                  (also a ValueError)
    |-- SourceMissing    there is no such directory, patch or ref           (also a ValueError)
    |-- BaselineFailed   the original can't be compared with candidates
    |-- TimedProcessFailed  a process that is timed did not reach its calls, or ended in one
    |   |-- TimedProcessTimedOut  a call took longer than its timeout
    |   `-- OriginalTimedOut  the original took much longer than before
    |-- TreeChanged      the working tree is not the one that the recorded results are about
    |-- PlanInvalid      a plan can't be made of what was given             (also a ValueError)
    |-- PlanFailed       some subplans are not done
    |-- SubplanFailed    the work of a subplan failed; what it wrote is in `details`
    |   `-- EditRefused      a model's reply can't be written: it has no edit, or breaks a rule
    |-- GitFailed        a git command failed
    |-- WorktreesUnavailable  not one worktree could be made
    |-- WorktreesLeft    a worktree could not be removed; the next pool tries again
    |-- SlotClosed       the pool that a worktree belongs to has been closed
    |-- OutsideRepository  a path leads out of the repository               (also a ValueError)
    |-- MergeBlocked     a merge has conflicts or faults, and can't be applied
    |-- SourceChanged    the source tree is no longer what was merged into: merge again
    |-- ApplyInterrupted  an apply was interrupted and is not rolled back yet
    |-- ApplyRunning     an apply or an undo is under way in the same tree
    |-- LaneNeedsStore   a lane is shared, and there is no store for its permits
    |-- PriceUnknown     a cap on money can't be kept: the model's price is unknown
    |-- KeysMissing      keys of lanes that are needed are not set; names them all
    |-- ModelUnknown     no provider or model has that name
    |-- Stopped          a run or map ended before its items did
    |   |-- Halted           by `run.halt`, with the reason given
    |   |   `-- StoppedAtFailure  by the first failure of a map with `on_error="halt"`
    |   |-- CancelRequested  by a request from another process
    |   |-- Paused           a person has to decide something first
    |   `-- BudgetSpent      nothing in flight could still make room under the cap
    |       `-- LaneParked       a provider takes no more requests for now
    `-- StoreError       the store can't do what is asked of it
        |-- RunBusy          another driver is on this run
        |-- RunExists        a run of that id exists already
        |-- DriverReplaced   another driver took this run over; nothing more is written
        |-- NoSuchRun        no run of that name or id
        |-- StoreNewer       written by a later version of abreast
        |-- StoreCorrupt     not a store, or a damaged one
        |   `-- StoreDamaged     rows of a run that are not as they were written
        |-- TypeNotLoaded    a recorded value has a type that this program has not imported
        |-- StoreUnreachable the server can't be connected to, or does not answer
        |-- StoreReadOnly    the file or its directory can't be written
        |-- StoreFull        no room left on the disk
        |-- StoreLocked      another process kept the file locked for too long
        `-- StoreGone        the file was removed or replaced while it was in use

    NeedsReport          an ImportError: the packages for statistics and reports are not installed

An option that is invalid is a ValueError or a TypeError, raised before anything starts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from abreast.core.errors import (
    AbreastError,
    BatchMissed,
    BranchesFailed,
    BudgetSpent,
    CallFailed,
    CancelRequested,
    CannotStore,
    CheckBroken,
    ConnectionLost,
    DriverReplaced,
    Halted,
    ItemCancelled,
    ItemChanged,
    ItemsFailed,
    KeyRefused,
    KeyReused,
    KeysMissing,
    LaneNeedsStore,
    LaneParked,
    ModelUnknown,
    NoSuchModel,
    NoSuchRun,
    NotRecorded,
    OutcomeUnknown,
    Paused,
    PriceUnknown,
    QuotaSpent,
    RecordedError,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    ReplyTimeout,
    RequestRefused,
    RunBusy,
    RunExists,
    ServerFault,
    Stopped,
    StoreCorrupt,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreGone,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnreachable,
    Throttled,
    TimedOut,
    TooLong,
    TypeNotLoaded,
    Unavailable,
    WorkerDied,
    WorkflowInvalid,
    WouldBlock,
)

if TYPE_CHECKING:
    from abreast.agents.process import AgentFailed
    from abreast.agents.runner import AgentUnknown
    from abreast.executors.commands import CommandMissing, CommandRefused
    from abreast.executors.ray.cluster import ClusterUnusable
    from abreast.executors.sources import NodeDiffers
    from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
    from abreast.jobs.candidates.job import TreeChanged
    from abreast.jobs.candidates.source.origins import SourceMissing
    from abreast.jobs.candidates.source.target import CandidateInvalid, TargetInvalid
    from abreast.jobs.candidates.timing.race import OriginalTimedOut
    from abreast.jobs.candidates.timing.timed_process import (
        TimedProcessFailed,
        TimedProcessTimedOut,
    )
    from abreast.jobs.matrix.job import CellFailed
    from abreast.jobs.matrix.scoring.inference import NeedsReport
    from abreast.jobs.plan.errors import EditRefused, PlanFailed, PlanInvalid, SubplanFailed
    from abreast.jobs.workflow.steps.records import StepHalted
    from abreast.jobs.workflow.tools import CannotDo
    from abreast.run.context import StoppedAtFailure
    from abreast.run.map.recorded_input import InputIncomplete
    from abreast.worktrees.errors import (
        OutsideRepository,
        SlotClosed,
        WorktreesLeft,
        WorktreesUnavailable,
    )
    from abreast.worktrees.git import GitFailed
    from abreast.worktrees.merge.errors import (
        ApplyInterrupted,
        ApplyRunning,
        MergeBlocked,
        SourceChanged,
    )

__all__ = [
    "AbreastError",
    "AgentFailed",
    "AgentUnknown",
    "ApplyInterrupted",
    "ApplyRunning",
    "BaselineFailed",
    "BatchMissed",
    "BranchesFailed",
    "BudgetSpent",
    "CallFailed",
    "CancelRequested",
    "CandidateInvalid",
    "CannotDo",
    "CannotStore",
    "CellFailed",
    "CheckBroken",
    "ClusterUnusable",
    "CommandMissing",
    "CommandRefused",
    "ConnectionLost",
    "DriverReplaced",
    "EditRefused",
    "GitFailed",
    "Halted",
    "InputIncomplete",
    "ItemCancelled",
    "ItemChanged",
    "ItemsFailed",
    "KeyRefused",
    "KeyReused",
    "KeysMissing",
    "LaneNeedsStore",
    "LaneParked",
    "MergeBlocked",
    "ModelUnknown",
    "NeedsReport",
    "NoSuchModel",
    "NoSuchRun",
    "NodeDiffers",
    "NotRecorded",
    "OriginalTimedOut",
    "OutcomeUnknown",
    "OutsideRepository",
    "Paused",
    "PlanFailed",
    "PlanInvalid",
    "PriceUnknown",
    "QuotaSpent",
    "RecordedError",
    "Refused",
    "ReplyBroken",
    "ReplyInvalid",
    "ReplyTimeout",
    "RequestRefused",
    "RunBusy",
    "RunExists",
    "ServerFault",
    "SlotClosed",
    "SourceChanged",
    "SourceMissing",
    "StepHalted",
    "Stopped",
    "StoppedAtFailure",
    "StoreCorrupt",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreLocked",
    "StoreNewer",
    "StoreReadOnly",
    "StoreUnreachable",
    "SubplanFailed",
    "TargetInvalid",
    "Throttled",
    "TimedOut",
    "TimedProcessFailed",
    "TimedProcessTimedOut",
    "TooLong",
    "TreeChanged",
    "TypeNotLoaded",
    "Unavailable",
    "WorkerDied",
    "WorkflowInvalid",
    "WorktreesLeft",
    "WorktreesUnavailable",
    "WouldBlock",
]

# Errors of jobs, each imported at its first use: none of the jobs is imported to catch another.
_MODULE_OF = {
    "AgentFailed": "abreast.agents.process",
    "AgentUnknown": "abreast.agents.runner",
    "ApplyInterrupted": "abreast.worktrees.merge.errors",
    "ApplyRunning": "abreast.worktrees.merge.errors",
    "BaselineFailed": "abreast.jobs.candidates.behaviour.verdict",
    "CandidateInvalid": "abreast.jobs.candidates.source.target",
    "CannotDo": "abreast.jobs.workflow.tools",
    "CellFailed": "abreast.jobs.matrix.job",
    "ClusterUnusable": "abreast.executors.ray.cluster",
    "CommandMissing": "abreast.executors.commands",
    "CommandRefused": "abreast.executors.commands",
    "EditRefused": "abreast.jobs.plan.errors",
    "GitFailed": "abreast.worktrees.git",
    "InputIncomplete": "abreast.run.map.recorded_input",
    "MergeBlocked": "abreast.worktrees.merge.errors",
    "NeedsReport": "abreast.jobs.matrix.scoring.inference",
    "NodeDiffers": "abreast.executors.sources",
    "OriginalTimedOut": "abreast.jobs.candidates.timing.race",
    "OutsideRepository": "abreast.worktrees.errors",
    "PlanFailed": "abreast.jobs.plan.errors",
    "PlanInvalid": "abreast.jobs.plan.errors",
    "SlotClosed": "abreast.worktrees.errors",
    "SourceChanged": "abreast.worktrees.merge.errors",
    "SourceMissing": "abreast.jobs.candidates.source.origins",
    "StepHalted": "abreast.jobs.workflow.steps.records",
    "StoppedAtFailure": "abreast.run.context",
    "SubplanFailed": "abreast.jobs.plan.errors",
    "TargetInvalid": "abreast.jobs.candidates.source.target",
    "TimedProcessFailed": "abreast.jobs.candidates.timing.timed_process",
    "TimedProcessTimedOut": "abreast.jobs.candidates.timing.timed_process",
    "TreeChanged": "abreast.jobs.candidates.job",
    "WorktreesLeft": "abreast.worktrees.errors",
    "WorktreesUnavailable": "abreast.worktrees.errors",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    error = globals()[name] = getattr(import_module(module), name)
    return error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
