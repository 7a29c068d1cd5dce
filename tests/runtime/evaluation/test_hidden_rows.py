from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale.backend.chunks import ChunkLoader, cut
from gnnscale.graph import Graph
from gnnscale.model import GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.runtime.evaluation.hidden_rows import FileRows, MemoryRows, Wanted, file_bytes


def fill(rows: FileRows | MemoryRows, num_rows: int, width: int) -> FileRows | MemoryRows:
    generator = torch.Generator().manual_seed(0)
    for part in torch.randn(num_rows, width, generator=generator).split(70):
        rows.append(part)
    return rows


@pytest.mark.parametrize("config", [GCN, GIN, GraphSAGE])
@pytest.mark.parametrize(("width", "stretch_bytes"), [(48, 1), (20, 1), (20, 40_000), (5, 1 << 30)])
def test_rows_of_a_file_are_summed_to_the_same_bits_as_rows_in_memory(
    random_graph: Callable[..., Graph], config: type[ModelConfig], width: int, stretch_bytes: int
) -> None:
    graph = random_graph(500, 4000)
    layer = config(hidden=4).layer(width, 3, last=False)
    loader = ChunkLoader(graph, num_threads=2, uses_degrees=True)
    vertices = np.random.default_rng(0).permutation(500)[:300].astype(graph.indices.dtype)
    memory = fill(MemoryRows(500, width), 500, width)
    file = fill(FileRows(500, width, stretch_bytes=stretch_bytes), 500, width)
    assert isinstance(file, FileRows)
    wanted = []
    for chunk in cut(graph, vertices, 700, 50):
        batch, degrees = loader.sample(chunk)
        aggregation = layer.aggregation(batch.blocks[0], degrees)
        wanted.append(
            Wanted(block=batch.blocks[0], vertices=batch.input_vertices, aggregation=aggregation)
        )
    assert len(wanted) > 3
    found = list(file.aggregate_all(wanted, num_threads=2))
    for each, rows in zip(wanted, found, strict=True):
        expected, _ = memory.aggregate(
            each.vertices, each.block, each.aggregation, dtype=torch.float32, num_threads=1
        )
        assert torch.equal(rows, expected)
        single, _ = file.gather(each.vertices, dtype=torch.float32, num_threads=2)
        assert torch.equal(single, torch.from_numpy(memory.rows[each.vertices]))
    file.close()


def test_a_file_has_no_name_and_only_the_bytes_that_were_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = FileRows(1000, 17, stretch_bytes=1)
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    (link,) = [each for each in links if os.readlink(each).startswith(str(tmp_path))]
    found = os.fstat(int(link.name))
    assert list(tmp_path.iterdir()) == []
    assert found.st_nlink == 0
    assert found.st_size == file_bytes(1000, 17) == 1000 * 32 * 4
    rows.close()
