"""A task over a graph that was opened: what a run orders, samples, builds and minimises."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.model import ModelConfig, TrainableModel
from gnnscale.model.trainable import Objective
from gnnscale.sampler import SamplerConfig, SeedOrder

__all__ = ["Task"]


class Task(Protocol):
    """What is predicted."""

    @property
    def graph(self) -> Graph:
        """The graph whose neighbours are sampled in training."""
        ...

    @property
    def seeds(self) -> NDArray[Any]:
        """``[n]`` what is trained once an epoch: vertices, or numbers of edges."""
        ...

    @property
    def measures(self) -> tuple[str, ...]:
        """What a run is measured by; the first one decides."""
        ...

    @property
    def objective(self) -> Objective:
        """The loss of a mini-batch."""
        ...

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return how mini-batches of seeds are sampled, by how it is done for vertices.

        Args:
            vertices: the run's sampler.
            order: of the seeds.
        """
        ...

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build the model that is trained."""
        ...
