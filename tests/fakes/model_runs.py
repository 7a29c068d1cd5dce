"""Runs of models, and what they are compared by."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.sampling import Block, MiniBatch, NeighborSampler


def edge_index(lists: Graph | Block) -> torch.Tensor:
    """Source and destination of each edge, in the order of the lists: ``[2, num_edges]``."""
    dst = np.repeat(np.arange(len(lists.indptr) - 1), np.diff(lists.indptr))
    return torch.from_numpy(np.stack([lists.indices, dst]).astype(np.int64))


def logits_of(model: Any, graph: Graph, batch: MiniBatch, **options: Any) -> torch.Tensor:
    loader = FeatureLoader(graph, model, **{"num_threads": 2} | options)
    return model(batch, loader.load(batch))


def full_batch(model: Any, graph: Graph, vertices: Any = None) -> torch.Tensor:
    """Logits over all neighbours, in one mini-batch; the model is in evaluation mode then."""
    model.eval()
    vertices = np.arange(graph.num_vertices) if vertices is None else vertices
    batch = NeighborSampler(graph, fanouts=[-1] * len(model.layers)).sample(vertices, 0)
    with torch.no_grad():
        return logits_of(model, graph, batch, num_threads=1)


def assert_near(
    found: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    """Numbers are close, divided by the largest that is expected."""
    found, expected = found.detach().double(), expected.detach().double()
    scale = expected.abs().max().clamp(min=1e-6)
    torch.testing.assert_close(found / scale, expected / scale, rtol=rtol, atol=atol)


def weighted_sum(out: torch.Tensor) -> torch.Tensor:
    """A sum in which outputs have different weights."""
    return (out * (torch.arange(out.numel()).view_as(out) % 7 - 3.0)).sum()


def gradients(out: torch.Tensor, of: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(weighted_sum(out), list(of)))


def with_threads(num_threads: int, run: Callable[[], Any]) -> Any:
    """What ``run`` returns where torch has so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        return run()
    finally:
        torch.set_num_threads(before)
