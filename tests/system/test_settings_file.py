"""The settings of a project: abreast.toml before pyproject.toml, the nearest folder first."""

import pytest

from abreast.system.settings_file import find_table


def test_the_nearest_file_that_has_the_table_counts(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_table("agents", below) is None
    (tmp_path / "pyproject.toml").write_text("[tool.abreast.agents.x]\nargv = ['far']\n")
    assert find_table("agents", below) == ({"x": {"argv": ["far"]}}, tmp_path / "pyproject.toml")
    (tmp_path / "abreast.toml").write_text("[agents.x]\nargv = ['top']\n")
    (tmp_path / "a/abreast.toml").write_text("agents = {}\n")  # has none
    assert find_table("agents", below) == ({"x": {"argv": ["top"]}}, tmp_path / "abreast.toml")
    (below / "abreast.toml").write_text("agents = 'no table'\n")
    assert find_table("agents", below) == ("no table", below / "abreast.toml")
    (below / "abreast.toml").write_text("[agents\n")
    with pytest.raises(ValueError, match="line 1"):
        find_table("agents", below)
