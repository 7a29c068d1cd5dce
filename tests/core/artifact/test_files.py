import os
import zlib

import pytest

from gnnscale.core.artifact.files import file_bytes, open_regular, read_file, readable, total_bytes
from gnnscale.core.errors import GraphError


def test_sizes_and_content(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"")
    assert file_bytes(tmp_path / "a") == 3
    assert total_bytes([tmp_path / "a", tmp_path / "b", tmp_path / "a"]) == 6
    assert read_file(tmp_path / "a") == b"abc"
    with (tmp_path / "holes").open("wb") as file:
        file.truncate((2 << 30) + 1)
    with pytest.raises(
        GraphError, match=r"holes: expected at most 2147483648 bytes, got 2147483649$"
    ):
        read_file(tmp_path / "holes")


def test_what_is_no_file_or_cannot_be_read(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        tmp_path / "none": "none: missing",
        tmp_path: "not a regular file",
        tmp_path / "pipe": "pipe: not a regular file",
        tmp_path / "a\0b": "cannot be read",
    }
    for path, message in wrong.items():
        for read in (file_bytes, read_file):
            with pytest.raises(GraphError, match=message):
                read(path)
    with pytest.raises(GraphError, match=r"^x.gz: cannot be read \(Error -3"), readable("x.gz"):
        zlib.decompress(b"no")
    with pytest.raises(GraphError, match=r"^x.gz: cannot be read \(KeyError\)"), readable("x.gz"):
        raise KeyError
    with pytest.raises(GraphError, match=r"^as it is$"), readable("x.gz"):
        raise GraphError("as it is")


def test_a_pipe_that_takes_a_files_place_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"abc")
    with open_regular(tmp_path / "file") as stream:
        assert stream.read() == b"abc"
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("gnnscale.core.artifact.files.file_bytes", lambda path: 3)
    for read in (open_regular, read_file):
        with pytest.raises(GraphError, match=r"pipe: not a regular file$"):
            read(tmp_path / "pipe")
