import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core.artifact.files import new_folder
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import (
    ExistingStore,
    PlantedPartition,
    RMat,
    Snap,
    from_arrays,
)
from gnnscale.graph import Graph
from gnnscale.partition import Hash, write_part

SMALL = {"num_vertices": 400, "num_edges": 2000, "num_classes": 4, "num_features": 8}


def small(**options):
    return PlantedPartition(**({"name": "small"} | SMALL | options))


def test_store_path(home):
    path = small().store_path()
    assert path.parent == home / "graphs"
    assert path.name.startswith("small-")
    assert small(seed=1).store_path() != path
    assert small(self_loops="add").store_path() != path
    assert small(memory_bytes=99).store_path() == path
    assert small(store="here/x").store_path().name == "x"
    raw = [Snap(name="a", raw=raw).store_path() for raw in ("one", "two")]
    assert raw[0] != raw[1]
    for name in ("cora", "ogbn-papers100M", "roman_empire", "web-Google.2+x"):
        assert small(name=name).store_path().name.startswith(name)


def test_paths_that_are_none(tmp_path, monkeypatch):
    for raw in ("/dev/null/x", "x" * 300, "x/" * 3000, "~nobody-of-that-name/x"):
        with pytest.raises((ConfigError, GraphError)) as error:
            Snap(name="a", raw=raw).open()
        assert str(error.value).startswith("dataset.raw=")
        assert str(error.value).isprintable()
    with one_line("dataset.raw: required for a, the file <name>.txt"):
        Snap(name="a").prepare()
    with pytest.raises(GraphError, match=r"dataset.raw=/no/where: no such file or folder"):
        Snap(name="a", raw="/no/where").prepare()
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match=r"file: (Not a directory|File exists)"):
        small(store=str(tmp_path / "file" / "store")).prepare()
    monkeypatch.setenv("GNNSCALE_HOME", "~nobody-of-that-name/x")
    with pytest.raises(ConfigError, match=r"GNNSCALE_HOME=~nobody-of-that-name/x: "):
        small().open()


def test_open_prepares_once(leftovers):
    dataset = small()
    graph = dataset.open()
    assert graph.num_vertices == 400
    assert ExistingStore(store=str(graph.path)).open().content == graph.content
    stamp = (graph.path / "meta.json").stat().st_mtime_ns
    dataset.open()
    assert (graph.path / "meta.json").stat().st_mtime_ns == stamp
    assert dataset.prepare(force=True) == graph.path
    assert (graph.path / "meta.json").stat().st_mtime_ns != stamp
    assert leftovers(graph.path) == []
    # The old arrays stay readable where they are mapped.
    assert int(graph.labels.sum()) == int(Graph.open(graph.path).labels.sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "mine"}, "dataset.split=mine: allowed are published, random"),
        ({"split": "published"}, "the layout has no split"),
        ({"train_fraction": 0.9, "valid_fraction": 0.1}, "dataset.train_fraction=0.9"),
        ({"valid_fraction": float("nan")}, "dataset.train_fraction=0.3, valid_fraction=nan"),
        ({"split_seed": -1}, "dataset.split_seed=-1: must be at least 0"),
        ({"raw": ""}, "dataset.raw=: not a path"),
        ({"name": "../../esc"}, "dataset.name=../../esc: expected a name, not a path: up to 100"),
        ({"name": "-d"}, r"dataset.name=-d: .* signs . _ \+ -, a letter or digit first"),
        ({"name": ""}, "dataset.name=: expected a name, not a path: up to 100 letters from"),
        ({"name": "a\n"}, "dataset.name=a: expected a name, not a path: up to 100 letters from"),
        ({"name": "x" * 101}, "dataset.name=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ..."),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        small(**options)


def test_split_that_leaves_a_part_empty():
    with one_line("of 8 labeled vertices in each part, got 0 for train, 1 for valid, 7"):
        small(num_vertices=8, num_classes=2, train_fraction=0.01, valid_fraction=0.1).open()


def test_made_features_are_told_of(tmp_path, caplog):
    (tmp_path / "ring.txt").write_text("".join(f"{v} {(v + 1) % 20}\n" for v in range(20)))
    dataset = Snap(name="ring", raw=str(tmp_path), num_classes=2)
    for _ in range(2):
        caplog.clear()
        dataset.open()
        (record,) = [each for each in caplog.records if "made" in each.getMessage()]
        assert record.levelname == "WARNING"
        assert re.match(r"ring: .*features and labels", record.getMessage())
    caplog.clear()
    rmat = RMat(name="r", num_vertices=100, num_edges=400, num_classes=2)
    assert rmat.open().path == rmat.open().path
    assert "made" not in caplog.text
    for path in (dataset.store_path(), rmat.store_path()):
        assert json.loads((path / "meta.json").read_text())["made"] == ["features", "labels"]


INTERRUPTED = """
    import signal
    import sys
    from gnnscale.data import PlantedPartition
    from gnnscale.data.storage.writer import StoreWriter

    class Slow(PlantedPartition):
        def read(self, writer):
            super().read(writer)
            print("reading", flush=True)
            while True:
                super().read(writer)

    # Whatever a shell that runs tests in the background has made of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Slow(name="slow", store=sys.argv[1]).prepare()
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(tmp_path, leftovers, kind):
    """Ctrl-C leaves nothing; a kill leaves what the next run clears. Either way that run works."""
    store = tmp_path / "stores" / "slow"
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(store)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "reading\n"
            assert leftovers(store) == [".slow.partial"]
            process.send_signal(kind)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == -kind, errors
        finally:
            process.kill()
    assert not store.exists()
    assert leftovers(store) == ([] if kind == signal.SIGINT else [".slow.partial"])
    assert small(store=str(store)).open().num_vertices == 400
    assert leftovers(store) == []


def fill(path, queue):
    with new_folder(path) as folder:
        if folder is not None:
            time.sleep(0.2)
            (folder / "file").write_text("whole")
            queue.put("filled")


def test_processes_make_one_folder(tmp_path, leftovers, forked):
    path = tmp_path / "at" / "x"
    assert forked(4, fill, path) == ["filled"]
    assert (path / "file").read_text() == "whole"
    assert leftovers(path) == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    none = np.empty(0, np.int64)
    split = {"train_idx": [0, 1], "valid_idx": [2], "test_idx": [3]}
    graph = from_arrays((none, none), np.ones((6, 2), np.float32), np.arange(6) % 2, **split)
    graph.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_graph(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted((file.name, file.stat().st_mtime_ns) for file in saved.iterdir())
    assert ExistingStore(store=str(saved)).open().path == saved
    monkeypatch.setenv("HOME", str(saved.parent))
    assert ExistingStore(store="~/saved").open().path == saved
    assert before == sorted((file.name, file.stat().st_mtime_ns) for file in saved.iterdir())


def test_no_store(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(GraphError, match=r"^dataset.store=/nowhere: no such folder$"):
        ExistingStore(store="/nowhere").open()
    with pytest.raises(GraphError, match=r"not a graph store, it has no meta.json"):
        ExistingStore(store=str(tmp_path)).open()
    (saved / "indices.npy").unlink()
    with pytest.raises(GraphError, match=r"indices.npy: missing"):
        ExistingStore(store=str(saved)).open()
    with one_line(begins="force=true: expected false, dataset=store uses a store as it is;"):
        ExistingStore(store=str(saved)).prepare(force=True)
    with one_line(begins="dataset.store: required, the directory of the graph store"):
        ExistingStore().open()


def test_a_part_is_refused(tmp_path: Path, saved: Path) -> None:
    graph = Graph.open(saved)
    parts = Hash().assign(graph, num_parts=1, num_hops=1, num_threads=1)
    write_part(graph, replace(parts, hops=np.zeros((1, 6), np.uint8)), 0, tmp_path / "part")
    with one_line("part: expected the store of a full graph, got part 0 of 1", error=GraphError):
        ExistingStore(store=str(tmp_path / "part")).open()
