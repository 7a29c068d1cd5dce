from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import assert_near, edge_index, gradients

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.graph import Graph, Split
from gnnscale.nn import Inputs, ModelConfig
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
    ones = np.ones(block.num_edges) if block.importance is None else block.importance
    at = tuple(edge_index(block).flip(0))
    return matrix.index_put(at, torch.from_numpy(ones.astype(np.float64)), accumulate=True)


@pytest.fixture
def load() -> Callable[..., Inputs]:
    """Load a mini-batch's input, fused or not."""

    def inputs(graph, model, batch, *, fused=True, dtype=torch.float32, num_threads=2) -> Inputs:
        options = {"num_threads": num_threads, "aggregates": fused, "compute_dtype": dtype}
        return FeatureLoader(graph, model, **options).load(batch)

    return inputs


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
        found = [logits, *gradients(logits, model.parameters())]
        h: Any = torch.from_numpy(graph.features[batch.input_vertices]).double()
        degrees = torch.from_numpy(np.diff(graph.indptr)[batch.input_vertices]).double()[:, None]
        for index, block in enumerate(batch.blocks):
            layer = model.layers[index].double()
            h = dense(layer, h, adjacency(block), degrees[: block.num_src], block)
            h = h.relu() if index + 1 < len(batch.blocks) else h
        expected = [h, *gradients(h, model.parameters())]
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other, rtol=1e-4, atol=1e-4)

    return check


@pytest.fixture
def check_slices(random_graph, load) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Slices of a mini-batch have its logits and, together, its gradients; return the logits.

    Those of training and those of evaluation, to be compared: they say whether dropout was on.
    """

    def check(model: Any, within: float, **close: float) -> tuple[torch.Tensor, torch.Tensor]:
        graph, seeds = random_graph(), np.arange(0, 90, 2)
        fanouts = [5, 3, 2][: len(model.layers)]
        sampler = NeighborSampler(graph, fanouts=fanouts, num_threads=2, seed=3)
        batches = [sampler.sample(part, 7) for part in (seeds, *np.array_split(seeds, 4))]
        assert model.training
        whole, *parts = (model(batch, load(graph, model, batch)) for batch in batches)
        torch.testing.assert_close(torch.cat(parts), whole, **close)
        of = list(model.parameters())
        for one, other in zip(gradients(torch.cat(parts), of), gradients(whole, of), strict=True):
            assert (one - other).norm() <= within * other.norm()
        again = model(batches[0], load(graph, model, batches[0]))
        assert torch.equal(again, whole)
        return whole, model.eval()(batches[0], load(graph, model, batches[0]))

    return check


@pytest.fixture
def labeled() -> Callable[[np.ndarray, int], Graph]:
    """A graph without edges, with given labels, all of whose vertices are trained."""

    def make(labels: np.ndarray, num_classes: int) -> Graph:
        rows = {"features": np.zeros((len(labels), 1), np.float32), "feature_dtype": "float32"}
        edges = {"indptr": np.zeros(len(labels) + 1, np.int64), "indices": np.zeros(0, np.int32)}
        split = Split(train_idx=np.arange(len(labels), dtype=np.int32))
        sizes: Any = {"num_classes": num_classes, **rows, **edges}
        return Graph(name="tiny", labels=labels, split=split, **sizes)

    return make
