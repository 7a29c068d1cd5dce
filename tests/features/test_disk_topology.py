"""Which neighbour lists memory holds, and what is read of the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core import Access, ConfigError, GraphError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.features.disk import (
    choose_resident_lists,
    indices_file,
    mapped_indices,
    open_lists,
    take_reads,
)
from gnnscale.graph import Graph
from gnnscale.sampling import NeighborSampler

#: Bytes of the bitmap of up to 63 vertices.
BITMAP = 16


@pytest.fixture
def stored(tiny_graph: Graph, tmp_path: Path) -> Graph:
    np.save(tmp_path / "indices.npy", tiny_graph.indices)
    return replace(tiny_graph, indices=map_npy(tmp_path / "indices.npy"))


def test_lists_with_most_reads_a_byte_are_held(tiny_graph: Graph) -> None:
    # Degrees are 2, 1, 2, 0 and 1, so that lists take 16, 12, 16, 8 and 12 bytes with their places.
    reads = np.float32([8, 9, 2, 99, 0])
    # The list of vertex 3 is empty, and that of vertex 4 never read.
    for memory, held in (
        (27, []),
        (28, [1]),
        (43, [1]),
        (44, [0, 1]),
        (60, [0, 1, 2]),
        (10**6, [0, 1, 2]),
    ):
        found = choose_resident_lists(tiny_graph, reads, memory_bytes=memory)
        assert found.vertices.tolist() == held
        assert found.vertices.dtype == tiny_graph.indices.dtype
    found = choose_resident_lists(tiny_graph, reads, memory_bytes=44)
    assert (found.part, found.expected_hits) == (pytest.approx(3 / 6), pytest.approx(17 / 19))


def test_nothing_is_held_if_nothing_is_read(tiny_graph: Graph) -> None:
    found = choose_resident_lists(tiny_graph, np.zeros(5, np.float32), memory_bytes=10**6)
    assert (len(found.vertices), found.part, found.expected_hits) == (0, 0, 0)


@given(st.data())
def test_memory_is_not_exceeded(random_graph: Any, tmp_path_factory: Any, data: Any) -> None:
    graph = random_graph(60, 400, num_features=1)
    reads = np.float32(data.draw(st.lists(st.integers(0, 9), min_size=60, max_size=60)))
    memory = data.draw(st.integers(0, 3000))
    held = choose_resident_lists(graph, reads, memory_bytes=memory).vertices
    path = tmp_path_factory.mktemp("lists") / "indices.npy"
    np.save(path, graph.indices)
    lists = open_lists(replace(graph, indices=map_npy(path)), held, max_gap_bytes=0)
    # Beside the end of the last list.
    assert lists.num_bytes - 8 <= max(memory, BITMAP)


def test_neighbours_are_counted(stored: Graph) -> None:
    lists = open_lists(stored, np.int32([1]), max_gap_bytes=10**9)
    batch = NeighborSampler(replace(stored, lists=lists), fanouts=[-1]).sample(np.int32([0, 1]), 0)
    assert batch.input_vertices.tolist() == [0, 1, 2, 3]
    found = take_reads(lists)
    assert (found.hits, found.misses, found.link_requests) == (1, 2, 1)
    assert found.link_bytes >= 8
    assert found.waited_us > 0
    assert take_reads(lists) == Access()


def test_neighbours_are_found_in_the_store(stored: Graph, tiny_graph: Graph) -> None:
    assert mapped_indices(stored) is stored.indices
    assert np.load(indices_file(stored)).tolist() == tiny_graph.indices.tolist()
    for refused in (mapped_indices, indices_file):
        with pytest.raises(ConfigError, match=r"^sampler.memory_bytes: .* got those of tiny"):
            refused(tiny_graph)


def test_damaged_offsets_of_a_list_name_the_graph(stored: Graph) -> None:
    indptr = stored.indptr.copy()
    indptr[1] = 9
    with pytest.raises(GraphError, match="tiny: damaged, indptr: the neighbours of vertex 0"):
        open_lists(replace(stored, indptr=indptr), np.int32([0]), max_gap_bytes=0)
