"""Tables in a file system of fsspec; that of memory stands for the others."""

from __future__ import annotations

import sys

import fsspec
import pytest
from fsspec.registry import known_implementations

from gnnscale.config import ConfigError
from gnnscale.dataset import Tables
from gnnscale.dataset.storage.remote import SCHEMES, copy_remote
from gnnscale.graph import GraphError

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


def test_tables_of_a_bucket(bucket, home):
    graph = dataset().open()
    assert graph.indices.tolist() == [0, 1]
    assert graph.path.is_relative_to(home / "graphs")
    (copied,) = (home / "raw").iterdir()
    files = sorted(str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file())
    assert files == ["edges/part-0.csv", "remote.json", "vertices.csv"]


def test_the_store_does_not_depend_on_where_the_command_is_run(bucket, monkeypatch, tmp_path):
    path = dataset().store_path()
    monkeypatch.chdir(tmp_path)
    assert dataset().store_path() == path


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


def test_an_address_that_leads_nowhere(bucket):
    with pytest.raises(GraphError, match=r"^dataset\.raw=memory://nothing: cannot be read "):
        Tables(name="mine", raw="memory://nothing").prepare()


@pytest.mark.parametrize(
    "address",
    [
        *("reference://::file:///refs.json", "reference://x", "simplecache::memory://bucket"),
        *("filecache::memory://bucket", "blockcache::s3://x", "zip://x::memory://bucket/a.zip"),
        *("memory://bucket::file://x", "dir://x", "cached://x", "tar://x", "libarchive://x"),
        *("local://x", "github://a:b@c", "jupyter://x", "dask://x", "data://x", "generic://x"),
        *("nosuchsystem://x", "Reference://x", " memory://bucket", "memory+x://bucket", "://x"),
    ],
)
def test_addresses_of_one_plain_file_system_alone(bucket, monkeypatch, address):
    monkeypatch.setattr(fsspec.core, "url_to_fs", None)
    said = r"^dataset\.raw.*(a chain of addresses|allowed are abfs, )"
    with pytest.raises(ConfigError, match=said):
        Tables(name="mine", raw=address)
    with pytest.raises(ConfigError, match=said):
        copy_remote(address, ["vertices.csv"])


def test_schemes_are_those_of_fsspec():
    assert set(SCHEMES) <= set(known_implementations)


def test_a_bucket_without_tables(bucket):
    with pytest.raises(GraphError, match=r"has none of a\.csv, b\.csv"):
        dataset(vertices="a.csv", edges="b.csv").prepare()
    with pytest.raises(GraphError, match=r"dataset\.edges=b\.csv: .* is missing"):
        dataset(edges="b.csv").prepare()


def test_a_file_that_changes_while_it_is_copied(bucket, monkeypatch, home):
    monkeypatch.setattr(type(bucket), "open", lambda self, path, mode: bucket.sneak(path))
    monkeypatch.setattr(type(bucket), "sneak", lambda self, path: _shorter(path), raising=False)
    with pytest.raises(GraphError, match=r"was changed while it was copied"):
        copy_remote("memory://bucket", ["vertices.csv"])
    assert list((home / "raw").iterdir()) == []


def _shorter(path):
    import io

    return io.BytesIO(VERTICES[:-1])


def test_without_fsspec(bucket, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(GraphError, match=r"needs fsspec, which pip install 'gnnscale\[remote\]'"):
        dataset().prepare()
