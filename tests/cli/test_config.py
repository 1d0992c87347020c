"""Precedence of settings: flag, environment, abreast.toml, [tool.abreast], default."""

import pytest


def width_of(abreast, *flags, **environment):
    """The width that a map has, and where doctor says it comes from."""
    abreast("map", *flags, "--", "true", given="x\n", **environment)
    width = abreast("show", "last", "--json", **environment).rows[0]["manifest"]["map"]["width"]
    return width, abreast("doctor", "--config", "--json", **environment).rows[0]["width"]["source"]


def test_each_place_gives_way_to_the_one_before_it(abreast):
    assert width_of(abreast) == (8, "default")
    shared = abreast.file("pyproject.toml", "[project]\nname = 'x'\n\n[tool.abreast]\nwidth = 2\n")
    assert width_of(abreast) == (2, f"{shared}:5")
    own = abreast.file("abreast.toml", "# ours\nwidth = 3\n")
    assert width_of(abreast) == (3, f"{own}:2")
    assert width_of(abreast, ABREAST_WIDTH="4") == (4, "ABREAST_WIDTH")
    assert width_of(abreast, "--width", "5", ABREAST_WIDTH="4")[0] == 5


def test_files_are_found_from_below(abreast):
    abreast.file("abreast.toml", 'store = "runs/all.db"\n')
    inner = abreast.folder / "a/b"
    inner.mkdir(parents=True)
    assert abreast("map", "--", "true", given="x\n", cwd=inner).code == 0
    assert (abreast.folder / "runs/all.db").exists()
    assert not (abreast.folder / ".abreast").exists()
    assert abreast("doctor", "--config", "--json", cwd=inner).rows[0]["store"]["value"] == str(
        abreast.folder / "runs/all.db"
    )


def test_a_store_by_flag_is_named_in_the_commands_that_are_printed(abreast):
    said = abreast("map", "--store", "my runs.db", "--budget", "1req", "--", "true", given="x\ny\n")
    assert f"abreast resume map-1 --budget MORE --store '{abreast.folder}/my runs.db'" in said.err
    said = abreast(
        "map", "--budget", "1req", "--", "true", given="x\ny\n", ABREAST_STORE="other.db"
    )
    assert "--store" not in said.err
    assert (abreast.folder / "other.db").exists()


def test_every_setting_is_shown_with_its_source(abreast):
    abreast.file(
        "abreast.toml", 'retries = 2\ntimeout = "30s"\nbudget = "5req"\nkeep = "1MiB"\nseed = 7\n'
    )
    row = abreast("doctor", "--config", "--json", ABREAST_PATIENCE="2s").rows[0]
    assert {name: found["value"] for name, found in row.items() if name != "store"} == {
        "width": 8,
        "retries": 2,
        "timeout": 30.0,
        "budget": "5req",
        "seed": 7,
        "keep": 1 << 20,
        "patience": 2.0,
        "model": "local/smollm2",
    }
    table = abreast("doctor", "--config").lines
    assert table[0].split() == ["SETTING", "VALUE", "FROM"]
    assert len(table) == 10


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("width = 0\n", "abreast.toml:1: width: it must be at least 1, not 0"),
        ("\nwidth = 'x'\n", "abreast.toml:2: width: must be a whole number, not 'x'"),
        ("width = true\n", "width: must be a whole number, not True"),
        ("width = nan\n", "width: must be a whole number, not nan"),
        ("widht = 3\n", "abreast.toml:1: there is no setting 'widht'; did you mean width?"),
        ("zzz = 3\n", "there is no setting 'zzz'; there are store, width"),
        ("width = \n", "abreast.toml is not valid TOML"),
        ("timeout = 'soon'\n", "timeout: must be a time such as"),
        ("timeout = -1\n", "timeout: must be a time such as"),
        ("budget = 5\n", "budget: must be a text such as '500req,10min', not 5"),
        ("budget = 'nan'\n", "budget: 'nan' is no amount"),
        ("store = 3\n", "store: must be a text, not 3"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(abreast, text, sentence):
    abreast.file("abreast.toml", text)
    said = abreast("map", "--", "true", given="x\n")
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_what_is_wrong_in_the_environment_is_told_with_its_name(abreast):
    said = abreast("map", "--", "true", given="x\n", ABREAST_WIDTH="many")
    assert (said.code, said.err) == (
        2,
        "abreast: ABREAST_WIDTH: must be a whole number, not 'many'\n",
    )
    assert abreast("map", "--", "true", given="x\n", ABREAST_WIDTH="").code == 0


def test_doctor_finds_what_is_wrong(abreast):
    assert abreast("doctor").code == 0
    abreast.file(".abreast/abreast.db", "this is no store, " * 100)
    said = abreast("doctor")
    assert said.code == 1
    assert "wrong    store: " in said.out
    assert {row["what"] for row in abreast("doctor", "--json").rows} >= {
        "abreast",
        "store",
        "disk",
        "pyarrow",
        "tree_sitter",
    }
