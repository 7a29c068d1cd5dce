"""Downloads from a server on this machine, and without a network."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import shutil
import threading
import zipfile
from contextlib import suppress
from typing import ClassVar

import pytest

from gnnscale.config import ConfigError
from gnnscale.dataset import Planetoid, Snap
from gnnscale.dataset.storage.download import Published, RemoteFile, download
from gnnscale.graph import GraphError

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
        if self.path in self.moved:
            self.send_response(302)
            self.send_header("Location", self.moved[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if body is None:
            self.send_error(404)
            return
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if first >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked else 200)
        for name, value in ({"Content-Length": str(len(body) - first)} | self.headers_sent).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body[first : (first + len(body)) // 2 if self.break_off else None])

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
    return Published(name="set", licence="MIT", files=files)


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
    assert record["data.bin"] == {
        "url": f"{server}/data.bin",
        "bytes": len(BODY),
        "sha256": digest,
    }
    assert leftovers(path) == []
    download(what)
    assert len(Handler.requests) == 2


def test_broken_off_download_goes_on(server, monkeypatch, leftovers):
    what = published(RemoteFile(url=f"{server}/data.bin"))
    monkeypatch.setattr(Handler, "break_off", True)
    with pytest.raises(GraphError, match=r"data.bin: cannot be reached \(.*; without a network"):
        download(what)
    monkeypatch.setattr(Handler, "break_off", False)
    path = download(what)
    assert (path / "data.bin").read_bytes() == BODY
    assert Handler.requests == [None, f"bytes={len(BODY) // 2}-"]
    assert leftovers(path) == []


@pytest.mark.parametrize("surplus", [0, 5])
def test_whole_file_from_before(server, home, surplus):
    """All bytes are there, or more than the host has now: the latter start afresh."""
    parts = home / "raw" / ".set.parts"
    parts.mkdir(parents=True)
    (parts / "data.bin.part").write_bytes(BODY + b"x" * surplus)
    path = download(published(RemoteFile(url=f"{server}/data.bin")))
    assert (path / "data.bin").read_bytes() == BODY


def test_wrong_checksum(server, home, leftovers):
    what = published(RemoteFile(url=f"{server}/data.bin", sha256="0" * 64))
    with pytest.raises(GraphError, match=r"data.bin: SHA-256 is [0-9a-f]{64}, expected 0{64}"):
        download(what)
    assert leftovers(home / "raw" / "set") == []
    assert not (home / "raw" / "set").exists()


def test_host_that_refuses(server):
    with pytest.raises(GraphError, match=r"/nothing: the host answers 404 Not Found"):
        download(published(RemoteFile(url=f"{server}/nothing")))


def test_archive_that_is_none(server, home, monkeypatch):
    what = published(RemoteFile(url=f"{server}/data.bin", unpack=True))
    with pytest.raises(
        GraphError, match=r"data.bin: .*; the download is removed, the next attempt"
    ):
        download(what)
    assert list((home / "raw").iterdir()) == []
    monkeypatch.setattr(Handler, "files", {"/data.bin": archive()})
    assert (download(what) / "arxiv" / "raw" / "edge.csv").exists()


def test_archive_that_the_disk_cannot_hold_stays(server, home, monkeypatch):
    what = published(RemoteFile(url=f"{server}/graph.zip", unpack=True))
    (home / "raw").mkdir(parents=True)
    usage = shutil.disk_usage(home)
    with monkeypatch.context() as patch:
        patch.setattr("gnnscale.dataset.formats.archive.shutil.disk_usage", lambda path: usage)
        patch.setattr("gnnscale.dataset.storage.download.check_space", lambda *a, **b: None)
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
    assert "set dataset.raw to a folder that has the file" in str(error.value)
    assert "\n" not in str(error.value)
    assert "removed" not in str(error.value)
    assert list((home / "raw").iterdir()) == list((home / "graphs").iterdir()) == []


def test_planetoid_from_its_address(data, monkeypatch, server):
    """The published checksums are those of the real files."""
    files = {f"/data/{file.name}": file.read_bytes() for file in (data / "planetoid").iterdir()}
    monkeypatch.setattr(Handler, "files", files)
    monkeypatch.setattr(Planetoid, "address", f"{server}/data")
    graph = Planetoid(name="cora", undirected=True).open()
    assert graph.num_edges == 10556


class Downloaded(Snap):
    """An edge list that is published on the test's server."""

    address: ClassVar[str] = ""

    def published(self):
        """One file without a known checksum."""
        file = RemoteFile(url=f"{self.address}/ring.txt")
        return Published(name=self.name, licence="MIT", files=(file,))


def test_damaged_download_does_not_stay(server, home, monkeypatch):
    monkeypatch.setattr(Downloaded, "address", server)
    monkeypatch.setattr(Handler, "files", {"/ring.txt": b"<html>Sorry</html>"})
    dataset = Downloaded(name="ring", num_classes=2)
    with pytest.raises(GraphError) as error:
        dataset.open()
    assert str(error.value).startswith(f"{home}/raw/ring/ring.txt: ")
    assert str(error.value).endswith(
        "; the download is removed, the next attempt downloads it again"
    )
    assert list((home / "raw").iterdir()) == list((home / "graphs").iterdir()) == []
    ring = "".join(f"{v} {(v + 1) % 20}\n" for v in range(20))
    monkeypatch.setattr(Handler, "files", {"/ring.txt": ring.encode()})
    assert dataset.open().num_edges == 20


def test_wrong_options_do_not_cost_the_download(server, home, monkeypatch):
    monkeypatch.setattr(Downloaded, "address", server)
    ring = "".join(f"{v} {(v + 1) % 20}\n" for v in range(20))
    monkeypatch.setattr(Handler, "files", {"/ring.txt": ring.encode()})
    with pytest.raises(ConfigError, match=r"dataset.train_fraction=0.001"):
        Downloaded(name="ring", num_classes=2, train_fraction=0.001).open()
    usage = shutil.disk_usage(home)._replace(free=100)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: usage)
        with pytest.raises(GraphError, match=r"MiB of disk, and 0.0 MiB are free"):
            Downloaded(name="ring", num_classes=2).open()
    assert (home / "raw" / "ring" / "ring.txt").exists()


@pytest.mark.parametrize("length", ["-5", "many", "1e9", "\xb2", "9" * 30, "12 34"])
def test_length_that_is_none(server, monkeypatch, length):
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Length": length})
    with pytest.raises(GraphError, match=r"data.bin: the host says it sends '.*' bytes"):
        download(published(RemoteFile(url=f"{server}/data.bin")))


def test_length_that_the_disk_cannot_hold(server, home, monkeypatch):
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Length": "9" * 18})
    with pytest.raises(GraphError, match=r"data.bin: needs [\d,.]+ GiB of disk, and .* are free"):
        download(published(RemoteFile(url=f"{server}/data.bin")))


def test_endless_body(server, home, monkeypatch):
    """Without a length, the disk is not filled; what came is not kept."""
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Length": ""})
    assert (download(published(RemoteFile(url=f"{server}/data.bin"))) / "data.bin").exists()
    shutil.rmtree(home)
    (home / "raw").mkdir(parents=True)
    usage = shutil.disk_usage(home)._replace(free=2 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(GraphError, match=r"data.bin: the host sends more than the 2.0 MiB that"):
        download(published(RemoteFile(url=f"{server}/data.bin")))
    assert sum(file.stat().st_size for file in home.rglob("*.part")) == 0


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "gopher://x", "http://[::1", "\x1b[2J"],
)
def test_redirects_that_leave_the_web(server, monkeypatch, target):
    monkeypatch.setattr(Handler, "moved", {"/old": target})
    with pytest.raises(GraphError) as error:
        download(published(RemoteFile(url=f"{server}/old")))
    assert str(error.value).startswith(f"{server}/old: the host ")
    assert str(error.value).isprintable()


def test_redirects_within_the_web(server, monkeypatch):
    monkeypatch.setattr(Handler, "moved", {"/old": f"{server}/data.bin", "/loop": f"{server}/loop"})
    path = download(published(RemoteFile(url=f"{server}/old")))
    assert (path / "old").read_bytes() == BODY
    with pytest.raises(GraphError, match="loop: the host answers 302") as error:
        download(Published(name="b", licence="", files=(RemoteFile(url=f"{server}/loop"),)))
    assert str(error.value).isprintable()


def test_host_that_goes_on_elsewhere(server, home, monkeypatch):
    """Bytes from another place than asked for would be a file that nobody published."""
    parts = home / "raw" / ".set.parts"
    parts.mkdir(parents=True)
    (parts / "data.bin.part").write_bytes(BODY[:100])
    monkeypatch.setattr(Handler, "headers_sent", {"Content-Range": "bytes 50-99/100"})
    path = download(published(RemoteFile(url=f"{server}/data.bin")))
    assert (path / "data.bin").read_bytes() == BODY
    assert Handler.requests == ["bytes=100-", None]
