"""A project with one function, and a fake evaluator that reads the verdict from the candidate."""

from contextlib import asynccontextmanager

from abreast.jobs.candidates.job import CandidateRun, CandidatesContext
from abreast.jobs.candidates.results import Checked, Diff, ProfiledLine, Proposal, Timed
from abreast.jobs.candidates.source.target import Target
from tests.worktrees.repositories import make_repository

ORIGINAL = "def f(x):\n    return x + 1\n"
TARGET = Target("pkg/mod.py", "f")


def make_project(place):
    return make_repository(
        place, {"pkg/mod.py": ORIGINAL, "pkg/__init__.py": "", "other.txt": "left alone\n"}
    )


def text_of(word):
    """A candidate whose word decides its verdict."""
    return f"def f(x):\n    return {word!r}\n"


def word_of(text):
    return text.split("'")[1]


def diff(number=0):
    return Diff(f"test#{number}", "returned", "different", "$", "2", "3", "another number")


def text_at(path):
    return path.read_text() if path.exists() else None


class FakeEvaluator:
    """Judges by the candidate's word, and records what it did.

    `wrong...`, `hang...`, `raise...` don't pass. Others do; `fast3...` is 3 times as fast.
    """

    def __init__(self, checking=None, timing=None):
        self.checking, self.timing = checking, timing
        self.running = {"check": 0, "time": 0}
        self.peaks = {"check": 0, "time": 0}
        self.done = []
        self.slots = {}
        self.overlaps = []
        self.seen = None
        self.profiles = [ProfiledLine(2, 1, 0.5)]

    @asynccontextmanager
    async def open(self, slot):
        assert slot.path.is_dir()
        yield

    async def begin(self, slot):
        self.done.append(("begin", ""))
        assert (slot.path / TARGET.file).read_text() == ORIGINAL
        return {"calls": 10}

    def ready(self, seen, slot):
        assert slot.path.is_dir()
        self.seen = seen

    async def check(self, slot, text, files=()):
        for one in files:
            assert text_at(slot.path / one.path) == one.after
        word = word_of(text)
        assert (slot.path / TARGET.file).read_text() == text
        assert not (slot.path / "litter").exists()
        (slot.path / "litter").write_text(word)
        await self._in("check", word, self.checking, slot)
        if word.startswith("raise"):
            raise OSError("the disk is full")
        if word.startswith("hang"):
            return Checked("timeout", "it took longer than 5 s")
        if word.startswith("wrong"):
            return Checked("wrong", "test#0: another number", (diff(),), 3, 2, 10)
        if word.startswith("quiet"):
            return Checked("wrong", "tests failed", (), 3, 2, 10)
        if word.startswith("far"):
            return Checked("wrong", "all differ", tuple(diff(one) for one in range(9)), 3, 0, 10)
        return Checked("same", "", (), 3, 3, 10, f"{word} in {slot.index}")

    async def time(self, original, candidate, text, seed):
        word = word_of(text)
        assert isinstance(seed, int)
        assert original.index != candidate.index
        assert (candidate.path / TARGET.file).read_text() == text
        assert (original.path / TARGET.file).read_text() == ORIGINAL
        assert not (candidate.path / "litter").exists()
        await self._in("time", word, self.timing, candidate)
        if word.startswith("fast"):
            ratio = float(word[4])
            return Timed("faster", "", ratio, ratio * 0.9, ratio * 1.1, 0.01, 10)
        if word.startswith("break"):
            raise OSError("no clock")
        return Timed("same", "", 1.0, 0.99, 1.01, 0.01, 10)

    async def profile(self, slot):
        self.done.append(("profile", word_of((slot.path / TARGET.file).read_text())))
        if isinstance(self.profiles, Exception):
            raise self.profiles
        return self.profiles

    async def _in(self, kind, word, gate, slot):
        self.running[kind] += 1
        self.peaks[kind] = max(self.peaks[kind], self.running[kind])
        if self.running["check"] and self.running["time"]:
            self.overlaps.append(word)
        self.slots.setdefault(kind, {})[word] = slot.index
        try:
            if gate is not None:
                await gate.pass_(word)
        finally:
            self.running[kind] -= 1
        self.done.append((kind, word))

    def times(self, kind):
        return [word for one, word in self.done if one == kind]


class Author:
    """Returns the prepared texts, and records the requests."""

    def __init__(self, repairs=(), refined=(), adapted=(), gate=None):
        self.repairs, self.refined, self.adapted = list(repairs), list(refined), list(adapted)
        self.asked = []
        self.gate = gate

    async def repair(self, text, checked):
        self.asked.append(("repair", word_of(text), checked.diffs))
        if self.gate is not None:
            await self.gate.pass_(f"repair {word_of(text)}")
        return self.repairs.pop(0)

    async def refine(self, faster):
        self.asked.append(("refine", [one.name for one in faster]))
        return self.refined

    async def adapt(self, ancestry):
        self.asked.append(("adapt", [one.name for one in ancestry]))
        return self.adapted.pop(0)


class PlainAuthor(Author):
    """The same with plain functions, which may block their thread."""

    def __init__(self, *given, wait=lambda: None, **options):
        super().__init__(*given, **options)
        self.wait = wait

    def repair(self, text, checked):
        self.wait()
        self.asked.append(("repair", word_of(text), checked.diffs))
        return self.repairs.pop(0)

    def refine(self, faster):
        self.wait()
        self.asked.append(("refine", [one.name for one in faster]))
        return self.refined

    def adapt(self, ancestry):
        self.wait()
        self.asked.append(("adapt", [one.name for one in ancestry]))
        return self.adapted.pop(0)


def proposals(*words):
    return [Proposal(f"c{number}", text_of(word), "file") for number, word in enumerate(words)]


def trials(project, evaluator, how, author=None):
    return CandidateRun(CandidatesContext(TARGET, ORIGINAL, project, evaluator, author, how))


def proposing(found):
    async def propose():
        return found

    return propose
