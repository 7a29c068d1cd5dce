import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend.feature_loading import ChunkLoader, cut
from gnnscale.features import Aggregation
from gnnscale.inference.activation_store import AggregationRequest, FileRows, MemoryRows, file_bytes
from gnnscale.inference.chunks import Workers
from gnnscale.nn import GCN, GIN, GraphSAGE
from gnnscale.sampling import Block


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "num_parts", "width", "range_bytes"),
    [
        *((GCN, 1, 48, 1), (GIN, 2, 20, 1), (GraphSAGE, 1, 20, 40_000), (GCN, 2, 5, 1 << 30)),
        *((GIN, 1, 5, 1 << 30), (GraphSAGE, 2, 48, 1), (GCN, 2, 20, 40_000)),
    ],
)
def test_rows_of_a_file_are_summed_to_the_same_bits_as_rows_in_memory(
    random_graph, config, num_parts, width, range_bytes
) -> None:
    graph = random_graph(500, 4000)
    layer = config(hidden=4).layer(width, 3, last=False)
    loader = ChunkLoader(graph, num_threads=2, uses_degrees=True)
    vertices = np.random.default_rng(0).permutation(500)[:300].astype(graph.indices.dtype)
    memory: Any = MemoryRows(500, width, num_parts=num_parts)
    file: Any = FileRows(500, width, num_parts=num_parts, range_bytes=range_bytes)
    h = torch.randn(500, num_parts * width)
    for first in reversed(range(0, 500, 70)):  # in any order
        memory.write(first, h[first : first + 70])
        file.write(first, h[first : first + 70])
    wanted = []
    for chunk in cut(graph, vertices, 700, 50):
        sources, block, degrees = loader.neighbours(chunk, distinct=True)
        aggregation = layer.aggregation(block, degrees)
        if num_parts == 2:  # whose own rows are elsewhere
            aggregation = replace(aggregation, self_term="add")
        wanted.append(AggregationRequest(block=block, vertices=sources, aggregation=aggregation))
    assert len(wanted) > 3
    workers = Workers(2)
    with workers.running():
        found = file.aggregate_all([lambda each=each: each for each in wanted], workers)
    for each, finish in zip(wanted, found, strict=True):
        request = (each.vertices, each.block, each.aggregation)
        expected, _ = memory.aggregate(*request, dtype=torch.float32, num_threads=1)
        block, rows = finish()
        assert block is each.block
        assert torch.equal(rows, expected)
        single, _ = file.gather(each.vertices, dtype=torch.float32, num_threads=2)
        assert torch.equal(single, torch.from_numpy(memory.rows[each.vertices]))
    file.close()


def test_a_file_has_no_name_and_only_the_bytes_that_were_foretold(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = FileRows(1000, 17, range_bytes=1)
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    (name,) = {each for each in map(os.readlink, links) if each.startswith(str(tmp_path))}
    found = os.fstat(next(int(each.name) for each in links if os.readlink(each) == name))
    # What a process that is killed leaves is nothing.
    assert list(tmp_path.iterdir()) == []
    assert found.st_nlink == 0
    assert found.st_size == file_bytes(1000, 17) == 1000 * 32 * 4
    rows.close()


#: One destination, row 2, with the rows 0, 1 and 1 as its neighbours.
BLOCK = Block(indptr=np.array([0, 3]), indices=np.array([1, 2, 2], np.int32), num_src=3)

VERTICES = np.array([2, 0, 1], np.int32)


def aggregated(rows: MemoryRows, aggregation: Aggregation) -> list[list[float]]:
    found, _ = rows.aggregate(VERTICES, BLOCK, aggregation, dtype=torch.float32, num_threads=1)
    return found.tolist()  # type: ignore[no-any-return]


def test_rows_are_aggregated_where_they_were_written() -> None:
    rows = MemoryRows(3, 2)
    rows.write(1, torch.tensor([[10.0, 20.0], [100.0, 200.0]]))
    rows.write(0, torch.tensor([[1.0, 2.0]]))
    assert rows.self_rows is None
    assert aggregated(rows, Aggregation(self_term="add")) == [[121.0, 242.0]]
    assert aggregated(rows, Aggregation(self_term="concat")) == [[100.0, 200.0, 21.0, 42.0]]
    rows = MemoryRows(3, 2, num_parts=2)
    rows.write(0, torch.tensor([[1.0, 2.0, 7.0, 8.0], [10.0, 20.0, 7.0, 8.0]]))
    rows.write(2, torch.tensor([[100.0, 200.0, 0.5, 0.25]]))
    assert rows.self_rows[2].tolist() == [0.5, 0.25]
    assert aggregated(rows, Aggregation(self_term="add")) == [[21.5, 42.25]]


def test_results_come_in_order_from_threads_that_work_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(item: int) -> tuple[int, bool, int]:
        together.wait()
        return item, torch.is_grad_enabled(), torch.get_num_threads()

    before = torch.get_num_threads()
    workers = Workers(3)
    with workers.running():
        assert list(workers.map(work, range(6))) == [(item, False, 1) for item in range(6)]
    assert torch.get_num_threads() == before
    assert [Workers(count).threads_per_chunk for count in (1, 3, 4, 7, 64)] == [1, 1, 1, 1, 16]
    workers = Workers(8)
    with workers.running():
        assert list(workers.map(lambda _: torch.get_num_threads(), [0])) == [2]


def test_an_error_ends_the_work_and_is_the_callers() -> None:
    running = threading.Semaphore(0)
    ended = []

    def work(item: int) -> None:
        if item == 0:
            running.acquire()  # until the other one is at work
            raise ValueError("no")
        running.release()
        threading.Event().wait(0.2)
        ended.append(item)

    workers = Workers(2)
    with workers.running():
        with pytest.raises(ValueError, match="no"):
            list(workers.map(work, range(100)))
        # What was at work is done, and nothing else will be.
        known = list(ended)
        assert 1 in known
        assert len(known) < 10
        threading.Event().wait(0.3)
        assert ended == known


def test_parts_of_a_file_are_written_one_by_one_and_read_together() -> None:
    rows = FileRows(5, 20, num_parts=2, range_bytes=1)
    given = torch.arange(5.0 * 36).view(5, 36)
    for first in (0, 3):
        rows.write_part(0, first, given[first : first + 3, :20])
        # The last part may have fewer columns.
        rows.write_part(1, first, given[first : first + 3, 20:])
    found = rows.read(1, 3)
    assert torch.equal(found[:, :36], given[1:4])
    assert not found[:, 36:].any()
    assert rows.read(5, 0).shape == (0, 40)
    rows.close()
