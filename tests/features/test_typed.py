"""Rows of each vertex type, from a matrix of its own."""

import numpy as np
import pytest
import torch
from typed_graphs import shop

from gnnscale import Graph
from gnnscale.core import GraphError
from gnnscale.core.hardware import Memory
from gnnscale.features import host
from gnnscale.features.typed import TypedStore
from gnnscale.sampling import TypedSampler


def test_rows_by_type() -> None:
    graph = shop(num_users=20, num_items=12)
    tags, users, items = graph.features.matrices
    store = TypedStore.of(graph)
    batch = TypedSampler(graph, fanouts=[3, 2]).sample(np.arange(9, 14, dtype=np.int32), 0)
    rows, traffic = store.gather_types(batch, dtype=torch.float32, num_threads=1)
    assert [tuple(part.shape) for part in rows] == [
        (batch.type_sizes[0], 2),
        (batch.type_sizes[1], 0),
        (batch.type_sizes[2], 5),
    ]
    np.testing.assert_array_equal(rows[2].numpy(), items.rows[batch.vertices(2) - 29])
    np.testing.assert_array_equal(rows[0].numpy(), tags.rows[batch.vertices(0)].astype(np.float32))
    assert users is None
    assert traffic.rows.host_bytes == 4 * batch.type_sizes[0] + 20 * batch.type_sizes[2]
    assert (store.num_rows, store.width, store.row_bytes) == (41, 5, 20)


def test_no_common_rows() -> None:
    graph = shop(num_users=20, num_items=12)
    with pytest.raises(TypeError, match="gather_types"):
        TypedStore.of(graph).gather(np.arange(2), dtype=torch.float32, num_threads=1)
    for read in (lambda: graph.features[0], lambda: np.asarray(graph.features)):
        with pytest.raises(GraphError, match=r"graph\.features\.matrices"):
            read()
    with pytest.raises(GraphError, match=r"graph\.features\.matrices"):
        graph.with_quantized_features("int8")


@pytest.mark.parametrize(("missing", "expected"), [(1, True), (0, False)])
def test_rows_that_exceed_memory_are_read_from_their_files(
    tmp_path, monkeypatch, missing, expected
):
    shop(num_users=20, num_items=12).save(tmp_path / "shop")
    graph = Graph.open(tmp_path / "shop")
    # Tags have 9 rows of 4 bytes, items 12 of 20.
    available = graph.topology_bytes + 9 * 4 + 12 * 20 - missing
    memory = Memory(total=available, available=available, installed=available)
    monkeypatch.setattr(host, "read_memory", lambda: memory)
    tags, users, items = TypedStore.of(graph).stores
    assert (tags.from_disk, users, items.from_disk) == (expected, None, expected)
    rows, _ = items.gather(np.array([11, 3]), dtype=torch.float32, num_threads=1)
    np.testing.assert_array_equal(rows.numpy(), graph.matrices[2].rows[[11, 3]])
