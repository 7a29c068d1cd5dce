import os
from pathlib import Path

import pytest
from one_line import one_line

from gnnscale.core import files
from gnnscale.core.files import (
    check_private,
    expanded,
    refuse_address,
    unfinished_folder,
    write_atomically,
)


def test_text_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "vertex \u2192 edge")
    assert file.read_text() == "vertex \u2192 edge"
    write_atomically(file, b"\x00\x01", durable=True)
    assert file.read_bytes() == b"\x00\x01"
    write_atomically(file, (line for line in (b"a\n", b"b\n")))
    assert file.read_bytes() == b"a\nb\n"


def test_a_file_that_is_written_piece_by_piece_appears_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with files.whole_file(file) as stream:
        stream.write(b"a")
        assert not file.exists()
        stream.write(b"b")
    assert file.read_bytes() == b"ab"

    def interrupted() -> None:
        with files.whole_file(file) as stream:
            stream.write(b"c")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"ab"


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch) -> None:
    file = tmp_path / "file"
    file.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for shared in (False, True):
        with pytest.raises(OSError, match="No space left") as caught:
            write_atomically(file, "after", shared=shared)
        assert caught.value.filename == str(file)
        assert [each.name for each in tmp_path.iterdir()] == ["file"]
        assert file.read_text() == "before"


def test_what_a_killed_process_left_is_removed_or_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".file.tmp").write_text("half")
    files.remove_unfinished(tmp_path / "file")
    assert not list(tmp_path.iterdir())
    (tmp_path / ".file.tmp").write_text("half")
    write_atomically(tmp_path / "file", "whole")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_folders_that_are_not_finished_are_removed(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("finished", "failed", "unfinished")]
    for folder in folders:
        folder.mkdir()
        (folder / "file").touch()
    with unfinished_folder(folders[0]):
        pass
    with pytest.raises(KeyboardInterrupt), unfinished_folder(folders[1]):
        raise KeyboardInterrupt
    with unfinished_folder(folders[2]):
        assert {each.name for each in tmp_path.iterdir()} == {"finished", "unfinished"}
        files.remove_unfinished_folders()
    assert [each.name for each in tmp_path.iterdir()] == ["finished"]


def test_what_others_may_write_is_not_private(tmp_path, monkeypatch) -> None:
    path = tmp_path / "x"
    path.touch()
    for mode in (0o700, 0o755, 0o600, 0o444):
        path.chmod(mode)
        check_private(path)
    (tmp_path / "link").symlink_to(path)
    for mode in (0o720, 0o702, 0o777):
        path.chmod(mode)
        for name in (path, tmp_path / "link"):
            with pytest.raises(PermissionError, match="others may write to it"):
                check_private(name)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    if mine == 0:  # root's are anybody's
        check_private(tmp_path)
        monkeypatch.setattr(Path, "stat", lambda _: os.stat_result((0o40700, 1, 1, 1, 8, *[0] * 5)))
    with pytest.raises(PermissionError, match="it belongs to user"):
        check_private(tmp_path)


def test_a_tilde_is_a_home_directory_or_part_of_a_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    assert expanded("~/a") == tmp_path / "me" / "a"
    assert expanded("a/~b") == Path("a/~b")
    with pytest.raises(RuntimeError):
        expanded("~nobody-of-this-name/a")
    (tmp_path / "~nobody-of-this-name").mkdir()
    assert expanded("~nobody-of-this-name/a") == Path("~nobody-of-this-name/a")


def test_an_address_is_no_path() -> None:
    for path in ("s3://bucket/run", "file:///tmp/run", Path("gs://bucket/run")):
        with one_line("output=", "expected a path of this machine, got an address"):
            refuse_address(path, "output")
    for path in ("run", "/tmp/a:/b", "a:b", "./s3://bucket", "C:/run", Path("run:1")):
        refuse_address(path, "output")
