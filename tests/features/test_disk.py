from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_graphs import shop

from gnnscale.core import Access, ConfigError, GraphError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.features import disk
from gnnscale.features.disk import (
    DiskRates,
    DiskRows,
    cached_disk_rates,
    choose_resident_lists,
    features_file,
    indices_file,
    mapped_features,
    mapped_indices,
    max_read_gap,
    measure_disk,
    open_lists,
    take_reads,
    types_in_files,
)
from gnnscale.graph import Graph
from gnnscale.sampling import NeighborSampler


def test_gap_has_the_bytes_read_in_the_time_of_a_request() -> None:
    # 20 microseconds a request, of which 4.096 are those of its 4 KiB.
    assert DiskRates(requests_per_s=50_000, bytes_per_s=1e9).max_gap_bytes == 20_000 - 4096
    assert DiskRates(requests_per_s=50_000, bytes_per_s=1e8).max_gap_bytes == 0


class CountedReads:
    """Reads a thousand rows a second, and three requests for every four rows."""

    def __init__(self, path: str, **options: object) -> None:
        self.num_rows, self.row_bytes = options["num_rows"], options["row_bytes"]
        self.rows, self.is_open = 0, True

    def submit(self, rows, pool, slots) -> int:
        assert rows.min() >= 0
        assert rows.max() < self.num_rows
        assert pool[0].shape[1] == self.row_bytes
        self.rows += len(rows)
        return self.rows

    def wait(self, ticket: int) -> None:
        assert ticket <= self.rows

    def take_counters(self) -> dict[str, float]:
        return {"requests": 0.75 * self.rows, "busy_s": self.rows / 1000}

    def close(self) -> None:
        self.is_open = False


def test_rates_are_requests_in_the_seconds_of_reading(tmp_path, monkeypatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    readers: list[CountedReads] = []

    def opened(*args, **options) -> CountedReads:
        readers.append(CountedReads(*args, **options))
        return readers[-1]

    monkeypatch.setattr(disk.ops, "RowReader", opened)
    rates = measure_disk(file, seconds=0.001)
    assert rates.requests_per_s == pytest.approx(750)
    assert rates.bytes_per_s == pytest.approx(750 * 2**16)
    assert [(each.num_rows, each.row_bytes) for each in readers] == [(256, 4096), (16, 2**16)]
    assert not any(each.is_open for each in readers)


def test_a_file_is_measured_once_unless_it_is_small(tmp_path, monkeypatch) -> None:
    file, small = tmp_path / "file", tmp_path / "small"
    for path, size in ((file, 1 << 24), (small, (1 << 24) - 1)):
        with path.open("wb") as opened:
            opened.truncate(size)
    measured: list[Path] = []
    rates = DiskRates(requests_per_s=50_000, bytes_per_s=1e9)
    monkeypatch.setattr(disk, "measure_disk", lambda path: measured.append(path) or rates)
    assert [cached_disk_rates(each) for each in (file, file, small)] == [rates, rates, None]
    # All of a small file may be read at once.
    assert [max_read_gap(file), max_read_gap(small)] == [rates.max_gap_bytes, (1 << 24) - 1]
    assert measured == [file]


def test_small_and_absent_files_cannot_be_measured(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1000))
    with pytest.raises(ConfigError, match=f"^{file}: expected .* bytes, got 1000$"):
        measure_disk(file)
    with pytest.raises(FileNotFoundError):
        measure_disk(tmp_path / "absent")


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
    every = [0, 1, 2]
    for memory, held in (
        *((27, []), (28, [1]), (43, [1]), (44, [0, 1])),
        *((60, every), (10**6, every)),
    ):
        found = choose_resident_lists(tiny_graph, reads, memory_bytes=memory)
        assert found.rows.tolist() == held
        assert found.rows.dtype == tiny_graph.indices.dtype
    found = choose_resident_lists(tiny_graph, reads, memory_bytes=44)
    assert (found.part, found.expected_hits) == (pytest.approx(3 / 6), pytest.approx(17 / 19))
    found = choose_resident_lists(tiny_graph, np.zeros(5, np.float32), memory_bytes=10**6)
    assert (len(found.rows), found.part, found.expected_hits) == (0, 0, 0)


@pytest.mark.long
@settings(max_examples=20)
@given(st.data())
def test_memory_is_not_exceeded(random_graph: Any, tmp_path_factory: Any, data: Any) -> None:
    graph = random_graph(60, 400, num_features=1)
    reads = np.float32(data.draw(st.lists(st.integers(0, 9), min_size=60, max_size=60)))
    memory = data.draw(st.integers(0, 3000))
    held = choose_resident_lists(graph, reads, memory_bytes=memory).rows
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


def test_features_of_types_are_in_files_of_their_own(tmp_path: Path) -> None:
    memory = shop(num_users=20, num_items=12)
    memory.save(tmp_path / "shop")
    stored = Graph.open(tmp_path / "shop")
    assert types_in_files(stored) == [0, 2]
    assert [features_file(stored, number).name for number in (0, 2)] == [
        *("features-0.npy", "features-2.npy")
    ]
    rows = DiskRows.of(stored, max_gap_bytes=0, vertex_type=0)
    assert (rows.num_rows, rows.num_features, rows.dtype_name) == (9, 2, "float16")
    assert np.array_equal(rows.profile_rows(np.int32([8, 1])), mapped_features(stored)[[8, 1]])
    rows.close()
    assert types_in_files(memory) == [0]
    for graph, number in ((memory, 0), (stored, 1)):  # users have no features
        with pytest.raises(ConfigError, match=r"^features=disk: expected features in a file"):
            mapped_features(graph, number)
