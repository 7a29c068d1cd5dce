from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale.backend.chunks import ChunkLoader, cut
from gnnscale.graph import Graph
from gnnscale.model import GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.runtime.evaluation.edge_sums import Wanted
from gnnscale.runtime.evaluation.file_rows import FileRows, file_bytes
from gnnscale.runtime.evaluation.memory_rows import MemoryRows
from gnnscale.runtime.evaluation.workers import Workers


def fill(rows: FileRows | MemoryRows, num_rows: int, columns: int) -> FileRows | MemoryRows:
    h = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(0))
    for first in reversed(range(0, num_rows, 70)):  # in any order
        rows.write(first, h[first : first + 70])
    return rows


@pytest.mark.parametrize("config", [GCN, GIN, GraphSAGE])
@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize(("width", "stretch_bytes"), [(48, 1), (20, 1), (20, 40_000), (5, 1 << 30)])
def test_rows_of_a_file_are_summed_to_the_same_bits_as_rows_in_memory(
    random_graph: Callable[..., Graph],
    config: type[ModelConfig],
    width: int,
    stretch_bytes: int,
    num_parts: int,
) -> None:
    graph = random_graph(500, 4000)
    layer = config(hidden=4).layer(width, 3, last=False)
    loader = ChunkLoader(graph, num_threads=2, uses_degrees=True)
    vertices = np.random.default_rng(0).permutation(500)[:300].astype(graph.indices.dtype)
    parts = {"num_parts": num_parts}
    memory = fill(MemoryRows(500, width, **parts), 500, num_parts * width)
    file = FileRows(500, width, **parts, stretch_bytes=stretch_bytes)
    fill(file, 500, num_parts * width)
    wanted = []
    for chunk in cut(graph, vertices, 700, 50):
        sources, block, degrees = loader.neighbours(chunk, distinct=True)
        aggregation = layer.aggregation(block, degrees)
        if num_parts == 2:  # whose own rows are elsewhere
            aggregation = replace(aggregation, self_term="add")
        wanted.append(Wanted(block=block, vertices=sources, aggregation=aggregation))
    assert len(wanted) > 3
    workers = Workers(2)
    with workers.running():
        found = file.aggregate_all([partial(_same, each) for each in wanted], workers)
    for each, finish in zip(wanted, found, strict=True):
        expected, _ = memory.aggregate(
            each.vertices, each.block, each.aggregation, dtype=torch.float32, num_threads=1
        )
        block, rows = finish()
        assert block is each.block
        assert torch.equal(rows, expected)
        single, _ = file.gather(each.vertices, dtype=torch.float32, num_threads=2)
        assert torch.equal(single, torch.from_numpy(memory.rows[each.vertices]))
    file.close()


def _same(wanted: Wanted) -> Wanted:
    return wanted


def test_a_file_has_no_name_and_only_the_bytes_that_were_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = FileRows(1000, 17, stretch_bytes=1)
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    (name,) = {each for each in map(os.readlink, links) if each.startswith(str(tmp_path))}
    found = os.fstat(next(int(each.name) for each in links if os.readlink(each) == name))
    assert list(tmp_path.iterdir()) == []
    assert found.st_nlink == 0
    assert found.st_size == file_bytes(1000, 17) == 1000 * 32 * 4
    rows.close()
