"""torch, or a stand-in where it isn't installed: dtype, shape, device, elements, NaN, gradients."""

import importlib.util
import math
import sys

import pytest

from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.values import torch_types
from abreast.jobs.candidates.values.compare import compare, compare_snapshots
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates.snapshots import unpack
from tests.jobs.candidates.values import stand_in_torch

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

# Both the stand-in and torch itself are asked these.
BOTH = {
    "floats": ("torch.tensor([1.0, nan])", ["torch.tensor([1.0, 2.0])", "[1.0, nan]"]),
    "dtype": (
        "torch.tensor([1.0])",
        ["torch.tensor([1.0], dtype=torch.float64)", "torch.tensor([1.0], dtype=torch.bfloat16)"],
    ),
    "whole": ("torch.tensor([1], dtype=torch.int64)", ["torch.tensor([2], dtype=torch.int64)"]),
    "shape": ("torch.tensor([[1.0, 2.0]])", ["torch.tensor([1.0, 2.0])"]),
    "empty": ("torch.tensor([])", ["torch.tensor([], dtype=torch.float64)"]),
    "zero": ("torch.tensor([0.0])", ["torch.tensor([-0.0])"]),
    "narrow": (
        "torch.tensor([1.0, nan], dtype=torch.bfloat16)",
        ["torch.tensor([1.5, nan], dtype=torch.bfloat16)"],
    ),
    "complex": (
        "torch.tensor([1 + 2j], dtype=torch.complex64)",
        ["torch.tensor([1 + 3j], dtype=torch.complex64)"],
    ),
    "bools": (
        "torch.tensor([True], dtype=torch.bool)",
        ["torch.tensor([False], dtype=torch.bool)"],
    ),
    "gradient": (
        "torch.tensor([1.0], requires_grad=True)",
        ["torch.tensor([1.0])", "torch.tensor([2.0], requires_grad=True)"],
    ),
    "device": ("torch.tensor([1.0])", ["torch.tensor([1.0], device='meta')"]),
    "no elements": (
        "torch.tensor([1.0], device='meta')",
        ["torch.tensor([1.0, 2.0], device='meta')"],
    ),
    "sharing": (
        "(lambda a: [a, a.detach()])(torch.tensor([1.0]))",
        ["[torch.tensor([1.0]), torch.tensor([1.0])]"],
    ),
    "in a dict": ("{'a': [torch.tensor([nan])]}", ["{'a': [torch.tensor([0.0])]}"]),
    "words": ("[torch.float32, torch.device('cpu')]", ["[torch.float64, torch.device('cpu')]"]),
}
REAL = {
    "parameter": (
        "torch.nn.Parameter(torch.ones(2))",
        ["torch.ones(2, requires_grad=True)", "torch.nn.Parameter(torch.zeros(2))"],
    ),
    "a view": ("torch.arange(4)[::2]", ["torch.arange(4)[1::2]"]),
    "the same by other strides": ("torch.ones(2, 3).T", ["torch.ones(2, 3)"]),
    "conjugate": (
        "torch.tensor([1 + 2j]).conj()",
        ["torch.tensor([1 + 2j])"],
    ),
    "not a leaf": (
        "torch.ones(1, requires_grad=True) * 2",
        ["torch.full((1,), 2.0, requires_grad=True)"],
    ),
    "sparse": (
        "torch.eye(3).to_sparse()",
        ["torch.eye(3)", "(torch.eye(3) * 2).to_sparse()", "torch.eye(3).to_sparse_csr()"],
    ),
    "rows": ("torch.eye(3).to_sparse_csr()", ["(torch.eye(3) * 2).to_sparse_csr()"]),
    "named": ("torch.zeros(2, names=('a',))", ["torch.zeros(2)", "torch.zeros(2, names=('b',))"]),
    "half": ("torch.tensor([1, nan]).half()", ["torch.tensor([1, 2]).half()"]),
    "no dimension": ("torch.tensor(1.0)", ["torch.tensor([1.0])", "1.0"]),
    "generator": (
        "torch.Generator().manual_seed(1)",
        ["torch.Generator().manual_seed(2)"],
    ),
    "a module": (
        "(torch.manual_seed(1), torch.nn.Linear(2, 1))[1]",
        ["(torch.manual_seed(2), torch.nn.Linear(2, 1))[1]"],
    ),
    "size": ("torch.zeros(2, 3).shape", ["torch.zeros(3, 2).shape", "(2, 3)"]),
}


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stand_in_torch)
    return stand_in_torch


def made(torch, text):
    return eval(text, {"torch": torch, "nan": math.nan})


def check(torch, one, others):
    assert compare(made(torch, one), made(torch, one)).outcome == "same"
    stored = unpack(pack(take_snapshot(made(torch, one))))
    again = take_snapshot(made(torch, one))
    assert compare_snapshots(stored, again, rules=STRICT).outcome == "same"
    for other in others:
        assert compare(made(torch, one), made(torch, other)).outcome == "different", other
        assert compare([made(torch, other)], [made(torch, one)]).outcome == "different", other


@pytest.mark.parametrize("name", BOTH)
def test_a_stand_in(stand_in, name):
    check(stand_in, *BOTH[name])


@needs_torch
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:Named tensors")  # when they are made
@pytest.mark.parametrize("name", [*BOTH, *REAL])
def test_torch_itself(name):
    import torch

    check(torch, *{**BOTH, **REAL}[name])


def test_tolerance_holds_in_tensors_and_the_first_element_that_differs_is_named(stand_in):
    one, near = stand_in.tensor([1.0, 2.0]), stand_in.tensor([1.0, 2.0 + 1e-5])
    assert compare(one, near).path == "$[1]"
    assert compare(one, near, rules=Rules(relative=1e-3)).outcome == "same"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"is_quantized": True}, "quantized or nested"),
        ({"is_nested": True}, "quantized or nested"),
        ({"layout": stand_in_torch.jagged}, "layout torch.jagged"),
        ({"_dtype": stand_in_torch.bits8}, "a tensor of torch.bits8"),
        ({}, "not torch's own"),
    ],
)
def test_what_can_not_be_read_is_said(stand_in, monkeypatch, change, why):
    own = {name: value for name, value in change.items() if name != "_dtype"}
    kind = type("Tensor", (stand_in.Tensor,), {"__slots__": (), **own})
    if change:  # as if it were torch's own class
        monkeypatch.setattr(stand_in.nn, "Parameter", kind)
    strange = kind([1.0], (1,), change.get("_dtype", stand_in.float32))
    verdict = compare(strange, strange)
    assert (verdict.outcome, why in verdict.reason) == ("cannot_compare", True), verdict


def test_sparse_tensors_are_compared_by_their_parts(stand_in, monkeypatch):
    class Sparse(stand_in.Tensor):
        __slots__ = ()
        layout = stand_in.sparse_csr
        crow_indices = col_indices = values = lambda self: stand_in.tensor(self._flat)

    monkeypatch.setattr(stand_in.nn, "Parameter", Sparse)
    one, other = (Sparse([number], (1,), stand_in.float32) for number in (1.0, 2.0))
    assert compare(one, one).outcome == "same"
    assert compare(one, other).outcome == "different"


def test_named_tensors_and_sizes_are_compared(stand_in, monkeypatch):
    class Named(stand_in.Tensor):
        __slots__ = ()
        names = ("a",)

    monkeypatch.setattr(stand_in.nn, "Parameter", Named)
    one = Named([1.0], (1,), stand_in.float32)
    assert compare(one, one).outcome == "same"
    sizes = [stand_in.Size(shape) for shape in ((2, 3), (2, 3), (3, 2))]
    assert compare(sizes[0], sizes[1]).outcome == "same"
    assert compare(sizes[0], sizes[2]).outcome == "different"
    assert compare(sizes[0], (2, 3)).outcome == "different"


def test_generators_are_compared_by_their_state(stand_in):
    generators = [stand_in.Generator(seed) for seed in (1, 1, 2)]
    assert compare(generators[0], generators[1]).outcome == "same"
    assert compare(generators[0], generators[2]).outcome == "different"


def test_a_module_of_that_name_that_is_another_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", math)
    assert torch_types.describe(object()) is None
    assert compare([1], [1]).outcome == "same"
