import json
import logging
import os
import time

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import PlantedPartition, Snap
from gnnscale.graph import Graph

EDGES = "".join(f"{v} {(v + step) % 30}\n" for v in range(30) for step in (1, 2))


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "ring.txt").write_text(EDGES)
    return folder


def ring(raw, **options):
    options = {"num_classes": 2, "num_features": 2, "train_fraction": 0.3} | options
    return Snap(name="ring", raw=str(raw), **options)


def recorded(store):
    (record,) = json.loads((store / "meta.json").read_text())["raw"]
    return record


def stamp(store):
    return (store / "indices.npy").stat().st_mtime_ns


def test_files_are_recorded(raw):
    store = ring(raw).prepare()
    status = (raw / "ring.txt").stat()
    assert recorded(store) == {
        "name": "ring.txt",
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "sha256": recorded(store)["sha256"],
    }
    assert len(recorded(store)["sha256"]) == 64


@pytest.mark.parametrize("options", [{}, {"store": "stores/mine"}], ids=["default place", "named"])
def test_files_of_the_same_content(raw, options, tmp_path, monkeypatch, leftovers):
    monkeypatch.chdir(tmp_path)
    dataset = ring(raw, **options)
    store = dataset.prepare()
    before = stamp(store)
    with monkeypatch.context() as patch:  # of the same size and time
        patch.setattr("gnnscale.data.storage.store_check.file_sha256", None)
        ring(raw, **options).open()
    assert stamp(store) == before
    os.utime(raw / "ring.txt", ns=(1, 12345))

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", refuse)
        assert dataset.open().num_edges == 60
    assert recorded(store)["mtime_ns"] != 12345
    (store / ".meta.json.tmp").write_text("begun by a process that was killed")
    assert dataset.open().num_edges == 60
    assert stamp(store) == before
    # Known from now on.
    assert recorded(store)["mtime_ns"] == 12345
    assert leftovers(store) == []
    assert sorted(file.suffix for file in store.iterdir()) == [".json"] + [".npy"] * 7


@pytest.mark.parametrize("same_size", [False, True])
def test_another_content_in_the_default_place(raw, caplog, leftovers, same_size):
    dataset = ring(raw)
    before = dataset.open()
    text = EDGES.replace("0 1\n", "0 5\n", 1) if same_size else EDGES + "0 9\n"
    (raw / "ring.txt").write_text(text)
    os.utime(raw / "ring.txt", ns=(1, 1))
    caplog.set_level(logging.INFO, "gnnscale")
    graph = dataset.open()
    assert graph.path == before.path
    assert graph.content != before.content
    assert graph.num_edges == (60 if same_size else 61)
    assert f"preparing ring in {graph.path}, since {raw}/ring.txt has changed" in caplog.text
    assert leftovers(graph.path) == []
    # What is mapped stays as it was.
    assert int(before.indptr[-1]) == 60


def refusal(dataset):
    """Return the line by which a dataset refuses to be opened, and prepared."""
    said = []
    for use in (dataset.open, dataset.prepare):
        with pytest.raises(GraphError) as error:
            use()
        said.append(str(error.value))
    assert said[0] == said[1]
    return said[0]


def test_another_content_for_a_store_that_the_user_named(raw, tmp_path):
    dataset = ring(raw, store=str(tmp_path / "mine"))
    content = dataset.open().content
    (raw / "ring.txt").write_text(EDGES + "0 9\n")
    assert refusal(dataset) == (
        f"{raw}/ring.txt: changed since {tmp_path}/mine was prepared from it; run gnnscale "
        "prepare with force=true, or name another dataset.store"
    )
    assert Graph.open(tmp_path / "mine").content == content
    dataset.prepare(force=True)
    assert dataset.open().num_edges == 61


def test_other_options_and_another_layout(raw, tmp_path):
    store = str(tmp_path / "x")
    ring(raw, store=store).prepare()
    assert refusal(ring(raw, store=store, self_loops="add")) == (
        f"{tmp_path}/x: made with self_loops=keep, now self_loops=add; name another "
        "dataset.store, or run gnnscale prepare with force=true"
    )
    other = PlantedPartition(name="ring", store=store)
    assert "x: made with layout=Snap, now layout=Planted" in refusal(other)
    ring(raw, store=store, self_loops="add").prepare(force=True)
    assert ring(raw, store=store, self_loops="add").open().num_edges == 90


def test_the_same_content_elsewhere_or_gone(raw, tmp_path):
    """A copy, and the file itself instead of its folder, under another name."""
    store = str(tmp_path / "mine")
    content = ring(raw, store=store).open().content
    (tmp_path / "copy.txt").write_text(EDGES)
    assert ring(tmp_path / "copy.txt", store=store).open().content == content
    (tmp_path / "copy.txt").write_text(EDGES.replace("0 1\n", "0 5\n", 1))
    with pytest.raises(GraphError, match=r"copy.txt: changed since .*/mine was prepared from it"):
        ring(tmp_path / "copy.txt", store=store).open()
    (raw / "ring.txt").unlink()
    assert ring(raw, store=store).open().content == content
    raw.rmdir()
    assert ring(raw, store=store).open().content == content


def test_file_that_changes_while_it_is_read(raw, monkeypatch, leftovers):
    real = Snap.read_edges

    def late(self, writer):
        real(self, writer)
        os.utime(raw / "ring.txt", ns=(1, 1))

    monkeypatch.setattr(Snap, "read_edges", late)
    dataset = ring(raw)
    with pytest.raises(GraphError, match=r"ring.txt: was changed while it was read"):
        dataset.open()
    assert leftovers(dataset.store_path()) == []


def test_damaged_records(raw):
    dataset = ring(raw)
    for key, value, message in (
        ("options", None, "options are missing"),
        ("options", {}, "made with layout=None"),
        ("raw", None, "entry.raw: Expected `array`, got `null`"),
        ("raw", [5], r"entry.raw\[0\]: Expected `object`, got `int`"),
        ("raw", [{"name": "ring.txt"}], r"entry.raw\[0\]: Object missing required field"),
    ):
        store = dataset.prepare(force=True)
        meta = json.loads((store / "meta.json").read_text())
        (store / "meta.json").write_text(json.dumps(meta | {key: value}))
        with pytest.raises(GraphError, match=message) as error:
            dataset.open()
        assert str(error.value).startswith(str(store))
    dataset.prepare(force=True)
    assert dataset.open().num_edges == 60


def small(store):
    sizes = {"num_vertices": 40, "num_edges": 100, "num_classes": 2, "num_features": 2}
    return PlantedPartition(name="x", store=str(store), **sizes)


@pytest.mark.parametrize("force", [False, True])
def test_other_folders_are_never_replaced(tmp_path, force):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("years")
    (mine / "meta.json").write_text('{"my": "own"}')
    before = sorted(mine.iterdir())
    with pytest.raises(GraphError, match=r"mine"):
        PlantedPartition(name="x", store=str(mine)).prepare(force=force)
    # Nor a store into which the user put something.
    store = tmp_path / "store"
    small(store).prepare()
    (store / "outputs").mkdir()
    if force:
        message = r"store: expected only files of a graph store, got outputs,"
        with pytest.raises(GraphError, match=message):
            small(store).prepare(force=True)
    assert (store / "outputs").is_dir()
    assert sorted(mine.iterdir()) == before


def test_working_directories_and_links_are_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "thesis").write_text("years")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphError, match="expected a graph store to replace, got other files"):
        PlantedPartition(name="x", store=".").prepare(force=True)
    assert (tmp_path / "thesis").read_text() == "years"
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "store")
    dataset = small(tmp_path / "link")
    dataset.prepare()
    dataset.prepare(force=True)
    assert (tmp_path / "link").is_symlink()
    assert Graph.open(tmp_path / "disk" / "store").num_vertices == 40


TAKEN = "expected a directory of its own, got "


@pytest.mark.parametrize(
    ("store", "what"),
    [
        ("/", TAKEN + "the file system's root"),
        ("~", TAKEN + "the home directory"),
        ("{home}", TAKEN + "GNNSCALE_HOME"),
        ("{home}/x/../graphs/", TAKEN + "the folder of all stores"),
        ("{home}/raw", TAKEN + "the folder of downloads"),
        ("", "not a path"),
        ("a\0b", "not a path"),
        ("~nobody-of-that-name/x", "not a path"),
    ],
)
def test_places_that_are_taken(home, store, what):
    with pytest.raises(ConfigError, match=f"^dataset.store=.*: {what}") as error:
        PlantedPartition(name="x", store=store.format(home=home))
    assert str(error.value).isprintable()


def open_late(raw, results):
    real = Snap.read_edges

    def slow(self, writer):
        time.sleep(0.3)
        real(self, writer)
        results.put("read")

    Snap.read_edges = slow
    results.put(ring(raw).open().num_edges)


def test_processes_that_find_another_content_at_once(raw, forked):
    ring(raw).prepare()
    (raw / "ring.txt").write_text(EDGES + "0 9\n")
    assert sorted(forked(3, open_late, raw), key=str) == [61, 61, 61, "read"]
    assert np.diff(ring(raw).open().indptr).max() == 3
