from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN, Inputs
from gnnscale.sampler import Block, LayerSampler, MiniBatch, NeighborSampler

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


@pytest.fixture
def adjacency() -> Callable[[Block], torch.Tensor]:
    """Return a block as a dense float64 matrix, destination by source, of edges' importances."""

    def dense(block: Block) -> torch.Tensor:
        matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
        dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        ones = np.ones(block.num_edges) if block.importance is None else block.importance
        at = (torch.from_numpy(dst), torch.from_numpy(block.indices.astype(np.int64)))
        return matrix.index_put(at, torch.from_numpy(ones.astype(np.float64)), accumulate=True)

    return dense


@pytest.fixture
def load() -> Callable[..., Inputs]:
    """Load a mini-batch's input, fused or not."""

    def inputs(
        graph: Graph,
        model: GNN,
        batch: MiniBatch,
        *,
        fused: bool,
        dtype: torch.dtype = torch.float32,
        num_threads: int = 2,
    ) -> Inputs:
        loader = FeatureLoader(
            graph, model, num_threads=num_threads, aggregates=fused, compute_dtype=dtype
        )
        return loader.load(batch)

    return inputs


def gradients(model: GNN, logits: torch.Tensor) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(logits.shape, generator=generator).to(logits.dtype)
    grads: list[torch.Tensor] = list(
        torch.autograd.grad((logits * weight).sum(), list(model.parameters()))
    )
    return grads


@pytest.fixture
def check_against() -> Callable[..., None]:
    """Compare a model's logits and gradients with those of a dense reference in float64."""

    def check(
        model: GNN,
        batch: MiniBatch,
        inputs: Inputs,
        reference: Callable[[GNN], torch.Tensor],
        *,
        rtol: float = 1e-4,
        atol: float = 1e-4,
    ) -> None:
        logits = model(batch, inputs)
        assert logits.dtype == torch.float32
        assert logits.shape[0] == batch.num_seeds
        grads = gradients(model, logits)
        expected = reference(model)
        expected_grads = gradients(model, expected)
        pairs = [(logits, expected), *zip(grads, expected_grads, strict=True)]
        for got, wanted in pairs:
            scale = float(wanted.detach().abs().max())
            torch.testing.assert_close(
                got.double() / scale, wanted.double() / scale, rtol=rtol, atol=atol
            )

    return check
