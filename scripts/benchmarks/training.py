"""Training steps of this project's models that several cases measure."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.runner import FANOUTS, Measure, clock, seeds_of
from gnnscale import ops
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn.base import seed_loss
from gnnscale.sampling import NeighborSampler

HIDDEN = 256
#: A model, and the loss of a step.
Trainer = tuple[torch.nn.Module, Callable[[int], torch.Tensor]]


class OwnTrainer:
    """Samples, loads and computes the loss of mini-batches, as ``gnnscale train`` does."""

    def __init__(self, graph: Any, config: Any, threads: int, **loading: Any) -> None:
        ops.keep_freed_memory()  # as every training run does
        torch.manual_seed(0)
        self._graph = config.graph_read(graph)
        self._sampler = NeighborSampler(self._graph, fanouts=FANOUTS, num_threads=threads)
        names = ("num_features", "num_classes", "num_edge_features")
        self.model = config.build(**{name: getattr(self._graph, name) for name in names})
        self.loader = FeatureLoader(self._graph, self.model, num_threads=threads, **loading)
        self.load = self.loader.load

    def loss(self, step: int) -> torch.Tensor:
        batch = self._sampler.sample(seeds_of(self._graph, step), step)
        return seed_loss(self._graph, self.model(batch, self.load(batch)), batch.seeds)


def timed_steps(step: Callable[[int], Any], count: int) -> Measure:
    """Return the median seconds of ``count`` steps, further ones in each round."""
    return lambda number: {"s": clock(step, range(number * count, (number + 1) * count))}


def with_adam(model: torch.nn.Module, loss_of: Callable[[int], torch.Tensor]) -> Any:
    """Return the function that trains a step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def step(number: int) -> None:
        loss = loss_of(number)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
