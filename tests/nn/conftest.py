from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.graph import Graph, Split
from gnnscale.nn import GNN, Inputs, ModelConfig
from gnnscale.sampling import Block, LayerSampler, MiniBatch, NeighborSampler

Sample = Callable[[Graph], MiniBatch]


@pytest.fixture(params=["sampled", "with_replacement", "full", "layerwise"])
def sample(request: pytest.FixtureRequest) -> Sample:
    """Draw a two-layer mini-batch of 30 seeds by one of the samplers."""

    def draw(graph: Graph) -> MiniBatch:
        seeds = np.arange(0, 60, 2)
        if request.param == "layerwise":
            return LayerSampler(graph, layer_sizes=[40, 50], seed=1).sample(seeds, 3)
        fanouts = [-1, -1] if request.param == "full" else [6, 4]
        replace = request.param == "with_replacement"
        return NeighborSampler(graph, fanouts=fanouts, replace=replace, seed=1).sample(seeds, 3)

    return draw


def adjacency(block: Block) -> torch.Tensor:
    """Return a block as a dense float64 matrix, destination by source, of edges' importances."""
    matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    ones = np.ones(block.num_edges) if block.importance is None else block.importance
    at = (torch.from_numpy(dst), torch.from_numpy(block.indices.astype(np.int64)))
    return matrix.index_put(at, torch.from_numpy(ones.astype(np.float64)), accumulate=True)


@pytest.fixture
def load() -> Callable[..., Inputs]:
    """Load a mini-batch's input, fused or not."""

    def inputs(graph, model, batch, *, fused=True, dtype=torch.float32, num_threads=2) -> Inputs:
        options = {"num_threads": num_threads, "aggregates": fused, "compute_dtype": dtype}
        return FeatureLoader(graph, model, **options).load(batch)

    return inputs


def gradients(model: GNN, logits: torch.Tensor) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(logits.shape, generator=generator).to(logits.dtype)
    return list(torch.autograd.grad((logits * weight).sum(), list(model.parameters())))


@pytest.fixture
def check_against(random_graph, sample, load) -> Callable[..., None]:
    """Compare logits and gradients over a sampled mini-batch with those of dense matrices.

    ``dense(layer, h, edges, degrees, block)`` returns the new rows of a layer in float64, of the
    block as a matrix and the in-degrees of its sources in the whole graph, ``[num_src, 1]``.
    """

    def check(config: ModelConfig, dense: Callable[..., torch.Tensor], *, fused: bool) -> None:
        graph = random_graph()
        batch = sample(graph)
        model = config.build(num_features=20, num_classes=5)
        inputs = load(graph, model, batch, fused=fused)
        assert inputs.aggregated == (fused and config.aggregates_on_load)
        logits = model(batch, inputs)
        assert logits.dtype == torch.float32
        assert logits.shape[0] == batch.num_seeds
        grads = gradients(model, logits)
        h: Any = torch.from_numpy(graph.features[batch.input_vertices]).double()
        degrees = torch.from_numpy(np.diff(graph.indptr)[batch.input_vertices]).double()[:, None]
        for index, block in enumerate(batch.blocks):
            layer = model.layers[index].double()
            h = dense(layer, h, adjacency(block), degrees[: block.num_src], block)
            h = h.relu() if index + 1 < len(batch.blocks) else h
        for got, wanted in zip([logits, *grads], [h, *gradients(model, h)], strict=True):
            scale = float(wanted.detach().abs().max())
            torch.testing.assert_close(
                got.double() / scale, wanted.double() / scale, rtol=1e-4, atol=1e-4
            )

    return check


@pytest.fixture
def labeled() -> Callable[[np.ndarray, int], Graph]:
    """A graph without edges, with given labels, all of whose vertices are trained."""

    def make(labels: np.ndarray, num_classes: int) -> Graph:
        none = np.zeros(0, np.int32)
        return Graph(
            name="tiny",
            indptr=np.zeros(len(labels) + 1, np.int64),
            indices=none,
            features=np.zeros((len(labels), 1), np.float32),
            feature_dtype="float32",
            labels=labels,
            num_classes=num_classes,
            split=Split(train_idx=np.arange(len(labels), dtype=np.int32)),
        )

    return make
