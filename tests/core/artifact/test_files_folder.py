from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from one_line import one_line

from gnnscale.core.artifact.files import new_folder
from gnnscale.core.errors import GraphError


def fill(path, text="new", **options):
    with new_folder(path, **options) as folder:
        if folder is not None:
            (folder / "file").write_text(text)
    return folder is not None


def test_made_once(tmp_path, leftovers):
    (tmp_path / "x").mkdir()  # an empty directory counts as none
    assert fill(tmp_path / "x")
    assert not fill(tmp_path / "x", "newer")
    assert fill(tmp_path / "x", "newest", replace=lambda: True)
    assert (tmp_path / "x" / "file").read_text() == "newest"
    assert leftovers(tmp_path / "x") == []


def test_replacing_is_asked_again_under_the_lock(tmp_path, leftovers):
    """Another process may have replaced it while this one waited."""
    fill(tmp_path / "x")
    answers = [True, False]
    assert not fill(tmp_path / "x", "newer", replace=lambda: answers.pop(0))
    # The old folder stays where the new one fails.
    for error in (GraphError, KeyboardInterrupt):
        with suppress(error), new_folder(tmp_path / "x", replace=lambda: True) as folder:
            (folder / "file").write_text("half")
            raise error("no")
    assert (tmp_path / "x" / "file").read_text() == "new"
    assert leftovers(tmp_path / "x") == []


def test_several_replace_it_at_once(tmp_path, leftovers):
    """Directories are renamed at any moment; nobody fails, and what is found is whole."""

    def replace(number):
        for each in range(30):
            assert fill(tmp_path / "x", f"{number} {each}", replace=lambda: True)

    def look():
        for _ in range(500):
            assert not fill(tmp_path / "x", "never", replace=found)

    def found():
        if not (tmp_path / "x" / "file").exists():
            raise GraphError("missing")
        return False

    fill(tmp_path / "x")
    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(replace, number) for number in range(3)] + [pool.submit(look)]
    assert [task.exception() for task in tasks] == [None] * 4
    assert leftovers(tmp_path / "x") == []


@pytest.mark.parametrize(
    "path",
    ["/proc/x", "/proc/self/x/y", "/dev/null/x", "/dev/null", "/x" * 4000, "/tmp/" + "x" * 300],
)
def test_places_where_none_can_be(path):
    with one_line(begins=path[:2], error=GraphError, shorter_than=700):
        fill(Path(path))


def test_files_in_the_way(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GraphError, match="file: expected a directory, got a file"):
        fill(tmp_path / "file")
    with pytest.raises(GraphError, match=r"file: (File exists|Not a directory)"):
        fill(tmp_path / "file" / "x")
    (tmp_path / ".x.partial").write_text("mine")
    with pytest.raises(GraphError, match=r"\.x\.partial: Not a directory"):
        fill(tmp_path / "x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(GraphError, match="loop"):
        fill(tmp_path / "loop" / "x")
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_is_removed_through_links(tmp_path):
    """Whoever may write beside a store could lay a link there."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("years")
    (tmp_path / ".x.partial").symlink_to(mine)
    with pytest.raises(GraphError, match=r"\.x\.partial: "):
        fill(tmp_path / "x")
    (tmp_path / ".x.partial").unlink()
    (tmp_path / ".x.partial").mkdir()
    (tmp_path / ".x.partial" / "link").symlink_to(mine)
    (tmp_path / ".x.old").symlink_to(mine)
    assert fill(tmp_path / "x")
    assert (mine / "thesis").read_text() == "years"
