"""Tables in a file system of fsspec; that of memory stands for the others."""

import hashlib
import http.server
import io
import json
import shutil
import sys
import threading
import zipfile
from contextlib import suppress
from typing import ClassVar

import fsspec
import pytest
from fsspec.registry import known_implementations
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import Planetoid, Snap, Tables
from gnnscale.data.storage.remote import SCHEMES, Published, RemoteFile, copy_remote, download

VERTICES = b"id,label,split,x\n7,0,train,1\n8,1,valid,2\n9,0,test,3\n"

EDGES = b"source,target\n7,8\n8,9\n"


@pytest.fixture
def bucket():
    """A folder of the memory file system, with both tables."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/bucket/vertices.csv", VERTICES)
    system.pipe("/bucket/edges/part-0.csv", EDGES)
    system.pipe("/bucket/other.bin", b"x" * 100)
    yield system
    system.store.clear()


def dataset(**options):
    return Tables(name="mine", raw="memory://bucket", **options)


def test_tables_of_a_bucket(bucket, home, monkeypatch, tmp_path):
    path = dataset().store_path()
    monkeypatch.chdir(tmp_path)
    assert dataset().store_path() == path
    graph = dataset().open()
    assert graph.indices.tolist() == [0, 1]
    assert graph.path.is_relative_to(home / "graphs")
    (copied,) = (home / "raw").iterdir()
    files = sorted(str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file())
    assert files == ["edges/part-0.csv", "remote.json", "vertices.csv"]


def test_files_are_copied_again_only_when_changed(bucket, home, monkeypatch):
    dataset().open()
    opened = []
    original = type(bucket).open

    def noting(self, path, mode="rb", **options):
        opened.extend([path] if mode == "rb" else [])
        return original(self, path, mode, **options)

    monkeypatch.setattr(type(bucket), "open", noting)
    dataset().open()
    assert opened == []
    bucket.pipe("/bucket/edges/part-1.csv", b"source,target\n9,7\n")
    assert dataset().open().indices.tolist() == [2, 0, 1]
    assert len(opened) == 3
    bucket.pipe("/bucket/vertices.csv", VERTICES.replace(b"3\n", b"4\n"))  # as long as before
    assert dataset().open().features[2].tolist() == [4]


def test_a_store_outlives_the_bucket(bucket):
    path = dataset().prepare()
    bucket.rm("/bucket", recursive=True)
    assert dataset().prepare() == path
    with pytest.raises(GraphError, match=r"^dataset\.raw=memory://bucket: cannot be read "):
        dataset(self_loops="add").prepare()
    assert set(SCHEMES) <= set(known_implementations)


def test_buckets_that_cannot_be_read(bucket, monkeypatch):
    message = r"dataset.raw=memory://bucket: expected one of a.csv, b.csv, got none"
    with pytest.raises(GraphError, match=message):
        dataset(vertices="a.csv", edges="b.csv").prepare()
    with pytest.raises(GraphError, match=r"dataset\.edges=b\.csv: .* is missing"):
        dataset(edges="b.csv").prepare()
    with pytest.raises(GraphError, match=r"^dataset\.raw=memory://nothing: cannot be read "):
        Tables(name="mine", raw="memory://nothing").prepare()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(GraphError, match=r"needs fsspec, which pip install '\.\[remote\]'"):
        dataset().prepare()


def test_addresses_of_one_plain_file_system_alone(bucket, monkeypatch):
    monkeypatch.setattr(fsspec.core, "url_to_fs", None)
    message = r"^dataset\.raw.*(expected one address, got a chain|allowed are abfs, )"
    for address in (
        *("reference://::file:///refs.json", "reference://x", "simplecache::memory://bucket"),
        *("zip://x::memory://bucket/a.zip", "memory://bucket::file://x", "dir://x", "tar://x"),
        *("local://x", "github://a:b@c", "data://x", "generic://x", "nosuchsystem://x"),
        *("Reference://x", " memory://bucket", "memory+x://bucket", "://x"),
    ):
        with pytest.raises(ConfigError, match=message):
            Tables(name="mine", raw=address)
        with pytest.raises(ConfigError, match=message):
            copy_remote(address, ["vertices.csv"])


def test_a_file_that_changes_while_it_is_copied(bucket, monkeypatch, home):
    shorter = VERTICES[:-1]
    monkeypatch.setattr(type(bucket), "open", lambda self, path, mode: io.BytesIO(shorter))
    with pytest.raises(GraphError, match=r"was changed while it was copied"):
        copy_remote("memory://bucket", ["vertices.csv"])
    assert list((home / "raw").iterdir()) == []


BODY = bytes(range(256)) * 9000


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("arxiv/raw/edge.csv", "0,1\n")
    return file.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves two files, with ranges; can break off after half of what was asked for."""

    #: Headers that replace or follow the usual ones, and paths that are elsewhere.
    headers_sent: ClassVar[dict[str, str]] = {}
    moved: ClassVar[dict[str, str]] = {}
    files: ClassVar[dict[str, bytes]] = {"/data.bin": BODY, "/graph.zip": archive()}
    break_off: ClassVar[bool] = False
    requests: ClassVar[list[str | None]] = []

    def do_GET(self):
        body = self.files.get(self.path)
        asked = self.headers.get("Range")
        self.requests.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if self.path in self.moved:
            self.answer(302, {"Location": self.moved[self.path], "Content-Length": "0"})
        elif body is None:
            self.send_error(404)
        elif first >= len(body):
            self.answer(416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
        else:
            headers = {"Content-Length": str(len(body) - first)} | self.headers_sent
            self.answer(206 if asked else 200, headers)
            with suppress(ConnectionError):
                self.wfile.write(body[first : (first + len(body)) // 2 if self.break_off else None])

    def answer(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(Handler, "requests", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def published(*files):
    return Published(name="set", license="MIT", files=files)


def file_at(address, **known):
    return published(RemoteFile(url=address, **known))


def test_download(server, home, leftovers):
    digest = hashlib.sha256(BODY).hexdigest()
    what = published(
        RemoteFile(url=f"{server}/data.bin", sha256=digest),
        RemoteFile(url=f"{server}/graph.zip", unpack=True),
    )
    path = download(what)
    assert path == home / "raw" / "set"
    assert (path / "data.bin").read_bytes() == BODY
    assert (path / "arxiv" / "raw" / "edge.csv").read_text() == "0,1\n"
    record = json.loads((path / "download.json").read_text())
    assert record["data.bin"] == {"url": f"{server}/data.bin", "bytes": len(BODY), "sha256": digest}
    assert leftovers(path) == []
    download(what)
    assert len(Handler.requests) == 2


def test_broken_off_download_goes_on(server, monkeypatch, leftovers):
    what = file_at(f"{server}/data.bin")
    monkeypatch.setattr(Handler, "break_off", True)
    with pytest.raises(GraphError, match=r"data.bin: cannot be reached \(.*; to read a copy"):
        download(what)
    monkeypatch.setattr(Handler, "break_off", False)
    path = download(what)
    assert (path / "data.bin").read_bytes() == BODY
    assert Handler.requests == [None, f"bytes={len(BODY) // 2}-"]
    assert leftovers(path) == []


def left_over(home, content):
    parts = home / "raw" / ".set.parts"
    parts.mkdir(parents=True)
    (parts / "data.bin.part").write_bytes(content)


def test_bytes_from_before(server, home, monkeypatch):
    """All are there, or more than the host has now: the latter start afresh."""
    for surplus in (0, 5):
        left_over(home, BODY + b"x" * surplus)
        assert (download(file_at(f"{server}/data.bin")) / "data.bin").read_bytes() == BODY
        shutil.rmtree(home)
    # Bytes from another place than asked for would be a file that nobody published.
    left_over(home, BODY[:100])
    Handler.requests.clear()
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Range": "bytes 50-99/100"})
    assert (download(file_at(f"{server}/data.bin")) / "data.bin").read_bytes() == BODY
    assert Handler.requests == ["bytes=100-", None]


def test_downloads_that_are_refused(server, home, monkeypatch, leftovers):
    no_number = "Content-Length: expected a number, got '.*'"
    wrong = ("-5", "many", "1e9", "\xb2", "9" * 30, "12 34")
    for file, known, length, message in (
        ("data.bin", {"sha256": "0" * 64}, None, "expected SHA-256 0{64}, got [0-9a-f]{64}"),
        ("nothing", {}, None, "the host answers 404 Not Found"),
        *(("data.bin", {}, length, no_number) for length in wrong),
        ("data.bin", {}, "9" * 18, r"needs [\d,.]+ GiB of disk, and .* are free"),
    ):
        headers = {} if length is None else {"Content-Length": length}
        monkeypatch.setattr(Handler, "headers_sent", headers)
        with pytest.raises(GraphError, match=f"/{file}: {message}"):
            download(file_at(f"{server}/{file}", **known))
        assert not (home / "raw" / "set").exists()
        if known:
            assert leftovers(home / "raw" / "set") == []


def test_archive_that_is_none(server, home, monkeypatch):
    what = file_at(f"{server}/data.bin", unpack=True)
    with pytest.raises(GraphError, match=r"data.bin: .*; the download is removed, the next att"):
        download(what)
    assert list((home / "raw").iterdir()) == []
    monkeypatch.setattr(Handler, "files", {"/data.bin": archive()})
    assert (download(what) / "arxiv" / "raw" / "edge.csv").exists()


def test_archive_that_the_disk_cannot_hold_stays(server, home, monkeypatch):
    what = file_at(f"{server}/graph.zip", unpack=True)
    (home / "raw").mkdir(parents=True)
    usage = shutil.disk_usage(home)
    with monkeypatch.context() as patch:
        patch.setattr("gnnscale.data.formats.archive.shutil.disk_usage", lambda path: usage)
        patch.setattr("gnnscale.data.storage.remote.check_space", lambda *a, **b: None)
        usage = usage._replace(free=2)
        with pytest.raises(GraphError, match=r"graph.zip: unpacks to 4 bytes, 2 are free") as error:
            download(what)
    assert "removed" not in str(error.value)
    assert (home / "raw" / ".set.parts" / "graph.zip").exists()
    download(what)
    assert len(Handler.requests) == 1


def test_no_network(home, monkeypatch):
    monkeypatch.setattr(Planetoid, "address", "http://127.0.0.1:1/data")
    with pytest.raises(GraphError) as error:
        Planetoid(name="cora").prepare()
    assert "http://127.0.0.1:1/data/ind.cora.x: cannot be reached" in str(error.value)
    parts = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
    names = ", ".join(f"ind.cora.{part}" for part in parts)
    by_hand = f"put {names} of http://127.0.0.1:1/data into a folder and set dataset.raw=FOLDER"
    assert str(error.value).endswith(by_hand)
    assert "\n" not in str(error.value)
    assert "removed" not in str(error.value)
    assert list((home / "raw").iterdir()) == list((home / "graphs").iterdir()) == []


def test_planetoid_from_its_address(test_data, monkeypatch, server):
    """The published checksums are those of the real files."""
    planetoid = test_data / "planetoid"
    files = {f"/data/{file.name}": file.read_bytes() for file in planetoid.iterdir()}
    monkeypatch.setattr(Handler, "files", files)
    monkeypatch.setattr(Planetoid, "address", f"{server}/data")
    assert Planetoid(name="cora", undirected=True).open().num_edges == 10556


class Downloaded(Snap):
    """An edge list that is published on the test's server, without a known checksum."""

    address: ClassVar[str] = ""

    def published(self):
        file = RemoteFile(url=f"{self.address}/ring.txt")
        return Published(name=self.name, license="MIT", files=(file,))


@pytest.fixture
def ring(server, monkeypatch):
    """Publish a ring of 20 vertices."""
    monkeypatch.setattr(Downloaded, "address", server)
    text = "".join(f"{v} {(v + 1) % 20}\n" for v in range(20))
    monkeypatch.setattr(Handler, "files", {"/ring.txt": text.encode()})


def test_damaged_download_does_not_stay(ring, home, monkeypatch):
    whole = Handler.files
    monkeypatch.setattr(Handler, "files", {"/ring.txt": b"<html>Sorry</html>"})
    dataset = Downloaded(name="ring", num_classes=2)
    with pytest.raises(GraphError) as error:
        dataset.open()
    message = str(error.value)
    assert message.startswith(f"{home}/raw/ring/ring.txt: ")
    assert message.endswith("; the download is removed, the next attempt downloads it again")
    assert list((home / "raw").iterdir()) == list((home / "graphs").iterdir()) == []
    monkeypatch.setattr(Handler, "files", whole)
    assert dataset.open().num_edges == 20


def test_wrong_options_do_not_cost_the_download(ring, home, monkeypatch):
    with pytest.raises(ConfigError, match=r"dataset.train_fraction=0.001"):
        Downloaded(name="ring", num_classes=2, train_fraction=0.001).open()
    usage = shutil.disk_usage(home)._replace(free=100)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: usage)
        with pytest.raises(GraphError, match=r"MiB of disk, and 0.0 MiB are free"):
            Downloaded(name="ring", num_classes=2).open()
    assert (home / "raw" / "ring" / "ring.txt").exists()


def test_endless_body(server, home, monkeypatch):
    """Without a length, the disk is not filled; what came is not kept."""
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Length": ""})
    assert (download(file_at(f"{server}/data.bin")) / "data.bin").exists()
    shutil.rmtree(home)
    (home / "raw").mkdir(parents=True)
    usage = shutil.disk_usage(home)._replace(free=2 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(GraphError, match=r"data.bin: the host sends more than the 2.0 MiB that"):
        download(file_at(f"{server}/data.bin"))
    assert sum(file.stat().st_size for file in home.rglob("*.part")) == 0


def test_redirects_stay_within_the_web(server, monkeypatch):
    for target in (
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "gopher://x", "http://[::1"),
        "\x1b[2J",
    ):
        monkeypatch.setattr(Handler, "moved", {"/old": target})
        with one_line(error=GraphError, begins=f"{server}/old: "):
            download(file_at(f"{server}/old"))
    monkeypatch.setattr(Handler, "moved", {"/old": f"{server}/data.bin", "/loop": f"{server}/loop"})
    assert (download(file_at(f"{server}/old")) / "old").read_bytes() == BODY
    with pytest.raises(GraphError, match="loop: the host answers 302"):
        download(Published(name="b", license="", files=(RemoteFile(url=f"{server}/loop"),)))
