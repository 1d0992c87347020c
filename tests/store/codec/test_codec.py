"""Values come back from their text exactly, or are refused by name."""

import datetime as dt
import json
import math
import socket
import subprocess
import sys
import uuid
import zoneinfo
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import CannotStore, RecordedError, StoreCorrupt, StoreError
from abreast.store.codec import codec, json_text
from abreast.store.codec.codec import (
    decode,
    decode_error,
    decode_plain,
    digest,
    encode,
    encode_error,
    is_scalar,
)
from tests.store import shapes

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
ZONES = st.sampled_from([zoneinfo.ZoneInfo("Europe/Zurich"), zoneinfo.ZoneInfo("UTC"), dt.UTC])
OFFSETS = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT
HASHABLE = (
    SCALARS
    | st.binary()
    | st.dates()
    | st.timedeltas()
    | st.datetimes(timezones=st.none() | ZONES | OFFSETS)
    | st.times(timezones=st.none() | OFFSETS)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from(
        [
            *shapes.Colour,
            shapes.Level.LOW,
            shapes.Rights.READ | shapes.Rights.WRITE,
            shapes.Rights(0),
        ]
    )
    | ANY_TEXT.filter(lambda text: "\0" not in text).map(PurePosixPath)
    | st.sampled_from(
        [Path("a/b"), PureWindowsPath("c:\\x"), dt.timezone(dt.timedelta(hours=1), "mine")]
    )
)


def containers(inner):
    keyed = st.dictionaries(HASHABLE | st.just("~") | st.tuples(SCALARS), inner)
    return (
        st.lists(inner)
        | st.dictionaries(ANY_TEXT, inner)
        | keyed
        | st.lists(inner).map(tuple)
        | st.builds(shapes.Frozen, ANY_TEXT, st.lists(inner).map(tuple))
        | st.builds(shapes.Plain, inner)
        | st.builds(shapes.Point, st.integers(), inner)
    )


VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE) | st.frozensets(HASHABLE), containers, max_leaves=12
)


def same(a, b):
    """Equal, with the same types at every level, order, sign of zero and fold of an hour."""
    return type(a) is type(b) and looked_at(a) == looked_at(b)


def looked_at(value):
    """All there is to see in a value, in parts that compare only to their like."""
    kind = type(value)
    if kind is dict:
        parts = [(looked_at(key), looked_at(inner)) for key, inner in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [looked_at(inner) for inner in value]
    elif kind is shapes.Plain:
        parts = [(name, looked_at(inner)) for name, inner in sorted(vars(value).items())]
    elif kind is shapes.Frozen:
        parts = [value.name, looked_at(value.parts)]
    elif isinstance(value, (dt.datetime, dt.time)):
        parts = [value.replace(tzinfo=None), value.fold, type(value.tzinfo), str(value.tzinfo)]
    elif kind is float:
        parts = [value, math.copysign(1, value)]
    else:
        parts = [value]
    return kind, parts


@given(VALUES)
def test_every_value_comes_back_as_it_was(value):
    text = encode(value, "here")
    assert same(decode(text), value)
    text.encode()  # it can be written as UTF-8
    json.loads(text, parse_constant=pytest.fail)  # and is strict JSON


@given(VALUES)
def test_anyone_can_read_a_value_as_plain_data(value):
    json.dumps(decode_plain(encode(value, "here")), allow_nan=False).encode()


@given(SCALARS | st.floats())
def test_a_scalar_needs_no_round_trip(value):
    assert is_scalar(value) == (not isinstance(value, float) or math.isfinite(value))
    if is_scalar(value):
        assert same(decode(encode(value, "here")), value)


@pytest.mark.parametrize(
    "value", [shapes.Text("x"), shapes.Level.LOW, (1,), [1], {}, b"", math.nan, math.inf]
)
def test_what_is_no_plain_scalar_needs_the_round_trip(value):
    assert not is_scalar(value)


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        -math.inf,
        -0.0,
        10**5000,
        -(10**5000),
        10**700,
        "\ud800\udc00",
        "\\\ud83d",
        "naïve",
        "\0",
        "~",
        {"~": "bytes", "v": "eA=="},
        {"\ud800": 1},
        ["é" * 400],
        [10**700, "x"],
        {"n": 2**4000},
        ["x" * 700, 1],
        Decimal("-1.50E+7"),
        Fraction(10**5000, 3),
        complex(math.inf, -0.0),
        uuid.UUID(int=7),
        PosixPath("/tmp/\udcff"),
        dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Zurich")),
        shapes.Outer.Inner(3),
        shapes.Unset(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_odd_ones_come_back_too(value):
    found = decode(encode(value, "here"))
    assert type(found) is type(value)
    if isinstance(value, (int, Fraction, shapes.Unset)):  # whose repr may fail
        assert vars_of(found) == vars_of(value)
    else:
        assert repr(found) == repr(value)


def vars_of(value):
    return getattr(value, "__dict__", value)


def test_not_a_number_is_still_not_a_number():
    assert math.isnan(decode(encode(math.nan, "here")))
    assert encode([math.nan], "here") == '[{"~":"float","v":"nan"}]'


def test_digits_that_a_stricter_interpreter_would_refuse_are_never_written():
    before = sys.get_int_max_str_digits()
    texts = {n: encode([n, "x"], "here") for n in (10**630, 10**1000, 10**4000)}
    sys.set_int_max_str_digits(640)
    try:
        assert {n: decode(text) for n, text in texts.items()} == {n: [n, "x"] for n in texts}
    finally:
        sys.set_int_max_str_digits(before)


def test_a_dataclass_comes_back_without_its_init_being_run():
    value = shapes.Plain([1], tags=["x"])
    value.total = 7
    _ = value.costly
    found = decode(encode(value, "here"))
    assert (found.a, found.total, found.tags, found.beside) == (
        [1],
        7,
        ["x"],
        "set after the fields",
    )
    assert "costly" not in vars(found)


def test_a_field_that_was_added_later_gets_its_default():
    old = '{"~":"dataclass","v":{"a":1},"t":"tests.store.shapes:Plain"}'
    assert (decode(old).total, decode(old).tags) == (0, [])
    assert decode(old).tags is not decode(old).tags
    assert decode('{"~":"namedtuple","v":{"x":1},"t":"tests.store.shapes:Point"}') == shapes.Point(
        1
    )
    state = (
        '{"__pydantic_extra__":{},"__pydantic_fields_set__":{"~":"set","v":[]},'
        '"__pydantic_private__":null}'
    )
    model = '{"~":"model","v":{"text":"x"},"t":"tests.store.shapes:Reply","state":' + state + "}"
    assert decode(model).scores == ()
    assert not hasattr(decode('{"~":"dataclass","v":{},"t":"tests.store.shapes:Unset"}'), "a")


def test_a_model_comes_back_with_its_extras_its_private_state_and_the_fields_that_were_set():
    value = shapes.Reply(text="x", inner=shapes.Reply(text="y", scores=(0.5,)), more={"k": (1,)})
    value._seen = 3
    found = decode(encode(value, "here"))
    assert found == value
    assert found.model_fields_set == {"text", "inner", "more"}
    assert (found.more, found._seen, found.scores) == ({"k": (1,)}, 3, ())
    assert found.inner.model_fields_set == {"text", "scores"}


def test_a_model_is_not_validated_a_second_time():
    value = shapes.Doubling(n=2)
    assert value.n == decode(encode(value, "here")).n == 4


def test_a_model_with_types_of_pydantics_own_goes_by_its_dump():
    value = shapes.Page(url="http://example.org/a")
    text = encode([value], "here")
    assert decode(text) == [value]
    assert decode_plain(text) == [{"url": "http://example.org/a"}]
    assert decode(encode([value] * 300, "here")) == [value] * 300  # none of them counts as nesting


def test_a_secret_is_refused_not_lost():
    with pytest.raises(CannotStore, match=r"\.password is a pydantic\.types\.SecretStr"):
        encode(shapes.Login(password="hush"), "here")


def test_a_model_that_cannot_even_be_dumped_says_what_stood_in_the_way():
    with pytest.raises(CannotStore, match=r"^here can't be stored: \.thing is a object"):
        encode(shapes.Grumpy(thing=object()), "here")


def test_pydantic_is_never_imported_for_its_own_sake():
    code = (
        "import sys; from abreast.store.codec.codec import encode, decode;"
        "decode(encode([(1,)], 'x'));"
        "sys.exit('pydantic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def local_class():
    @dataclass
    class Here:
        x: int = 1

    return Here()


def renamed():
    kind = type("Colour", (shapes.Outer.Inner,), {"__module__": "tests.store.shapes"})
    return dataclass(kind)(1)


def nowhere():
    kind = type("Gone", (shapes.Outer.Inner,), {"__module__": "tests.store.no_such_module"})
    return dataclass(kind)(1)


def with_attribute():
    value = shapes.NamedWithMore(1)
    value.note = "?"
    return value


class Odd(dt.tzinfo):
    def utcoffset(self, _when):
        return dt.timedelta(0)


def unnamed_zone():
    with Path("/usr/share/zoneinfo/UTC").open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file)


REFUSED = [
    (object(), "it is a object"),
    (shapes.Text("x"), "it is a tests.store.shapes.Text"),
    (shapes.Number(1), "it is a tests.store.shapes.Number"),
    ([shapes.Mapping()], "[0] is a tests.store.shapes.Mapping"),
    ({"a": shapes.Sequence()}, "['a'] is a tests.store.shapes.Sequence"),
    ({"a": [1, {2: socket.socket}]}, "['a'][1][2] is a type"),
    ({(1, 2): object()}, "[a tuple] is a object"),
    ({shapes.Text("k"): 1}, "[a tests.store.shapes.Text] is a tests.store.shapes.Text"),
    (shapes.Frozen("n", (1, print)), ".parts[1] is a builtin_function_or_method"),
    (shapes.Point(1, {"k": print}), ".y['k'] is a"),
    ({1, frozenset({print})}, "{}{} is a builtin_function_or_method"),
    (OrderedDict(a=1), "it is a collections.OrderedDict"),
    (ValueError("x"), "it is a ValueError"),
    (bytearray(b"x"), "it is a bytearray"),
    (dt.datetime(2024, 1, 1, tzinfo=Odd()), ".tzinfo is a"),
    (local_class(), "a class made inside a function"),
    (renamed(), "has another thing, or nothing, under that name"),
    (nowhere(), "has another thing, or nothing, under that name"),
    (shapes.DictAndMore(), "a dataclass that is also a builtin container"),
    (with_attribute(), "a named tuple with attributes of its own"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_has_no_form_is_refused_with_its_place_and_type(value, why):
    with pytest.raises(CannotStore) as refused:
        encode(value, "the value of a/0007")
    assert str(refused.value).startswith("the value of a/0007 can't be stored: ")
    assert why in str(refused.value)
    assert digest(value) is None


@pytest.mark.skipif(not Path("/usr/share/zoneinfo/UTC").exists(), reason="no system time zones")
def test_a_time_zone_without_a_name_is_refused():
    with pytest.raises(CannotStore, match=r"\.tzinfo is a time zone without a name"):
        encode(dt.datetime(2024, 1, 1, tzinfo=unnamed_zone()), "here")


def test_a_value_that_contains_itself_is_refused_whatever_it_is_made_of():
    loop: list = []
    loop.append({"again": (loop,)})
    ring: dict = {1: 2}
    ring[3] = ring
    for value in (loop, ring):
        with pytest.raises(CannotStore, match="nested more than 200 deep, or contains itself"):
            encode(value, "here")


def nested(depth, wrap):
    value = "bottom"
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = [lambda v: [v], lambda v: (v,), lambda v: {"~": v}, lambda v: {1: v}, shapes.Outer.Inner]


@pytest.mark.parametrize("wrap", WRAPS)
def test_two_hundred_levels_are_stored_and_one_more_is_not(wrap):
    deep = nested(200, wrap)
    assert decode(encode(deep, "here")) == deep
    decode_plain(encode(deep, "here"))
    with pytest.raises(CannotStore, match="200 deep"):
        encode(nested(201, wrap), "here")


def at_depth(depth, call):
    return call() if depth == 0 else at_depth(depth - 1, call)


def test_too_little_stack_is_a_clear_error_both_ways():
    deep = nested(190, lambda v: (v,))
    text = encode(deep, "here")
    room = sys.getrecursionlimit() - 250
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    with pytest.raises(CannotStore, match="nested too deeply"):
        at_depth(room - used + 50, lambda: encode(deep, "here"))
    try:
        found = at_depth(room - used + 50, lambda: decode(text))
    except StoreError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017 - it need not be raised
    else:  # the parser is in C, which some versions of Python do not count
        assert sys.version_info >= (3, 12)
        assert found == deep


def test_parts_shared_so_often_that_they_would_never_be_written_out_are_refused(monkeypatch):
    monkeypatch.setattr(
        "abreast.store.codec.encoder.MAX_BYTES", 1 << 16
    )  # it says so in MiB, and 1 MiB takes 4 s to come to
    value: list = []
    for _ in range(100):
        value = [value, value]
    with pytest.raises(CannotStore, match="larger than 0 MiB"):
        encode(value, "here")


@pytest.mark.parametrize("letter", ["x", "é"])
def test_the_size_limit_is_in_bytes_and_is_said(monkeypatch, letter):
    monkeypatch.setattr(codec, "MAX_BYTES", 1 << 20)
    size = len(letter.encode())
    fits = letter * ((1 << 20) // size - 2)
    assert decode(encode(fits, "here")) == fits
    with pytest.raises(
        CannotStore,
        match=r"^here can't be stored: it is 104857\d bytes long, and the most is 1 MiB$",
    ):
        encode(fits + letter * 2, "here")
    with pytest.raises(CannotStore, match="the most is 1 MiB"):
        encode([fits, letter * 2], "here")


def test_the_limit_itself_is_sixty_four_mebibytes():
    assert json_text.MAX_BYTES == 64 << 20


def test_a_value_that_changes_while_it_is_written_is_refused():
    growing: dict = {}
    growing[1] = shapes.Restless(growing)
    growing[2] = 3
    with pytest.raises(CannotStore, match="changed while it was written"):
        encode(growing, "here")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"share": 1e-05}, "587dbab2d8725ddf8aea170070af02f1"),
        ([1e-05], "6b29e2344f0ab965f0a329b97b19af36"),
        ("é\x7f/\u2028", "892873d1f1bbbb7fdf43b8319408c160"),
    ],
)
def test_a_value_has_the_digest_that_it_always_had(value, expected):
    """By it a resumed run knows an item again."""
    assert digest(value) == expected


def test_equal_dicts_have_one_digest_whatever_their_order():
    assert digest({"a": 1, "b": (2,)}) == digest({"b": (2,), "a": 1})
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({1: "a", 2: "b"}) == digest({2: "b", 1: "a"})
    assert digest([{"a": 1, "b": 2}]) == digest([{"b": 2, "a": 1}])


@given(VALUES)
def test_a_digest_is_that_of_the_content(value):
    first = digest(value)
    assert first == digest(decode(encode(value, "here")))
    assert (
        first == str(value)
        if type(value) is int and abs(value) < 1 << 63
        else len(bytes.fromhex(first)) == 16
    )
    assert first != digest([value])


def test_values_that_differ_in_type_differ_in_digest():
    values = [1, 1.0, True, "1", b"1", (1,), [1], {1}, None]
    assert len({digest(value) for value in values}) == len(values)


def test_the_members_of_a_set_are_written_in_one_order():
    code = (
        "from abreast.store.codec.codec import encode; print(encode({'a','b','c','d',1,(2,)}, 'x'))"
    )

    def written(seed):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, timeout=60, env=env
        ).stdout

    assert len({written(seed) for seed in ("1", "2", "3")}) == 1


def test_plain_reading_imports_nothing_and_makes_nothing():
    text = (
        '{"~":"dataclass","v":{"x":{"~":"enum","v":"RED","t":"gone:Colour"}},'
        '"t":"no.such.module:Thing"}'
    )
    assert decode_plain(text) == {"x": "Colour.RED"}
    assert decode_plain('{"~":"from the future","v":1}') == {"~": "from the future", "v": 1}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"x", {"base64": "eA=="}),
        ((1, 2), [1, 2]),
        ({"~": 1, (1,): 2}, {"~": 1, "[1]": 2}),
        ("a\ud800", "a?"),
        (math.inf, "inf"),
        (10**700, 10**700),
        (Fraction(1, 3), "1/3"),
        (complex(1, math.inf), "(1+infj)"),
        (dt.timedelta(1), "1 day, 0:00:00"),
        (shapes.Rights.READ | shapes.Rights.WRITE, "Rights(3)"),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "2024-01-01T00:00:00[UTC]"),
        (dt.time(1), "01:00:00"),
        (
            dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Zurich")),
            "2024-01-01T00:00:00[Europe/Zurich]",
        ),
        (Decimal("1.50"), "1.50"),
        (shapes.Point(1, 2), {"x": 1, "y": 2}),
        ([1, {"a": None}], [1, {"a": None}]),
    ],
)
def test_plain_data_is_readable(value, plain):
    assert decode_plain(encode(value, "here")) == plain


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{"~":"dataclass","v":{},"t":"no.such:X"}',
            "is a no.such:X, and a store's types are never imported",
        ),
        ('{"~":"dataclass","v":{},"t":"tests.store.shapes:Nope"}', "AttributeError"),
        ('{"~":"dataclass","v":{},"t":"os:system"}', "another sort of thing"),
        ('{"~":"dataclass","v":{},"t":"builtins:int"}', "another sort of thing"),
        (
            '{"~":"dataclass","v":{"gone":1,"name":"x"},"t":"tests.store.shapes:Frozen"}',
            "AttributeError",
        ),
        ('{"~":"enum","v":"GREEN","t":"tests.store.shapes:Colour"}', "KeyError"),
        ('{"~":"enum","v":"x","t":"builtins:dict"}', "another sort of thing"),
        ('{"~":"flag","v":1,"t":"tests.store.shapes:Colour"}', "another sort of thing"),
        ('{"~":"namedtuple","v":{},"t":"tests.store.shapes:Point"}', "KeyError"),
        ('{"~":"namedtuple","v":{},"t":"builtins:tuple"}', "another sort of thing"),
        ('{"~":"model","v":{},"t":"builtins:dict"}', "another sort of thing"),
        ('{"~":"dumped","v":{},"t":"tests.store.shapes:Page"}', "ValidationError"),
        ('{"~":"path","v":"x","t":"PosixNope"}', "KeyError"),
        (
            '{"~":"from the future","v":1}',
            "'from the future', which this version of abreast doesn't know",
        ),
    ],
)
def test_what_can_no_longer_be_made_is_one_clear_error(text, why):
    with pytest.raises(StoreError, match=r"^a recorded value") as refused:
        decode(text)
    assert why in str(refused.value)


def test_a_path_of_the_other_system_comes_back_pure():
    assert decode('{"~":"path","v":"c:\\\\x","t":"WindowsPath"}') == PureWindowsPath("c:\\x")


@pytest.mark.parametrize(
    "text", ["", "{", '"x', "1 2", "nul", '{"~":"tuple","v":[}', "[" * 100_000]
)
def test_damaged_text_is_said_to_be_damaged(text):
    with pytest.raises(StoreError):
        decode(text)
    with pytest.raises(StoreCorrupt, match="a recorded value is damaged"):
        decode_plain(text)


def test_nothing_at_all_is_damaged_too():
    with pytest.raises(StoreCorrupt):
        decode(None)


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_an_error_is_recorded_with_its_type_message_and_traceback():
    found = decode_error(encode_error(raised(ValueError("too \ud800 far"))))
    assert (found.kind, found.message) == ("ValueError", "too \ud800 far")
    assert "in raised" in found.trace
    assert str(found) == "ValueError: too \ud800 far"
    assert (
        decode_error(encode_error(raised(StoreCorrupt("x")))).kind
        == "abreast.core.errors.StoreCorrupt"
    )


def test_an_error_that_cannot_say_what_it_is_is_recorded_all_the_same():
    found = decode_error(encode_error(raised(Mute())))
    assert found.kind.endswith("test_codec.Mute")
    assert found.message == "<its text can't be had: RuntimeError>"
    assert "in raised" in found.trace


def test_a_traceback_that_cannot_be_formatted_is_left_out(monkeypatch):
    monkeypatch.setattr("traceback.format_exception", lambda _error: 1 / 0)
    assert (
        decode_error(encode_error(ValueError("x"))).trace
        == "<its text can't be had: ZeroDivisionError>"
    )


def test_a_recorded_error_stays_what_it_was():
    first = RecordedError("x.Y", "why", "Traceback ...")
    assert decode_error(encode_error(raised(first))) == first


def test_a_huge_error_keeps_its_beginning_and_its_end():
    found = decode_error(encode_error(raised(ValueError("<" + "x" * 1_000_000 + ">"))))
    assert len(found.trace) == len(found.message) == 64 * 1024
    assert found.message.startswith("<xxx")
    assert found.message.endswith("xxx>")
    assert "... (cut) ..." in found.message


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"type":"x"}'])
def test_a_damaged_error_record_is_said_to_be_damaged(text):
    with pytest.raises(StoreCorrupt, match="a recorded failure is damaged"):
        decode_error(text)


def test_an_interpreter_without_the_c_encoder_writes_the_same(monkeypatch):
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    for options in ({}, {"ascii_only": True}, {"sort_keys": True}):
        monkeypatch.setattr("json.encoder.c_make_encoder", None)
        slow = json_text.json_writer(**options)
        monkeypatch.undo()
        value = {"b": [1.5, "é"], "a": None}
        assert slow(value) == json_text.json_writer(**options)(value)
