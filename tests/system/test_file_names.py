"""Any name gives the name of one file, inside the folder for which it is meant."""

from pathlib import Path, PureWindowsPath

from hypothesis import example, given
from hypothesis import strategies as st

from abreast.system.file_names import MAX_BYTES, file_name

HOSTILE = (
    "",
    ".",
    "..",
    "../../pwned-1",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "c:\\x",
    "~root/x",
    ".hidden",
    "-rf",
    " x",
    "x ",
    "x.",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\x85",
    "\u202e",
    "\u2028",
    "\ufeff",
    "\ud800",
    "CON",
    "nul.txt",
    "com1.a.b",
    "a" * 300,
    "é" * 150,
    "e\u0301",
    "x~0123456789abcdef",
    "*?",
    "<a|b>",
    '"',
    "...",
    "conin$",
)
DEVICES = {
    "CON",
    "PRN",
    "AUX",
    "NUL",
    "CONIN$",
    "CONOUT$",
    *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10)),
}
NAMES = st.text() | st.text(alphabet="./\\-~ ab\0\n\x1b:", max_size=12) | st.sampled_from(HOSTILE)


@given(NAMES)
@example("../../pwned-1")
def test_the_result_is_one_component_inside_the_folder(name):
    found = file_name(name)
    assert found
    assert Path("/reports", found).parent == Path("/reports")
    assert (Path("/reports") / found).resolve().parent == Path("/reports")
    assert PureWindowsPath(found).parts == (found,)
    assert found[0] not in ".- "
    assert found[-1] not in ". "
    assert found.partition(".")[0].upper() not in DEVICES
    assert all(char.isprintable() for char in found)
    assert len(found.encode()) <= MAX_BYTES


@given(st.lists(NAMES, unique=True, min_size=2, max_size=20))
@example(["a/b", "a_b", "a\\b", file_name("a/b"), file_name(file_name("a/b"))])
@example(["é", "e\u0301"])
@example(["a" * 300, "a" * 301, file_name("a" * 300)])
def test_distinct_names_have_distinct_files(names):
    assert len({file_name(name) for name in names}) == len(names)


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_ +=@,.-]{0,60}-[1-9][0-9]{0,3}", fullmatch=True))
@example("my study-12")
@example("größe-1")
def test_an_ordinary_name_is_its_own_file(name):
    assert file_name(name) == name
