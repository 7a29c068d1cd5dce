import dataclasses
import json
import logging
import os
import shutil
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import own_parts
import pytest

from gnnscale.core.config.user_code import load_named
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.hardware import Memory
from gnnscale.core.metrics import note_child
from gnnscale.graph import Graph
from gnnscale.partition import (
    P3,
    Forecast,
    Hash,
    PaGraph,
    PartitionerConfig,
    Parts,
    Random,
    make_partition,
    read_partition,
    write_parts,
)
from gnnscale.partition import build as module


def make(config, graph, num_parts=3, **options):
    options = {"num_hops": 2, "num_threads": 1, **options}
    return make_partition(config, graph, num_parts=num_parts, **options)


def given(parts, *, child_bytes=0, needs=0, interrupted=False):
    """A partitioner that returns ``parts``."""

    @dataclass(frozen=True, kw_only=True)
    class Given(PartitionerConfig):
        algorithm: ClassVar[str] = "given"

        def assign(self, graph, **options):
            if interrupted:
                raise KeyboardInterrupt
            if child_bytes:
                note_child(child_bytes)
            return parts

        def forecast(self, graph, **options):
            return Forecast(memory_bytes=needs, seconds=600.0)

    return Given()


@pytest.mark.parametrize("config", [Hash(), P3()])
def test_a_partition_is_made_once(config, random_graph, home):
    graph = random_graph()
    path = make(config, graph)
    assert path.parent == home / "partitions"
    found = read_partition(path, graph)
    assert found.figures.algorithm == config.algorithm
    assert found.figures.predicted.seconds >= 0
    before = (path / "partition.json").stat()
    (path / module.PICTURE_FILE).write_text("<svg/>")
    assert make(config, graph, num_threads=2, num_hops=3) == path
    assert os.path.samestat((path / "partition.json").stat(), before)
    assert make(config, graph, force=True) == path
    assert not os.path.samestat((path / "partition.json").stat(), before)
    assert read_partition(path, graph).content == found.content
    # The picture was of the partition before.
    arrays = ["owner.npy"] if found.parts.owner is not None else []
    assert {each.name for each in path.iterdir()} == {"partition.json", *arrays}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_another_depth_is_another_partition_where_it_counts(tiny_graph):
    config = given(Parts(num_parts=2, owner=np.array([0, 0, 1, 1, 0], np.int16)))
    assert make(config, tiny_graph, 2, num_hops=1) != make(config, tiny_graph, 2, num_hops=2)
    assert make(Hash(), tiny_graph, 2, num_hops=1) == make(Hash(), tiny_graph, 2, num_hops=2)


def test_code_of_the_user_that_has_changed_makes_another(tmp_path, random_graph, monkeypatch):
    code = tmp_path / "own.py"
    shutil.copy(own_parts.__file__, code)
    dealt = load_named(f"{code}:Dealt", option="partitioner")
    graph = random_graph()
    first = make(dealt(), graph)
    assert first.name.rpartition("-")[0].endswith("-dealt")
    assert make(dealt(), graph) == first
    assert make(dealt(at_once=2), graph) != first
    code.write_text(code.read_text() + "# changed\n")
    assert make(dealt(), graph) != first


def test_store_option_names_the_folder(tmp_path, random_graph):
    graph, store = random_graph(), str(tmp_path / "mine")
    path = make(Random(store=store), graph)
    assert path == tmp_path / "mine"
    assert make(Random(store=store), graph) == path
    for config, other, num_parts, said in (
        (Random(store=store, seed=1), graph, 3, "made with seed=0, now seed=1"),
        (Hash(store=store), graph, 3, "made with partitioner=random, now partitioner=hash"),
        (Random(store=store), graph, 2, "made with num_parts=3, now num_parts=2"),
        (Random(store=store), random_graph(seed=1), 3, "is a partition of graph"),
    ):
        with pytest.raises(GraphError, match=f"^{path}: {said}.*name another partitioner.store"):
            make(config, other, num_parts)
    assert make(Random(store=store, seed=1), graph, force=True) == path
    assert json.loads((path / "partition.json").read_text())["options"] == {"seed": 1}


def test_interruption_leaves_nothing(tiny_graph, home):
    parts = Parts(num_parts=2, owner=None)
    with pytest.raises(KeyboardInterrupt):
        make(given(parts, interrupted=True), tiny_graph, 2)
    for num_parts, said in (
        (6, "at most the 5 training vertices"),
        (0, r"^partitioner\.num_parts=0: must be"),
        (1025, r"^partitioner\.num_parts=1025: must be"),
    ):
        with pytest.raises(ConfigError, match=said):
            make(Hash(), tiny_graph, num_parts)
    assert list((home / "partitions").iterdir()) == []


def test_wrong_parts_of_a_partitioner_are_refused(tiny_graph):
    owner, hops = np.array([0, 1, 1, 1, 1], np.int16), np.array([[0] + [9] * 4, [9] + [0] * 4])
    far = Parts(num_parts=2, owner=owner, hops=hops.astype(np.uint8), num_hops=9)
    for parts, said in (
        (Parts(num_parts=3, owner=None), "partitioner=given: expected 2 parts, got 3"),
        (far, "hops: expected 2, got 9"),
    ):
        with pytest.raises(ConfigError, match=said):
            make(given(parts), tiny_graph, 2)


def test_cost_is_predicted_and_measured(tiny_graph, caplog):
    caplog.set_level(logging.INFO)
    config = given(Parts(num_parts=2, owner=None), child_bytes=1 << 50, needs=1 << 30)
    figures = read_partition(make(config, tiny_graph, 2), tiny_graph).figures
    (line,) = [each.message for each in caplog.records if "needs" in each.message]
    assert "partitioning tiny into 2 parts by given in " in line
    assert "needs about 1.0 GiB of memory and 10 min; " in line
    assert figures.predicted.seconds == 600.0
    assert figures.predicted.peak_rss_bytes > 1 << 30
    assert figures.peak_rss_bytes > 1 << 50


def test_too_little_memory_is_warned_of_or_refused(tiny_graph, caplog, monkeypatch):
    memory = Memory(total=8 << 30, available=6 << 30, installed=8 << 30)
    machine = dataclasses.replace(module.hardware.find_machine(), memory=memory)
    monkeypatch.setattr(module.hardware, "find_machine", lambda: machine)
    parts = Parts(num_parts=2, owner=None)
    with pytest.raises(GraphError, match=r"needs about 17.0 GiB of memory, this machine has 8"):
        make(given(parts, needs=17 << 30), tiny_graph, 2)
    caplog.clear()
    make(given(parts, needs=7 << 30), tiny_graph, 2)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.endswith("but 6.0 GiB are available: it may fail")


def test_parts_as_stores_of_their_own(tmp_path, graph):
    config = PaGraph(store=str(tmp_path / "made"))
    made = make(config, graph, 2)
    partition = read_partition(made, graph)
    folder = write_parts(partition, graph)
    assert folder == made / "parts"
    own = partition.parts.train_vertices(graph.train_idx)
    for index in range(2):
        assert Graph.open(folder / str(index)).train_idx.tolist() == own[index].tolist()
    before = (folder / "0" / "meta.json").stat().st_mtime_ns
    write_parts(partition, graph)
    assert (folder / "0" / "meta.json").stat().st_mtime_ns == before
    # They go with the partition that is made anew; anything else beside them is kept.
    make(config, graph, 2, force=True)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine.txt").touch()
    with pytest.raises(GraphError, match="expected only files of a partition, got parts,"):
        make(config, graph, 2, force=True)


def test_parts_that_sampling_leaves_are_no_stores(graph):
    partition = read_partition(make(Hash(), graph, 2), graph)
    message = r"^part_stores=true: expected parts with a halo, .* got those of hash"
    with pytest.raises(ConfigError, match=message):
        write_parts(partition, graph)
