"""Minimum edge cut by Mt-KaHyPar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.apart import partition_apart, require
from gnnscale.partition.edge_cut.balance import LIMITS, balances, max_weights
from gnnscale.partition.edge_cut.cost import forecast_mtkahypar
from gnnscale.partition.edge_cut.multilevel import Level, cut_multilevel
from gnnscale.partition.edge_cut.undirected import make_undirected
from gnnscale.partition.partitioner import Forecast, PartitionerConfig, check_num_parts
from gnnscale.partition.parts import Parts

__all__ = ["MtKaHyPar", "cut_by_mtkahypar"]


@dataclass(frozen=True, kw_only=True)
class MtKaHyPar(PartitionerConfig):
    """Minimum edge cut (Gottesbüren et al., ALENEX 2021), balanced in three weights.

    Mt-KaHyPar balances one weight: the mean of a vertex's shares of all vertices, edges and
    training vertices, and for small graphs once more its degree. Each of the three is then balanced
    by a refinement of our own. The library is given small graphs as they are, and of large ones
    what coarsening leaves.
    """

    algorithm: ClassVar[str] = "mtkahypar"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts``."""
        require("mtkahypar", "partitioner=mtkahypar")
        check_num_parts(graph, num_parts)
        return cut_by_mtkahypar(graph, np.ones(num_parts), num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take."""
        return forecast_mtkahypar(graph, num_threads)


def cut_by_mtkahypar(
    graph: Graph,
    shares: NDArray[np.float64],
    *,
    limits: tuple[float, ...] = LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` into parts of the sizes that ``shares`` ``[num_parts]`` tell.

    Args:
        graph: the graph.
        shares: of each part, of the whole; of any sum.
        limits: what parts may have of vertices, edges and training vertices over their share.
        num_threads: threads to use; the result does not depend on it.
    """
    undirected = make_undirected(graph, "Mt-KaHyPar", num_threads=num_threads)
    most = max_weights(undirected.weights, shares, limits)
    peaks = [0]

    def cut(level: Level, weights: NDArray[np.int64]) -> NDArray[np.int32]:
        owner, peak = partition_apart(
            *("mtkahypar", level.indptr, level.indices),
            vertex_weights=weights,
            edge_weights=level.edge_weights,
            num_parts=len(shares),
            num_threads=num_threads,
        )
        peaks.append(peak)
        return owner

    found = cut_multilevel(undirected, most, cut, num_threads=num_threads)
    notes = [*undirected.notes, f"Mt-KaHyPar's process held {max(peaks) / 2**20:,.0f} MiB"]
    if not found.within:
        largest = max(balances(undirected.weights, found.owner, len(shares)))
        notes.append(f"no closer balance was found than {largest:.3f}")
    return Parts(num_parts=len(shares), owner=found.owner.astype(np.int16), notes=tuple(notes))
