"""numpy and pandas, if installed: dtype, shape, elements, NaN and NaT, masks, shared memory."""

import importlib.util
import subprocess
import sys

import pytest

from abreast.jobs.candidates.rules import LOOSE, STRICT, Rules
from abreast.jobs.candidates.values.compare import compare, compare_snapshots
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates.snapshots import unpack

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
HAS_PANDAS = importlib.util.find_spec("pandas") is not None
needs_numpy = pytest.mark.skipif(not HAS_NUMPY, reason="numpy is not installed")
needs_pandas = pytest.mark.skipif(not HAS_PANDAS, reason="pandas is not installed")

NUMPY = {
    "floats": (
        "np.array([1.0, nan])",
        ["np.array([1.0, 2.0])", "np.array([1.0, nan, 1.0])", "[1.0, nan]"],
    ),
    "dtype": (
        "np.arange(3)",
        [
            "np.arange(3.0)",
            "np.arange(3, dtype='i4')",
            "np.arange(3, dtype='>i8')",
            "np.arange(1, 4)",
        ],
    ),
    "unsigned": ("np.arange(3, dtype='u2')", ["np.arange(3, dtype='i2')"]),
    "half": ("np.array([1, nan], 'f2')", ["np.array([1, 2], 'f2')", "np.array([1, nan], 'f4')"]),
    "big end": ("np.array([1, 2], '>f8')", ["np.array([1, 3], '>f8')", "np.array([1, 2], '<f8')"]),
    "long double": ("np.array([1, nan], 'g')", ["np.array([1, 2], 'g')"]),
    "shape": ("np.zeros((2, 3))", ["np.zeros((3, 2))", "np.zeros(6)", "np.zeros((2, 3, 1))"]),
    "layout": ("np.asfortranarray(np.eye(2) + 1)", ["np.array([[2.0, 1.0], [1.0, 3.0]])"]),
    "empty": ("np.zeros(0)", ["np.zeros((0, 1))", "np.zeros(0, 'i8')"]),
    "no dimension": ("np.array(1.0)", ["np.array([1.0])", "np.float64(1)", "np.array(2.0)"]),
    "minus zero": ("np.array([0.0])", ["np.array([-0.0])"]),
    "complex": (
        "np.array([1 + 2j, nan])",
        ["np.array([1 + 3j, nan])", "np.array([1 + 2j, nan], 'c8')"],
    ),
    "bools": ("np.array([True])", ["np.array([False])", "np.array([1])"]),
    "text": ("np.array(['a', 'bc'])", ["np.array(['a', 'bd'])", "np.array(['a', 'bc'], 'U5')"]),
    "bytes": ("np.array([b'a'])", ["np.array([b'b'])"]),
    "times": (
        "np.array(['2026-01-01', 'NaT'], 'M8[s]')",
        ["np.array(['2026-01-01', '2026-01-01'], 'M8[s]')"],
    ),
    "unit": ("np.array(['2026-01-01'], 'M8[s]')", ["np.array(['2026-01-01'], 'M8[ms]')"]),
    "time spans": ("np.array([1, 'NaT'], 'm8[s]')", ["np.array([2, 'NaT'], 'm8[s]')"]),
    "objects": (
        "np.array([1, 'a', None, [nan]], object)",
        ["np.array([1, 'a', None, [1.0]], object)"],
    ),
    "fields": (
        "np.array([(1, nan)], [('a', 'i4'), ('b', 'f8')])",
        ["np.array([(1, 2.0)], [('a', 'i4'), ('b', 'f8')])"],
    ),
    "names": ("np.array([(1,)], [('a', 'i4')])", ["np.array([(1,)], [('b', 'i4')])"]),
    "scalar": ("np.float64(nan)", ["nan", "np.float32(nan)", "np.float64(1)"]),
    "int scalar": ("np.int64(1)", ["1", "np.int32(1)", "np.int64(2)", "np.True_"]),
    "no time": ("np.datetime64('NaT')", ["np.datetime64('2026')", "np.timedelta64('NaT')"]),
    "void": (
        "np.array([(1, 2.0)], [('a', 'i4'), ('b', 'f8')])[0]",
        ["np.array([(1, 3.0)], [('a', 'i4'), ('b', 'f8')])[0]"],
    ),
    "a dtype": ("np.dtype('f8')", ["np.dtype('f4')", "np.dtype([('a', 'f8')])"]),
    "function": ("np.sin", ["np.cos"]),
    "matrix": (
        "np.array([[1]]).view(np.matrix)",
        ["np.array([[1]])", "np.array([[2]]).view(np.matrix)"],
    ),
    "masked": (
        "np.ma.array([1, 2], mask=[0, 1])",
        [
            "np.ma.array([1, 2], mask=[1, 0])",
            "np.ma.array([1, 2], mask=[0, 1], fill_value=7)",
            "np.ma.array([3, 2], mask=[0, 1])",
        ],
    ),
    "a mask over zeros": ("np.ma.array([0, 0], mask=[0, 1])", ["np.ma.array([0, 0], mask=[1, 0])"]),
    "beneath a mask": ("np.ma.array([1, 5], mask=[0, 1], fill_value=0)", ["np.ma.array([1, 5])"]),
    "masked fields": (
        "np.ma.array([(1,)], dtype=[('a', 'i4')])",
        ["np.ma.array([(2,)], dtype=[('a', 'i4')])"],
    ),
    "strings": (
        "np.array(['a'], np.dtypes.StringDType())",
        ["np.array(['b'], np.dtypes.StringDType())"],
    ),
    "in a dict": ("{'a': [np.array([nan])]}", ["{'a': [np.array([0.0])]}"]),
    "sharing": ("(lambda a: [a, a[:1]])(np.zeros(2))", ["[np.zeros(2), np.zeros(1)]"]),
    "no sharing": ("[np.zeros((2, 2))[0], np.zeros(2)]", ["(lambda a: [a, a[:]])(np.zeros(2))"]),
}

PANDAS = {
    "frame": (
        "pd.DataFrame({'a': [1.0, nan], 'b': ['x', None]})",
        [
            "pd.DataFrame({'a': [1.0, 2.0], 'b': ['x', None]})",
            "pd.DataFrame({'b': ['x', None], 'a': [1.0, nan]})",
            "pd.DataFrame({'a': [1.0, nan]})",
            "pd.DataFrame({'a': [1.0, nan], 'b': ['x', None]}, index=[1, 2])",
            "pd.DataFrame({'a': np.array([1.0, nan], 'f4'), 'b': ['x', None]})",
        ],
    ),
    "series": (
        "pd.Series([1, 2], name='a')",
        [
            "pd.Series([1, 2], name='b')",
            "pd.Series([1, 3], name='a')",
            "pd.Series([1.0, 2], name='a')",
        ],
    ),
    "times": (
        "pd.Series(pd.to_datetime(['2026-01-01', None]))",
        ["pd.Series(pd.to_datetime(['2026-01-01', '2026-01-02']))"],
    ),
    "zones": (
        "pd.Series(pd.to_datetime(['2026-01-01'], utc=True))",
        ["pd.Series(pd.to_datetime(['2026-01-01']))"],
    ),
    "index": (
        "pd.Index([1, 2], name='i')",
        ["pd.Index([1, 3], name='i')", "pd.Index([1, 2])", "pd.RangeIndex(1, 3, name='i')"],
    ),
    "range": ("pd.RangeIndex(3)", ["pd.RangeIndex(4)"]),
    "dates": (
        "pd.date_range('2026', periods=2)",
        ["pd.date_range('2026', periods=2, freq='h')", "pd.date_range('2027', periods=2)"],
    ),
    "many levels": (
        "pd.MultiIndex.from_tuples([(1, 'a')])",
        ["pd.MultiIndex.from_tuples([(1, 'b')])"],
    ),
    "categories": (
        "pd.Categorical(['a'], ['a', 'b'])",
        ["pd.Categorical(['a'], ['a'])", "pd.Categorical(['a'], ['a', 'b'], ordered=True)"],
    ),
    "missing": (
        "pd.array([1, None], dtype='Int64')",
        ["pd.array([1, 2], dtype='Int64')", "pd.array([1, None], dtype='Int32')"],
    ),
    "NA": ("pd.NA", ["pd.NaT", "None"]),
    "NaT": ("pd.NaT", ["nan"]),
    "time": ("pd.Timestamp('2026')", ["pd.Timestamp('2026', tz='UTC')", "pd.Timestamp('2027')"]),
    "span": ("pd.Timedelta('1s')", ["pd.Timedelta('2s')"]),
    "interval": ("pd.Interval(0, 1)", ["pd.Interval(0, 1, closed='both')"]),
    "period": (
        "pd.Period('2026-01', 'M')",
        ["pd.Period('2026-02', 'M')", "pd.Period('2026-01', 'D')"],
    ),
    "dtype": ("pd.CategoricalDtype(['a'])", ["pd.CategoricalDtype(['b'])", "pd.Int64Dtype()"]),
}


def made(text):
    import numpy as np

    space = {"np": np, "nan": float("nan")}
    if "pd." in text:
        import pandas as pd

        space["pd"] = pd
    return eval(text, space)


def check(one, others):
    assert compare(made(one), made(one)).outcome == "same"
    assert (
        compare_snapshots(
            unpack(pack(take_snapshot(made(one)))), take_snapshot(made(one)), rules=LOOSE
        ).outcome
        == "same"
    )
    for other in others:
        for rules in (
            (STRICT, LOOSE) if "0.0])" not in other and "sharing" not in other else (STRICT,)
        ):
            if rules is LOOSE and "lambda" in one + other:
                continue
            assert compare(made(one), made(other), rules=rules).outcome == "different", other
            assert compare([made(other)], [made(one)], rules=rules).outcome == "different", other


@needs_numpy
@pytest.mark.parametrize("name", NUMPY)
def test_numpy(name):
    check(*NUMPY[name])


@needs_pandas
@pytest.mark.parametrize("name", PANDAS)
def test_pandas(name):
    check(*PANDAS[name])


@needs_numpy
def test_the_first_element_that_differs_is_named():
    verdict = compare({"a": made("np.arange(5.0)")}, {"a": made("np.array([0.0, 1, 2, 9, 9])")})
    assert verdict.path == '$["a"][3]'
    assert compare(made("np.zeros(2)"), made("np.zeros(2, 'f4')")).path == "$.dtype"


@needs_numpy
def test_tolerance_and_rules_hold_in_arrays_too():
    one, near, far = "np.array([1.0, nan])", "np.array([1.0 + 1e-9, nan])", "np.array([1.1, nan])"
    assert compare(made(one), made(near)).outcome == "different"
    assert compare(made(one), made(near), rules=Rules(relative=1e-6)).outcome == "same"
    assert compare(made(one), made(far), rules=Rules(relative=1e-6)).outcome == "different"
    assert compare(made("np.array([0.0])"), made("np.array([-0.0])"), rules=LOOSE).outcome == "same"
    assert (
        compare(
            made("[np.zeros(1), np.zeros(1)]"), made("(lambda a: [a, a])(np.zeros(1))"), rules=LOOSE
        ).outcome
        == "same"
    )
    assert (
        compare(
            made("np.array([1 + 1j])"),
            made("np.array([1 + 1.0000000001j])"),
            rules=Rules(relative=1e-6),
        ).outcome
        == "same"
    )


@needs_numpy
def test_masked_elements_do_not_count():
    one, other = "np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 9], mask=[0, 1])"
    assert compare(made(one), made(other)).outcome == "same"


@needs_numpy
def test_user_defined_arrays_are_read_with_their_state():
    import numpy as np

    class Tagged(np.ndarray):
        pass

    class Lying(np.float64):
        pass

    one, other = np.zeros(2).view(Tagged), np.zeros(2).view(Tagged)
    assert compare(one, other).outcome == "same"
    other.tag = 1
    assert compare(one, other).outcome == "different"
    assert compare(Lying(1), Lying(1)).outcome == "cannot_compare"
    assert compare(one, np.zeros(2)).outcome == "different"
    assert compare(np.random.default_rng(1), np.random.default_rng(1)).outcome == "same"
    assert compare(np.rec.array([(1,)]), np.rec.array([(1,)])).outcome == "same"


@needs_numpy
def test_an_array_over_bytes_of_another():
    import numpy as np

    held = bytearray(16)
    one, two = np.frombuffer(held), np.frombuffer(held)
    assert compare([one, two], [one, two]).outcome == "same"


@needs_pandas
def test_user_defined_frames_can_not_be_compared():
    import pandas as pd

    class Frame(pd.DataFrame):
        pass

    assert compare(Frame(), Frame()).outcome == "cannot_compare"


def test_neither_is_imported():
    code = "import sys, abreast.jobs.candidates.values.invocation\n"
    code += "import abreast.jobs.candidates.timing.measure\n"
    code += "import abreast.jobs.candidates.source.normal_form\n"
    code += "from abreast.jobs.candidates.values.compare import compare\ncompare(object(), [1.0])\n"
    code += "sys.exit(bool({'numpy', 'pandas', 'scipy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_module_of_that_name_that_is_another_is_left_alone(monkeypatch):
    import types

    monkeypatch.setitem(sys.modules, "numpy", types.ModuleType("numpy"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert compare(types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)).outcome == "same"
    assert compare(ValueError, ValueError).outcome == "same"
