import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale.backend.feature_loading import ChunkLoader, FeatureLoader, in_degrees
from gnnscale.core.hardware import multiplies_bfloat16
from gnnscale.graph import Graph, Split
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.sampling import LayerSampler, NeighborSampler


def test_in_degrees_by_hand(tiny_graph: Graph) -> None:
    degrees = in_degrees(tiny_graph, np.arange(5))
    assert degrees.dtype == np.float32
    assert degrees.tolist() == [2, 1, 2, 0, 1]
    assert in_degrees(tiny_graph, np.array([4, 0, 4], np.int32)).tolist() == [1, 2, 1]


@pytest.mark.parametrize("config", [GCN, GIN])
def test_degrees_of_a_large_graph_are_read_for_the_vertices_of_a_batch(
    tmp_path: Path, tiny_graph: Graph, config: type[ModelConfig]
) -> None:
    # A file without a written page but the last: all edges are those of the last vertex.
    last = 20_000_000
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=last + 2)
    indptr[-1] = 3
    features = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (last + 1, 4), (0, 4))
    graph = replace(
        tiny_graph,
        indptr=indptr,
        indices=np.array([0, 1, 2], np.int32),
        features=features,
        split=Split(train_idx=np.array([last])),
    )
    model = config(num_layers=1, hidden=8).build(num_features=4, num_classes=2)
    sampler = NeighborSampler(graph, fanouts=[-1])
    loader = FeatureLoader(graph, model, num_threads=1)
    chunks = ChunkLoader(graph, num_threads=1, uses_degrees=True)
    tracemalloc.start()
    inputs = loader.load(sampler.sample(graph.train_idx, 0))
    list(chunks.load(model.layer(0), loader.store, graph.train_idx))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert inputs.degrees.tolist() == [3, 0, 0, 0]
    assert peak < 1 << 20


@pytest.mark.parametrize("config", [GraphSAGE, GCN, GIN, GAT])
def test_degrees_are_there_where_they_are_used(tiny_graph, config) -> None:
    model = config(num_layers=1, hidden=8).build(num_features=2, num_classes=2)
    loader = FeatureLoader(tiny_graph, model, num_threads=1)
    for sampler, used in (
        (NeighborSampler(tiny_graph, fanouts=[-1]), config in (GCN, GIN)),
        (LayerSampler(tiny_graph, layer_sizes=[2]), True),
    ):
        batch = sampler.sample(np.array([2, 0]), 0)
        degrees = loader.load(batch).degrees
        if used:
            assert degrees.tolist() == in_degrees(tiny_graph, batch.input_vertices).tolist()
        else:
            assert degrees is None


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("computed", [torch.float32, torch.bfloat16])
def test_rows_are_those_of_the_input_vertices(random_graph, stored, computed) -> None:
    graph = random_graph(dtype=stored)
    model = GraphSAGE(num_layers=1).build(num_features=20, num_classes=5)
    batch = NeighborSampler(graph, fanouts=[5]).sample(np.arange(0, 300, 3), 0)
    options = {"num_threads": 2, "aggregates": False, "compute_dtype": computed}
    loader = FeatureLoader(graph, model, **options)
    inputs = loader.load(batch)
    rows = graph.features[batch.input_vertices]
    bits = torch.from_numpy(rows.view(np.int16) if stored == torch.bfloat16 else rows)
    expected = bits.view(stored)
    assert not inputs.aggregated
    assert torch.equal(inputs.x, expected.float().to(loader.dtype))
    assert loader.dtype == (computed if multiplies_bfloat16() else torch.float32)


#: Trains a step with rows of bfloat16, and prints the type of each product's operands.
_PRODUCTS = """
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import from_arrays
from gnnscale.nn import GraphSAGE
from gnnscale.sampling import NeighborSampler

class Products(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.__name__.split(".")[0] in ("mm", "addmm", "bmm"):
            print(op.__name__, *(each.dtype for each in args))
        return op(*args, **(kwargs or {}))

ring = np.arange(64)
graph = from_arrays((ring, np.roll(ring, 1)), np.ones((64, 32), np.float32), train_idx=ring,
                    labels=np.zeros(64, np.int64), num_classes=2)
model = GraphSAGE(hidden=32).build(num_features=32, num_classes=2)
batch = NeighborSampler(graph, fanouts=[2, 2]).sample(ring, 0)
loader = FeatureLoader(graph, model, num_threads=1, compute_dtype=torch.bfloat16)
with Products():
    model(batch, loader.load(batch)).sum().backward()
"""


@pytest.mark.parametrize(
    "limits",
    [
        {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
        pytest.param({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, marks=pytest.mark.long),
    ],
)
def test_a_processor_without_bfloat16_multiplies_float32(limits: dict[str, str]) -> None:
    """Torch's products of bfloat16 take 2 to 50 times as long there."""
    command = [sys.executable, "-I", "-c", _PRODUCTS]
    ran = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    products = [line.split() for line in ran.stdout.splitlines()]
    # Two layers forward, and backward with the gradient of each one's weights.
    assert len(products) >= 4
    assert {dtype for _, *dtypes in products for dtype in dtypes} == {"torch.float32"}


def test_the_fused_first_layer_by_hand(tiny_graph: Graph) -> None:
    model = GraphSAGE(num_layers=1).build(num_features=2, num_classes=2)
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([2, 3]), 0)
    inputs = FeatureLoader(tiny_graph, model, num_threads=2).load(batch)
    assert inputs.aggregated
    assert inputs.x.tolist() == [[2, 20, 1.5, 15], [3, 30, 0, 0]]
