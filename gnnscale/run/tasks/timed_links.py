"""Link prediction by time: edges are predicted as of their times, from earlier edges alone."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, Int64Array, IntArray
from gnnscale.run.tasks.cutoffs import before_edges
from gnnscale.run.tasks.links import LinkTask
from gnnscale.run.tasks.timed_split import PARTS, TimedEdgeSplit
from gnnscale.sampling import Candidates, FanoutSampling, SamplerConfig, SeedOrder
from gnnscale.sampling.timed_links import TimedLinkSampling


@dataclass(frozen=True, kw_only=True)
class TimedLinkTask(LinkTask):
    """Link prediction over a split by time; the graph of messages has all edges."""

    split: TimedEdgeSplit
    filters_all: bool = False  #: whether edges of any time are left out of a ranking of all

    @property
    def popularity(self) -> Int64Array:
        """In-degree of each vertex by training edges, ``[num_vertices]``."""
        ends = np.asarray(self.split.train)
        targets = ends.reshape(-1) if self.split.undirected else ends[:, 1]
        return np.bincount(targets, minlength=self.graph.num_vertices)

    @property
    def held_out_pairs(self) -> list[IntArray]:
        """Return no pairs: the graph of messages has all edges."""
        return []

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return a sampler's options: training edges and negatives as of the edges' times."""
        return TimedLinkSampling(
            vertices=strictly_before(vertices),
            edges=self.split.train,
            times=self.split.train_times,
            edge_type=self.split.relation.edge_type,
            num_negatives=self.num_negatives,
            candidates=self._negatives(),
        )


def strictly_before(vertices: SamplerConfig) -> FanoutSampling:
    """Return the options of a sampler of messages along edges before the predicted one.

    ConfigError: its bound is inclusive, so that a predicted edge would tell that it exists.
    """
    sampler = before_edges(vertices)
    if sampler.bound != "strict":
        raise ConfigError(
            f"sampler.bound={sampler.bound}: expected strict with task.split=time, as messages "
            "along an edge tell that it exists"
        )
    return sampler


def check_destinations(
    split: TimedEdgeSplit, candidates: Candidates, option: str
) -> TimedEdgeSplit:
    """Return ``split``, whose edges lead to candidates; edges of undirected graphs are turned.

    ConfigError, which names ``option``: an edge leads to another vertex.
    """
    parts: dict[str, Any] = {}
    for part in PARTS:
        edges = np.array(getattr(split, part))
        is_candidate = candidates.kinds[edges] >= 0
        is_turned = split.undirected & is_candidate[:, 0] & ~is_candidate[:, 1]
        edges[is_turned] = edges[is_turned][:, ::-1]
        missing = candidates.kinds[edges[:, 1]] < 0
        if missing.any():
            first = edges[int(missing.argmax()), 1]
            raise ConfigError(
                f"{option}: expected all destinations of predicted edges, {int(missing.sum())} of "
                f"{len(edges)} {part} edges lead to another vertex, such as number {first}"
            )
        parts[part] = edges
    return replace(split, **parts)
