"""Sampling of task rows: options of a sampler whose seeds are row numbers."""

from dataclasses import dataclass, replace

import numpy as np

from gnnscale.core import Array, ConfigError, IntArray
from gnnscale.graph import Graph, TaskRows
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.minibatch import (
    BatchRows,
    MiniBatch,
    Sampler,
    SamplerConfig,
    WrappingSampler,
)
from gnnscale.sampling.neighbor import FanoutSampling
from gnnscale.sampling.timed import RowSampler, TimedSampler


class UntimedRowSampler(WrappingSampler):
    """Sampler whose seeds are row numbers, without regard to their cut-offs."""

    def __init__(self, sampler: Sampler, vertices: IntArray) -> None:
        """Sample rows of ``vertices`` ``[num_rows]`` by ``sampler``."""
        super().__init__(sampler)
        self._vertices = vertices

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of rows ``seeds`` at ``step``; rows of one vertex share its output.

        The seeds of the batch are in the order of vertex ids.
        """
        numbers = np.asarray(seeds)
        vertices, positions = np.unique(self._vertices[numbers], return_inverse=True)
        rows = BatchRows(numbers=numbers, positions=positions.astype(np.int32))
        return replace(self._sampler.sample(vertices, step), rows=rows)


@dataclass(frozen=True, kw_only=True)
class RowSampling(SamplerConfig):
    """Configuration of ``RowSampler``; ``vertices`` configures its sampler and rule of time."""

    vertices: SamplerConfig
    rows: TaskRows
    left_out: CutoffEdges | None = None  #: edges without messages as of their own times

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Sampler:
        """Build the sampler for ``graph``; ConfigError: it samples as of no cut-offs."""
        timed = row_units(
            self.vertices, graph, seed=seed, num_threads=num_threads, left_out=self.left_out
        )
        if timed is None:
            sampler = self.vertices.sampler(graph, seed=seed, num_threads=num_threads)
            return UntimedRowSampler(sampler, self.rows.vertices)
        return RowSampler(timed, self.rows.vertices, self.rows.cutoffs)


def row_units(
    options: SamplerConfig,
    graph: Graph,
    *,
    seed: int,
    num_threads: int,
    left_out: CutoffEdges | None = None,
) -> TimedSampler | None:
    """Return the sampler of the units of task rows. None: ``sampler.time`` is ``none``.

    ConfigError: ``options`` cannot sample as of cut-offs.
    """
    if not isinstance(options, FanoutSampling):
        raise ConfigError(
            "sampler: expected neighbor, labor, weighted or full for task rows, which have "
            f"cut-offs, got {type(options).__name__}"
        )
    rule = options.time_rule(has_cutoffs=True)
    if rule is None:
        return None
    return options.timed_sampler(graph, rule, seed=seed, num_threads=num_threads, left_out=left_out)
