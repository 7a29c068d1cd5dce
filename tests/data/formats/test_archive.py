import io
import re
import stat
import struct
import warnings
import zipfile

import pytest

from gnnscale.core.errors import GraphError
from gnnscale.data.formats import archive as module
from gnnscale.data.formats.archive import Archive, extract_all

_LIMITS = {"allowance": 1000, "ratio": 4, "advice": "unpack it"}


def packed(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, content in members:
                archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path):
    def to_file(data):
        path = tmp_path / "x.zip"
        path.write_bytes(data)
        return path

    return to_file


def set_field(data, offset, central_offset, form, value):
    """Set a field of every header, both before the data and in the directory."""
    data = bytearray(data)
    for mark, place in ((b"PK\x03\x04", offset), (b"PK\x01\x02", central_offset)):
        for match in re.finditer(re.escape(mark), bytes(data)):
            struct.pack_into(form, data, match.start() + place, value)
    return bytes(data)


def test_read(write):
    with Archive(write(packed([("a/b.txt", b"content"), ("c", b"")]))) as archive:
        assert archive.names == ["a/b.txt", "c"]
        assert archive.read("a/b.txt", **_LIMITS) == b"content"
        assert archive.read("c", **_LIMITS) == b""


BOMB = packed([("a", bytes(10 << 20))])
CONTENT = packed([("a", b"content")])
STORED = packed([("a", b"content")], zipfile.ZIP_STORED)
DEFLATED = packed([("a", bytes(range(256)) * 4)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (set_field(CONTENT, 6, 8, "<H", 0x1), "encrypted"),
        (set_field(CONTENT, 6, 8, "<H", 0x41), "encrypted"),
        *(
            (set_field(CONTENT, 8, 10, "<H", method), f"compressed by method {method}, allowed")
            for method in (1, 9, 99)
        ),
        (packed([("a", b"text")], zipfile.ZIP_BZIP2), "compressed by method"),
        (DEFLATED[:35] + b"\xff" * 25 + DEFLATED[60:], r"cannot be read \(.*invalid"),
        (set_field(CONTENT, 14, 16, "<I", 7), r"cannot be read \(Bad CRC"),
        # The size that the directory tells is checked, and nothing beyond it is unpacked.
        (BOMB, r"10485760 bytes from \d+ .*unpack it"),
        (set_field(BOMB, 22, 24, "<I", 500), "cannot be read"),
        # A size beyond the file.
        (set_field(set_field(STORED, 18, 20, "<I", 900), 22, 24, "<I", 900), "cannot be read"),
    ],
)
def test_members_that_are_refused(write, data, message):
    with Archive(write(data)) as archive, pytest.raises(GraphError, match=f"x.zip/a: {message}"):
        archive.read("a", **_LIMITS)


def test_files_that_are_refused(write, tmp_path):
    several = packed([("a", b"1"), ("a", b"2")])
    many = packed([(f"{name}", b"") for name in range(10_001)])
    for data, message in (
        (several, "several members have one name"),
        (many, "10001 members, allowed are 10000"),
        *(
            (b"PK\x05\x06"[:n] + b"\xff" * m, "cannot be read")
            for n, m in ((0, 0), (4, 0), (4, 18))
        ),
    ):
        with pytest.raises(GraphError, match=f"x.zip: {message}"):
            Archive(write(data))
    with pytest.raises(GraphError, match=r"y.zip: missing"):
        Archive(tmp_path / "y.zip")
    with pytest.raises(GraphError, match=r"not a regular file"):
        Archive(tmp_path)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_extract(write, folder):
    extract_all(write(packed([("a/", b""), ("a/b", b"1"), ("c/d/e", b"2")])), folder)
    assert (folder / "a" / "b").read_bytes() == b"1"
    assert (folder / "c" / "d" / "e").read_bytes() == b"2"


def test_extract_stays_in_the_folder_and_makes_no_links(write, folder):
    for name in ("../a", "/a", "a/../../b", "..", "a\\..\\b"):
        with pytest.raises(GraphError, match=r"leads out of the folder"):
            extract_all(write(packed([("good", b""), (name, b"x")])), folder)
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR):
        info = zipfile.ZipInfo("link")
        info.external_attr = (kind | 0o777) << 16
        with pytest.raises(GraphError, match=r"member 'link' is a link or a device"):
            extract_all(write(packed([(info, b"/etc/passwd")])), folder)
    assert list(folder.iterdir()) == []


def test_extract_limits_what_is_unpacked(write, tmp_path, monkeypatch):
    data = packed([("a", b"text")])
    with pytest.raises(GraphError, match=r"x.zip: unpacks to 3221225472 bytes, allowed are"):
        extract_all(write(set_field(data, 22, 24, "<I", 3 << 30)), tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 3}))
    with pytest.raises(GraphError, match=r"x.zip: unpacks to 4 bytes, 3 are free"):
        extract_all(write(data), tmp_path)
