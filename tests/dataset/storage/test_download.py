"""Downloads from a server on this machine, and without a network."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import threading
import zipfile
from typing import ClassVar

import pytest

from gnnscale.dataset import Planetoid
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

    files: ClassVar[dict[str, bytes]] = {"/data.bin": BODY, "/graph.zip": archive()}
    break_off: ClassVar[bool] = False
    requests: ClassVar[list[str | None]] = []

    def do_GET(self):
        body = self.files.get(self.path)
        asked = self.headers.get("Range")
        self.requests.append(asked)
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
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        self.wfile.write(body[first : (first + len(body)) // 2 if self.break_off else None])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(Handler, "requests", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
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


def test_archive_that_is_none(server, home):
    with pytest.raises(GraphError, match=r"data.bin: not a readable zip file"):
        download(published(RemoteFile(url=f"{server}/data.bin", unpack=True)))


def test_no_network(home, monkeypatch):
    monkeypatch.setattr("gnnscale.dataset.readers.planetoid._ADDRESS", "http://127.0.0.1:1/data")
    with pytest.raises(GraphError) as error:
        Planetoid(name="cora").prepare()
    assert "http://127.0.0.1:1/data/ind.cora.x: cannot be reached" in str(error.value)
    assert "set dataset.raw to a folder that has the file" in str(error.value)
    assert "\n" not in str(error.value)
    assert list((home / "raw").iterdir()) == list((home / "graphs").iterdir()) == []


def test_planetoid_from_its_address(data, monkeypatch, server):
    """The published checksums are those of the real files."""
    files = {f"/data/{file.name}": file.read_bytes() for file in (data / "planetoid").iterdir()}
    monkeypatch.setattr(Handler, "files", files)
    monkeypatch.setattr("gnnscale.dataset.readers.planetoid._ADDRESS", f"{server}/data")
    graph = Planetoid(name="cora", undirected=True).open()
    assert graph.num_edges == 10556
