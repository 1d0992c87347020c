import resource

import pytest

from abreast.system.paths import make_ignored_folder


def test_a_folder_is_made_that_git_ignores_and_a_file_that_is_there_is_kept(tmp_path):
    folder = tmp_path / "a" / ".abreast"
    make_ignored_folder(folder)
    assert (folder / ".gitignore").read_text() == "*\n"
    (folder / ".gitignore").write_text("")
    make_ignored_folder(folder)
    assert (folder / ".gitignore").read_text() == ""
    assert [path.name for path in folder.iterdir()] == [".gitignore"]


def test_while_the_disk_is_full_there_is_no_half_of_its_file(tmp_path):
    folder = tmp_path / ".abreast"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="large"):
            make_ignored_folder(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [*folder.iterdir()] == []
    make_ignored_folder(folder)
    assert (folder / ".gitignore").read_text() == "*\n"
