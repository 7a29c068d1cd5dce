import errno
import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnscale.core.artifact import npy as arrays
from gnnscale.core.artifact.files import NoSpaceError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays
from gnnscale.data.base import ExistingStore
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.graph.sharded_features import ShardedFeatures
from gnnscale.partition import (
    P3,
    FromFile,
    Hash,
    PaGraph,
    Parts,
    make_partition,
    read_partition,
    write_part,
    write_rows,
)
from gnnscale.partition.shard_store import write_row_stores

PARTITION = "0123456789abcdef" * 2


def divided(config, graph, num_parts):
    return config.assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)


def write(graph, parts, folder):
    indices = range(parts.num_parts)
    write_row_stores(graph, parts, folder, partition=PARTITION, indices=indices)
    return [folder / str(index) for index in indices]


def open_parts(stores):
    opened = [Graph.open(store) for store in stores]
    return [(each, each.features) for each in opened if isinstance(each.features, ShardedFeatures)]


def test_parts_have_all_rows_between_them(graph, tmp_path):
    parts = divided(Hash(), graph, 3)
    found = open_parts(write(graph, parts, tmp_path))
    assert len(found) == 3
    rows = np.full_like(graph.features, np.nan)
    for index, (part, features) in enumerate(found):
        assert (part.content, part.name) == (graph.content, graph.name)
        assert (part.num_vertices, part.num_features) == (600, 5)
        assert part.feature_bytes == graph.feature_bytes
        for name in ("indptr", "indices", "labels", "train_idx", "valid_idx", "test_idx"):
            assert np.array_equal(getattr(part, name), getattr(graph, name)), name
        assert (features.part, features.num_parts, features.partition) == (index, 3, PARTITION)
        assert np.array_equal(features.owner, parts.owner)
        places = features.places()
        own = np.flatnonzero(places >= 0)
        assert np.array_equal(own, np.flatnonzero(parts.owner == index))
        rows[own] = features.rows[places[own]]
    assert np.array_equal(rows, graph.features)


def test_a_quarter_takes_less_than_a_third_of_the_rows(graph, tmp_path):
    for store in write(graph, divided(Hash(), graph, 4), tmp_path):
        whole = graph.path
        part, all_rows = (len(map_npy(each / "features.npy")) for each in (store, whole))
        assert part <= 0.3 * all_rows
        assert not [check.problem for check in verify_store(store) if check.problem]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
def test_rows_are_as_stored_and_what_edges_carry_is_there(dtype, tmp_path):
    features = torch.arange(12).reshape(4, 3).to(dtype)
    of_edges = {"edge_weights": [1, 2, 3, 4], "edge_features": np.arange(8.0).reshape(4, 2)}
    split = {"train_idx": [0], "valid_idx": [1], "test_idx": [2]}
    edges = ([0, 1, 2, 3], [1, 2, 3, 0])
    from_arrays(edges, features, [0, 1, 0, 1], **of_edges, **split).save(tmp_path / "whole")
    whole = Graph.open(tmp_path / "whole")
    parts = Parts(num_parts=2, owner=np.array([1, 0, 1, 1], np.int16))
    (_, first), (part, second) = open_parts(write(whole, parts, tmp_path / "rows"))
    assert np.array_equal(first.rows, whole.features[[1]])
    assert np.array_equal(second.rows, whole.features[[0, 2, 3]])
    assert (part.feature_dtype, second.dtype) == (whole.feature_dtype, whole.features.dtype)
    for name, array in whole.edges.arrays().items():
        assert np.array_equal(part.edges.arrays()[name], array)


def test_rows_that_are_elsewhere_are_not_read(graph, tmp_path):
    part = Graph.open(write(graph, divided(Hash(), graph, 2), tmp_path)[1])
    line = f"{tmp_path / '1'}: has only the rows of part 1 of 2; features=shared reads remote rows"
    reads: list[Callable[[], object]] = [
        lambda: part.features[3],
        lambda: np.asarray(part.features),
        lambda: HostFeatures.of(part),
        lambda: part.save(tmp_path / "copy"),
        lambda: write_row_stores(
            part, divided(Hash(), graph, 2), tmp_path / "again", partition=PARTITION, indices=[0]
        ),
    ]
    for read in reads:
        with pytest.raises(GraphError, match=f"^{line}"):
            read()
    # Its topology may be used: a run maps it.
    assert Graph.open(ExistingStore(store=str(tmp_path / "1")).prepare()).content == graph.content


def test_a_vertex_that_no_machine_has_is_refused(tmp_path):
    rows = np.zeros((2, 3), np.float32)
    options = {"part": 0, "num_parts": 2, "partition": PARTITION, "path": tmp_path}
    for owner, problem in (
        ([0, 1, 0, 2], r"owner\.npy: vertex 3 belongs to part 2, allowed are 0 to 1$"),
        ([0, 1, -1, 0], r"owner\.npy: vertex 2 belongs to part -1, allowed are 0 to 1$"),
        ([0, 0, 0, 1], r"features\.npy: 2 rows, part 0 has 3 vertices$"),
    ):
        with pytest.raises(GraphError, match=problem):
            ShardedFeatures(rows, np.array(owner, np.int16), **options)


def test_parts_without_owners_are_refused(graph, tmp_path):
    message = r"part_stores=rows: expected a partitioner that assigns each"
    with pytest.raises(GraphError, match=message):
        write(graph, divided(P3(), graph, 2), tmp_path)
    with pytest.raises(GraphError, match=r"part_stores=rows: expected .* got none for vertex \d+"):
        write(graph, divided(PaGraph(), graph, 2), tmp_path)
    part = tmp_path / "part"
    write_part(graph, divided(PaGraph(), graph, 2), 0, part)
    with pytest.raises(GraphError, match="expected a full graph, got one part"):
        write(Graph.open(part), divided(Hash(), graph, 2), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["part"]


def test_a_full_disk_leaves_nothing(graph, tmp_path, monkeypatch):
    parts = divided(Hash(), graph, 2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
        with pytest.raises(NoSpaceError, match=r"^small: 2 parts: needs .* of disk, and 0\.0 MiB"):
            write(graph, parts, tmp_path)
    assert not [*tmp_path.iterdir()]

    def full(self, rows):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(arrays.NpyWriter, "append", full)
    with pytest.raises(GraphError, match=r"cannot be written, No space left on device \(\d+ MiB"):
        write(graph, parts, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_rows_go_with_their_partition(graph, tmp_path):
    config = FromFile(owners=str(tmp_path / "owner.npy"), store=str(tmp_path / "made"))
    np.save(tmp_path / "owner.npy", np.arange(600) % 2)
    options = {"num_parts": 2, "num_hops": 2, "num_threads": 1}
    made = make_partition(config, graph, **options)
    partition = read_partition(made, graph)
    folder = write_rows(partition, graph)
    assert folder == made / "rows"
    meta = json.loads((folder / "1" / "meta.json").read_text())
    whole = {"index": 1, "num_parts": 2, "of": graph.content, "rows_of": partition.content}
    assert meta["part"] == whole
    shutil.rmtree(folder / "1")
    before = (folder / "0" / "meta.json").stat().st_mtime_ns
    write_rows(partition, graph)  # what is missing
    assert (folder / "0" / "meta.json").stat().st_mtime_ns == before
    assert (folder / "1" / "meta.json").exists()
    make_partition(config, graph, force=True, **options)
    assert not folder.exists()
