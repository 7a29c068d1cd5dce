"""Edge-cut partitioners: METIS, Mt-KaHyPar, and the best installed tool."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gnnscale.core import ConfigError, Float64Array, Int32Array, Int64Array
from gnnscale.graph import Graph
from gnnscale.partition.base import Forecast, PartitionerConfig, Parts, check_num_parts
from gnnscale.partition.edge_cut import multilevel
from gnnscale.partition.edge_cut.subprocess import TOOLS, is_installed, require, run_tool

#: Edges to sample for the share of edges without a reverse.
_SAMPLED = 1000
#: Bytes of an idle child process by tool: Mt-KaHyPar, pymetis, DGL.
_CHILD_BYTES = {"mtkahypar": 62_000_000, "metis": 45_000_000, "dgl": 293_000_000}
#: Bytes per vertex of this process: weights, owners and clusters; and those of clustering and
#: refinement, which do not coincide with the coarse graphs.
_VERTEX_BYTES = 40
_SCRATCH_BYTES = 130
#: Total size of the coarse graphs, over the largest; two 8-byte entries per edge.
_COARSE = 3
_COARSE_BYTES = 16
#: Bytes of Mt-KaHyPar's process per square root of undirected edges, up to ``SMALL_EDGES``.
_MTKAHYPAR_BYTES = 140_000
#: Bytes of METIS's process per vertex and undirected edge. pymetis has 64-bit counts; graphs with
#: strong communities take half as much.
_METIS_BYTES = {"metis": (100, 280), "dgl": (300, 80)}
#: Seconds: Mt-KaHyPar per square root of undirected edges; per undirected edge, a refinement cycle
#: inside and outside of the CPU cache, and METIS.
_MTKAHYPAR_S = 6e-3
_CYCLE_S = 0.25e-6
_LARGE_CYCLE_S = 2e-6
_METIS_S = 1.8e-6


def one_way_share(graph: Graph) -> float:
    """Return the approximate share of edges without a reverse, from a sample of edges.

    The reverse may be of another type.
    """
    graph = graph.without_types()
    if not graph.num_edges:
        return 0.0
    edges = np.linspace(0, graph.num_edges - 1, min(_SAMPLED, graph.num_edges), dtype=np.int64)
    dst = np.searchsorted(graph.indptr, edges, side="right") - 1
    missing = 0
    for source, vertex in zip(graph.indices[edges], dst, strict=True):
        is_valid = 0 <= source < graph.num_vertices
        bounds = graph.indptr[source : source + 2] if is_valid else (0, 0)
        missing += not np.any(graph.indices[slice(*bounds)] == vertex)
    return missing / len(edges)


def _undirected(graph: Graph) -> tuple[int, int]:
    """Estimate for ``graph`` with reverse edges added: undirected edges, and bytes of this copy.

    The bytes are 0 if no reverse is missing.
    """
    share = one_way_share(graph)
    entries = int(graph.num_edges * (1 + share))
    copied = entries * graph.indices.itemsize + graph.indptr.nbytes if share else 0
    return entries // 2, copied


def forecast_mtkahypar(graph: Graph, num_threads: int) -> Forecast:
    """Return the predicted memory, subprocess included, and duration of ``MtKaHyPar.assign``."""
    edges, copied = _undirected(graph)
    weights = 8 * len(multilevel.balanced_types(graph))
    ours = graph.topology_bytes + copied + (_VERTEX_BYTES + weights) * graph.num_vertices
    levels = _COARSE * _COARSE_BYTES * min(edges, multilevel.edge_budget(edges))
    scratch = _SCRATCH_BYTES * graph.num_vertices
    library = _CHILD_BYTES["mtkahypar"]
    cycles = multilevel.num_cycles(2 * edges) * edges * 2 / min(num_threads, 2)
    if edges <= multilevel.SMALL_EDGES:
        library += int(_MTKAHYPAR_BYTES * math.sqrt(edges))
        more = max(library, levels, scratch)
        seconds = multilevel.NUM_STARTS * (_MTKAHYPAR_S * math.sqrt(edges) + 2 * _CYCLE_S * cycles)
    else:
        more = max(library + levels, scratch)
        seconds = _LARGE_CYCLE_S * cycles
    return Forecast(memory_bytes=ours + more, seconds=0.5 + seconds)


def forecast_metis(graph: Graph, tool: str) -> Forecast:
    """Return the predicted memory, subprocess included, and duration of ``Metis.assign``."""
    edges, copied = _undirected(graph)
    per_vertex, per_edge = _METIS_BYTES[tool]
    weights = 8 * len(multilevel.balanced_types(graph))
    ours = graph.topology_bytes + copied + (56 + weights) * graph.num_vertices
    child = _CHILD_BYTES[tool] + per_vertex * graph.num_vertices + per_edge * edges
    return Forecast(memory_bytes=ours + child, seconds=2 + _METIS_S * edges)


@dataclass(frozen=True, kw_only=True)
class Metis(PartitionerConfig):
    """METIS (Karypis and Kumar, SISC 1998), constrained as in DistDGL (HitGNN, Table I).

    DGL's METIS balances training vertices, other vertices, the in-degrees of both, and the vertices
    of each type. Without DGL, pymetis balances one weight that combines vertices, in-degrees and
    training vertices; single vertices then move until all are balanced.
    """

    algorithm: ClassVar[str] = "metis"
    reads_types: ClassVar[bool] = True
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts`` balanced parts by METIS; hops have no effect."""
        tool = metis_tool()
        check_num_parts(graph, num_parts)
        return cut_by_metis(graph, np.ones(num_parts), tool=tool, num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``."""
        return forecast_metis(graph, metis_tool())


def metis_tool(option: str = "partitioner=metis") -> str:
    """Return the installed METIS: ``dgl``, or otherwise ``metis`` of pymetis.

    ConfigError: neither is installed; ``option`` is the option that needs METIS, for the message.
    """
    for tool in ("dgl", "metis"):
        if is_installed(tool):
            return tool
    raise ConfigError(
        f"{option}: expected DGL or pymetis, neither is installed; {TOOLS['metis'][1]}"
    )


def cut_by_metis(
    graph: Graph,
    shares: Float64Array,
    *,
    tool: str,
    limits: tuple[float, ...] = multilevel.LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` into parts with sizes proportional to ``shares`` ``[num_parts]``, of any sum.

    METIS, of the tool ``dgl`` or ``metis``, makes equal parts on one thread; vertices move
    afterwards. ``limits`` are the largest numbers of vertices (of all types, and of each), edges
    and training vertices of a part, as multiples of its share. The result does not depend on
    ``num_threads``.
    """
    undirected = multilevel.make_undirected(graph, "METIS", num_threads=num_threads)
    weights = undirected.weights
    if tool == "dgl":
        # The constraints of DGL's METIS for a training mask and edges, and one for each type.
        _, degrees, is_train, *types = weights.T
        is_other = 1 - is_train
        weights = np.stack(
            [is_other, is_train, degrees * is_other, degrees * is_train, *types], axis=1
        )
    else:
        weights = weights[:, : multilevel.NUM_COMMON]
    answer = run_tool(
        *(tool, undirected.indptr, undirected.indices),
        vertex_weights=weights,
        num_parts=len(shares),
        num_threads=num_threads,
    )
    del weights
    allowed = multilevel.max_weights(undirected.weights, shares, limits)
    refined = multilevel.improve(
        undirected, answer.owner, allowed, num_rounds=0, num_threads=num_threads
    )
    constraints = "several constraints, by DGL" if tool == "dgl" else "one constraint, by pymetis"
    peak = f"{answer.peak_bytes / 2**20:,.0f} MiB"
    notes = [*undirected.notes, f"METIS with {constraints}; its process held {peak}"]
    if moved := int((refined.owner != answer.owner).sum()):
        notes.append(f"moved for balance: {moved:,} vertices")
    return _as_parts(undirected, refined, len(shares), notes)


def _as_parts(
    graph: multilevel.Undirected, refined: multilevel.RefinedParts, num_parts: int, notes: list[str]
) -> Parts:
    if not refined.within:
        largest = max(multilevel.balances(graph.weights, refined.owner, num_parts))
        notes.append(f"no closer balance was found than {largest:.3f}")
    return Parts(num_parts=num_parts, owner=refined.owner.astype(np.int16), notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class MtKaHyPar(PartitionerConfig):
    """Minimum edge cut (Gottesbüren et al., ALENEX 2021), balanced in three weights or more.

    Mt-KaHyPar balances one weight: the mean of a vertex's shares of all vertices, edges and
    training vertices; for small graphs a second cut balances its degree. The refinement of this
    package then balances each of the three weights, and the vertices of each of the five largest
    types. The library gets small graphs unchanged, and large graphs coarsened.
    """

    algorithm: ClassVar[str] = "mtkahypar"
    reads_types: ClassVar[bool] = True
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts`` balanced parts by Mt-KaHyPar; hops have no effect."""
        require("mtkahypar", "partitioner=mtkahypar")
        check_num_parts(graph, num_parts)
        return cut_by_mtkahypar(graph, np.ones(num_parts), num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``."""
        return forecast_mtkahypar(graph, num_threads)


def cut_by_mtkahypar(
    graph: Graph,
    shares: Float64Array,
    *,
    limits: tuple[float, ...] = multilevel.LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` by Mt-KaHyPar into parts with sizes proportional to ``shares``, of any sum.

    ``limits`` are the largest numbers of vertices, edges and training vertices of a part, as
    multiples of its share.
    """
    undirected = multilevel.make_undirected(graph, "Mt-KaHyPar", num_threads=num_threads)
    allowed = multilevel.max_weights(undirected.weights, shares, limits)
    peaks = [0]

    def cut(level: multilevel.Level, weights: Int64Array) -> Int32Array:
        owner, peak = run_tool(
            *("mtkahypar", level.indptr, level.indices),
            vertex_weights=weights,
            edge_weights=level.edge_weights,
            num_parts=len(shares),
            num_threads=num_threads,
        )
        peaks.append(peak)
        return owner

    refined = multilevel.cut_multilevel(undirected, allowed, cut, num_threads=num_threads)
    notes = [*undirected.notes, f"Mt-KaHyPar's process held {max(peaks) / 2**20:,.0f} MiB"]
    return _as_parts(undirected, refined, len(shares), notes)


#: Values of ``edge_cut`` options.
CUTTERS = ("auto", "mtkahypar", "metis")


@dataclass(frozen=True, kw_only=True)
class EdgeCut(PartitionerConfig):
    """Minimum edge cut by Mt-KaHyPar if it is installed, otherwise by METIS."""

    algorithm: ClassVar[str] = "edge_cut"
    reads_types: ClassVar[bool] = True
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Cut ``graph`` into ``num_parts`` balanced parts by an installed tool; hops are unused."""
        cutter = chosen_cutter("auto", "partitioner=edge_cut")
        check_num_parts(graph, num_parts)
        return cut(cutter, graph, np.ones(num_parts), num_threads=num_threads)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``."""
        cutter = chosen_cutter("auto", "partitioner=edge_cut")
        return forecast_cut(cutter, graph, num_threads=num_threads)


def chosen_cutter(cutter: str, option: str) -> str:
    """Return ``cutter``, or for ``auto`` the first installed of ``mtkahypar`` and ``metis``.

    ConfigError: not installed; ``option`` is for its message.
    """
    if cutter == "mtkahypar":
        require("mtkahypar", option)
    elif cutter == "metis":
        metis_tool(option)
    elif is_installed("mtkahypar"):
        return "mtkahypar"
    elif is_installed("dgl") or is_installed("metis"):
        return "metis"
    else:
        raise ConfigError(
            f"{option}: expected Mt-KaHyPar or METIS, neither is installed; {TOOLS['mtkahypar'][1]}"
        )
    return cutter


def cut(
    cutter: str,
    graph: Graph,
    shares: Float64Array,
    *,
    limits: tuple[float, ...] = multilevel.LIMITS,
    num_threads: int,
) -> Parts:
    """Cut ``graph`` by ``cutter`` into parts with sizes proportional to ``shares``, of any sum.

    ``limits`` are the largest numbers of vertices, edges and training vertices of a part, as
    multiples of its share.
    """
    if cutter == "mtkahypar":
        parts = cut_by_mtkahypar(graph, shares, limits=limits, num_threads=num_threads)
        return replace(parts, notes=("edge cut by Mt-KaHyPar", *parts.notes))
    parts = cut_by_metis(graph, shares, tool=metis_tool(), limits=limits, num_threads=num_threads)
    return replace(parts, notes=("edge cut by METIS", *parts.notes))


def forecast_cut(cutter: str, graph: Graph, *, num_threads: int) -> Forecast:
    """Return the predicted memory and duration of ``cut``."""
    if cutter == "mtkahypar":
        return forecast_mtkahypar(graph, num_threads)
    return forecast_metis(graph, metis_tool())
