"""Legion's hierarchical partitioning: an edge cut between NVLink cliques, a hash within each."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gnnscale.core import ConfigError, check_choice
from gnnscale.core.config.untrusted import names
from gnnscale.graph import Graph
from gnnscale.partition.base import Forecast, PartitionerConfig, Parts, check_num_parts
from gnnscale.partition.edge_cut.libraries import CUTTERS, chosen_cutter, cut, forecast_cut
from gnnscale.partition.nvlink import MACHINES, THIS_MACHINE, disjoint_cliques, find_links
from gnnscale.partition.simple import splitmix64
from gnnscale.sampling.seed_order import labeled_vertices

_OPTION = "partitioner.edge_cut"
#: Largest size of a clique's part over its share of the vertices and edges.
_LIMIT = 1.05
#: Largest relative deviation of a GPU's training vertices from the mean.
_TRAIN_SLACK = 0.02
#: Bytes per vertex of hashing.
_VERTEX_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class Hierarchical(PartitionerConfig):
    """Hierarchical partitioning (Legion, section 4.1, S1 to S4).

    S1 finds disjoint cliques of GPUs that NVLink joins. S2 cuts the graph into one part per clique,
    sized by the number of GPUs. S3 hashes the vertices of each part into one tablet per GPU of the
    clique. S4 assigns a tablet to each GPU. Training vertices and other vertices are hashed
    separately, into tablets of equal size.

    Attributes:
        nvlink: ``dgx_v100``, ``siton``, ``dgx_a100``, or a file with a matrix of links; ``nvml`` or
            None for the links of this machine's GPUs. If there are more GPUs than parts, the first
            GPUs are used.
        edge_cut: tool of S2: ``mtkahypar``, ``metis``, or ``auto`` for the first of them that is
            installed.
    """

    nvlink: str | None = field(
        default=None, metadata=names("place", keywords=(*MACHINES, THIS_MACHINE))
    )
    edge_cut: str = "auto"

    algorithm: ClassVar[str] = "hierarchical"
    reads_types: ClassVar[bool] = True
    depends_on_hops: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(_OPTION, self.edge_cut, CUTTERS)

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` among the first ``num_parts`` GPUs of the link matrix, by cliques."""
        cliques = self._cliques(num_parts)
        check_num_parts(graph, num_parts)
        clique_of = np.zeros(graph.num_vertices, np.int16)
        notes: tuple[str, ...] = ()
        if len(cliques) > 1:
            # The slack divided by the cliques, so that the smallest clique is within it, too.
            limits = (_LIMIT, _LIMIT, 1 + _TRAIN_SLACK / len(cliques))
            sizes = np.array([len(clique) for clique in cliques], np.float64)
            cutter = chosen_cutter(self.edge_cut, f"{_OPTION}={self.edge_cut}")
            clique_parts = cut(cutter, graph, sizes, limits=limits, num_threads=num_threads)
            assert clique_parts.owner is not None
            clique_of, notes = clique_parts.owner, clique_parts.notes
        trains = np.zeros(graph.num_vertices, np.bool_)
        trains[labeled_vertices(graph, "train")] = True
        owner = np.empty(graph.num_vertices, np.int16)
        for number, clique in enumerate(cliques):
            for kind in (trains, ~trains):
                vertices = np.flatnonzero((clique_of == number) & kind)
                # Dealt in the order of hashes: a hash modulo K would not give equal tablets.
                dealt = vertices[np.argsort(splitmix64(vertices.astype(np.uint64)))]
                for gpu, tablet in zip(clique, np.array_split(dealt, len(clique)), strict=True):
                    owner[tablet] = gpu
        return Parts(num_parts=num_parts, owner=owner, notes=(_described(cliques), *notes))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``."""
        hashed = _VERTEX_BYTES * graph.num_vertices
        if len(self._cliques(num_parts)) == 1:
            return Forecast(memory_bytes=hashed, seconds=1e-6 * graph.num_vertices)
        cutter = chosen_cutter(self.edge_cut, f"{_OPTION}={self.edge_cut}")
        return forecast_cut(cutter, graph, num_threads=num_threads)

    def _cliques(self, num_parts: int) -> tuple[tuple[int, ...], ...]:
        links = find_links(self.nvlink)
        if num_parts > len(links):
            machine = "this machine" if self.nvlink in (None, THIS_MACHINE) else self.nvlink
            raise ConfigError(
                f"partitioner.num_parts={num_parts}: expected at most {len(links)}, a part for "
                f"each GPU of {machine}"
            )
        return disjoint_cliques(links[:num_parts, :num_parts])


def _described(cliques: tuple[tuple[int, ...], ...]) -> str:
    sizes = sorted({len(clique) for clique in cliques}, reverse=True)
    members = ", ".join("-".join(str(gpu) for gpu in clique) for clique in cliques)
    return f"Kc={len(cliques)}, Kg={'/'.join(map(str, sizes))}: cliques {members}"
