"""Minimum edge cut by the best partitioner that is installed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.apart import TOOLS, is_installed, require
from gnnscale.partition.edge_cut.balance import LIMITS
from gnnscale.partition.edge_cut.cost import forecast_metis, forecast_mtkahypar
from gnnscale.partition.edge_cut.metis import cut_by_metis, metis_tool
from gnnscale.partition.edge_cut.mtkahypar import cut_by_mtkahypar
from gnnscale.partition.partitioner import Forecast, PartitionerConfig, check_num_parts
from gnnscale.partition.parts import Parts

__all__ = ["CUTTERS", "EdgeCut", "chosen_cutter", "cut", "forecast_cut"]

#: What ``edge_cut`` options may say.
CUTTERS = ("auto", "mtkahypar", "metis")


@dataclass(frozen=True, kw_only=True)
class EdgeCut(PartitionerConfig):
    """Minimum edge cut by Mt-KaHyPar where it is installed, else by METIS; the notes say which."""

    algorithm: ClassVar[str] = "edge_cut"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts``."""
        cutter = chosen_cutter("auto", "partitioner=edge_cut")
        check_num_parts(graph, num_parts)
        return cut(cutter, graph, np.ones(num_parts), num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take."""
        cutter = chosen_cutter("auto", "partitioner=edge_cut")
        return forecast_cut(cutter, graph, num_threads=num_threads)


def chosen_cutter(wanted: str, option: str) -> str:
    """Return ``mtkahypar`` or ``metis``.

    Args:
        wanted: one of ``CUTTERS``; ``auto`` is the first of them that is installed.
        option: what asks for it, for the message.

    Raises:
        ConfigError: what is wanted is not installed; with what to do.
    """
    if wanted == "mtkahypar":
        require("mtkahypar", option)
    elif wanted == "metis":
        metis_tool()
    elif is_installed("mtkahypar"):
        return "mtkahypar"
    elif is_installed("dgl") or is_installed("metis"):
        return "metis"
    else:
        raise ConfigError(
            f"{option}: needs Mt-KaHyPar or METIS, neither is installed; {TOOLS['mtkahypar'][1]}"
        )
    return wanted


def cut(
    cutter: str,
    graph: Graph,
    shares: NDArray[np.float64],
    *,
    limits: tuple[float, ...] = LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` by ``mtkahypar`` or ``metis``, as these do; the notes begin with which."""
    if cutter == "mtkahypar":
        parts = cut_by_mtkahypar(graph, shares, limits=limits, num_threads=num_threads)
        return replace(parts, notes=("edge cut by Mt-KaHyPar", *parts.notes))
    parts = cut_by_metis(graph, shares, tool=metis_tool(), limits=limits, num_threads=num_threads)
    return replace(parts, notes=("edge cut by METIS", *parts.notes))


def forecast_cut(cutter: str, graph: Graph, *, num_threads: int) -> Forecast:
    """Return what ``cut`` will take."""
    if cutter == "mtkahypar":
        return forecast_mtkahypar(graph, num_threads)
    return forecast_metis(graph, metis_tool())
