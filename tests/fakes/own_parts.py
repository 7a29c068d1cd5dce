"""Parts of a run from outside of the package: options name them as ``own_parts.py:NAME``."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.cache import CachePlan, CachePlannerConfig, CacheTask
from gnnscale.cache.base import feature_cache, hottest_rows, predict_traffic
from gnnscale.core import ConfigError, Traffic
from gnnscale.features import FeatureStore, FeatureStoreConfig, HostFeatures
from gnnscale.graph import Graph
from gnnscale.partition import Forecast, PartitionerConfig, Parts
from gnnscale.sampling import MiniBatch, NeighborSampler, SamplerConfig


@dataclass(frozen=True, kw_only=True)
class Dealt(PartitionerConfig):
    """Vertices are dealt to the parts in turn, so many at a time."""

    at_once: int = 1

    algorithm: ClassVar[str] = "dealt"
    depends_on_hops: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at_once < 1:
            raise ConfigError(f"partitioner.at_once={self.at_once}: must be at least 1")

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        owner = np.arange(graph.num_vertices) // self.at_once % num_parts
        return Parts(num_parts=num_parts, owner=owner.astype(np.int16))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        return Forecast(memory_bytes=18 * graph.num_vertices, seconds=1e-8 * graph.num_vertices)


@dataclass(frozen=True, kw_only=True)
class ByNeighbors(CachePlannerConfig):
    """Devices keep the rows of vertices with most in-neighbours, if those are at least so many."""

    at_least: int = 0

    @property
    def policy(self) -> str:
        return "neighbors"

    def plan(self, task: CacheTask) -> CachePlan:
        degrees = np.diff(task.graph.indptr).astype(np.float32)
        kept = []
        for device in task.devices:
            rows = hottest_rows(task, degrees, device.budget_bytes // task.row_bytes)
            rows = rows[degrees[rows] >= self.at_least]
            kept.append(feature_cache(task, device, rows, rows[:0]))
        cliques = tuple((device.position,) for device in task.devices)
        return CachePlan(
            planner=self.policy,
            cliques=cliques,
            devices=tuple(kept),
            alphas=(None,) * len(cliques),
            predicted=predict_traffic(task, kept, cliques, task.counted),
        )


class Growing:
    """Draws few neighbours in the first steps, and more later."""

    def __init__(self, few: NeighborSampler, many: NeighborSampler, first_steps: int) -> None:
        self._few, self._many, self._first_steps = few, many, first_steps

    @property
    def num_threads(self) -> int:
        return self._many.num_threads

    @num_threads.setter
    def num_threads(self, value: int) -> None:
        self._few.num_threads = self._many.num_threads = value

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        return (self._few if step < self._first_steps else self._many).sample(seeds, step)


@dataclass(frozen=True, kw_only=True)
class FewAtFirst(SamplerConfig):
    """Neighbour sampling that begins with smaller fan-outs."""

    few: list[int]
    many: list[int]
    first_steps: int = 100

    @property
    def num_layers(self) -> int:
        return len(self.many)

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Growing:
        few, many = (
            NeighborSampler(graph, fanouts=fanouts, seed=seed, num_threads=num_threads)
            for fanouts in (self.few, self.many)
        )
        return Growing(few, many, self.first_steps)


class Halved(FeatureStore):
    """Rows of the graph, each number halved."""

    def __init__(self, rows: FeatureStore) -> None:
        self._rows = rows

    @property
    def num_rows(self) -> int:
        return self._rows.num_rows

    @property
    def width(self) -> int:
        return self._rows.width

    @property
    def row_bytes(self) -> int:
        return self._rows.row_bytes

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        rows, traffic = self._rows.gather(vertices, dtype=dtype, num_threads=num_threads)
        return rows / 2, traffic


@dataclass(frozen=True, kw_only=True)
class HalvedFeatures(FeatureStoreConfig):
    """Workers read halved rows."""

    def open(self, graph: Graph) -> Halved:
        return Halved(HostFeatures.of(graph))


def worst_recall(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Recall of the class that is recognised worst, for vertices with one label each."""
    right = outputs.argmax(dim=1) == targets
    return min(right[targets == each].float().mean() for each in targets.unique())
