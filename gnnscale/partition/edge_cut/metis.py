"""Minimum edge cut by METIS, as DistDGL partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.apart import TOOLS, is_installed, partition_apart
from gnnscale.partition.edge_cut.balance import LIMITS, balances, improve, max_weights
from gnnscale.partition.edge_cut.cost import forecast_metis
from gnnscale.partition.edge_cut.undirected import Undirected, make_undirected
from gnnscale.partition.partitioner import Forecast, PartitionerConfig, check_num_parts
from gnnscale.partition.parts import Parts

__all__ = ["Metis", "cut_by_metis"]


@dataclass(frozen=True, kw_only=True)
class Metis(PartitionerConfig):
    """METIS (Karypis and Kumar, SISC 1998) with several constraints, as DistDGL (HitGNN, Table I).

    DGL's METIS balances training vertices, others, and the in-degrees of both. pymetis, where DGL
    is not installed, balances one weight that combines them; single vertices are then moved until
    each is balanced.
    """

    algorithm: ClassVar[str] = "metis"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts``."""
        tool = metis_tool()
        check_num_parts(graph, num_parts)
        return cut_by_metis(graph, np.ones(num_parts), tool=tool, num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take."""
        return forecast_metis(graph, metis_tool())


def metis_tool() -> str:
    """Return which METIS is installed: ``dgl``, or else ``metis`` of pymetis.

    Raises:
        ConfigError: neither is; with what to do.
    """
    for tool in ("dgl", "metis"):
        if is_installed(tool):
            return tool
    raise ConfigError(
        f"partitioner=metis: needs DGL or pymetis, neither is installed; {TOOLS['metis'][1]}"
    )


def cut_by_metis(
    graph: Graph,
    shares: NDArray[np.float64],
    *,
    tool: str,
    limits: tuple[float, ...] = LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` into parts of the sizes that ``shares`` ``[num_parts]`` tell.

    Args:
        graph: the graph.
        shares: of each part, of the whole; of any sum. METIS makes equal parts, vertices are moved
            afterwards.
        tool: ``dgl`` or ``metis``.
        limits: what parts may have of vertices, edges and training vertices over their share.
        num_threads: threads to use; METIS itself has one.
    """
    undirected = make_undirected(graph, "METIS", num_threads=num_threads)
    weights = _as_distdgl(undirected) if tool == "dgl" else undirected.weights
    answer = partition_apart(
        *(tool, undirected.indptr, undirected.indices),
        vertex_weights=weights,
        num_parts=len(shares),
        num_threads=num_threads,
    )
    del weights
    most = max_weights(undirected.weights, shares, limits)
    found = improve(undirected, answer.owner, most, num_rounds=0, num_threads=num_threads)
    constraints = "several constraints, by DGL" if tool == "dgl" else "one constraint, by pymetis"
    held = f"{answer.peak_bytes / 2**20:,.0f} MiB"
    notes = [*undirected.notes, f"METIS with {constraints}; its process held {held}"]
    if moved := int((found.owner != answer.owner).sum()):
        notes.append(f"moved for balance: {moved:,} vertices")
    if not found.within:
        largest = max(balances(undirected.weights, found.owner, len(shares)))
        notes.append(f"no closer balance was found than {largest:.3f}")
    return Parts(num_parts=len(shares), owner=found.owner.astype(np.int16), notes=tuple(notes))


def _as_distdgl(graph: Undirected) -> NDArray[np.int64]:
    """Return the constraints that ``dgl.metis_partition_assignment`` makes of a training mask.

    With ``balance_ntypes=mask, balance_edges=True``: other vertices, training vertices, and the
    in-degrees of each, ``[num_vertices, 4]``.
    """
    _, degrees, trains = graph.weights.T
    others = 1 - trains
    return np.stack([others, trains, degrees * others, degrees * trains], axis=1)
