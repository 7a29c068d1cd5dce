"""Generated graphs: a degree-corrected planted partition, and R-MAT.

The edges of an R-MAT graph in slices: drawn, made distinct and chosen on disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale import ops
from gnnscale.core import ConfigError, check_range, errors, hardware, progress, track
from gnnscale.core.artifact import files
from gnnscale.core.types import Float32Array, Int32Array
from gnnscale.data import base
from gnnscale.data import structure_only as structure
from gnnscale.data.storage import edge_spool
from gnnscale.data.storage import writer as store
from gnnscale.data.storage.csc_builder import sorted_lists
from gnnscale.graph.dtypes import row_bytes
from gnnscale.graph.store_format import MAX_FEATURES, vertex_dtype

_SLICE_EDGES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RmatDraws:
    """The parameters. The edges are those of ``ops.rmat_edges``, whatever the memory."""

    num_vertices: int  #: number of vertices
    num_edges: int  #: number of distinct undirected edges
    a: float  #: probability of the quadrant small id to small id
    b: float  #: small to large
    c: float  #: large to small
    seed: int  #: fixes the edges

    def slices(self, folder: Path, *, memory_bytes: int) -> Iterator[tuple[Int32Array, Int32Array]]:
        """Yield all edges in slices, ``(src, dst)`` with ``src < dst``, in no order.

        Draws take up to 16 bytes per edge in ``folder``, sorting them ``memory_bytes`` and 20 bytes
        per vertex.

        Raises:
            ConfigError: nearly all draws repeat edges.
        """
        distinct = edge_spool.EdgeFile(folder / "distinct", vertex_dtype(self.num_vertices))
        try:
            num_draws = 0
            # Hubs are hit again and again: draw until enough edges are distinct.
            while distinct.num_edges < self.num_edges:
                missing = self.num_edges - distinct.num_edges
                more = missing + missing // 8 + 1024
                found = self._draw(distinct, num_draws, more, folder, memory_bytes)
                # Where most draws repeat edges, the last ones would take for ever to find.
                if found < more // 10_000 + 1:
                    raise errors.ConfigError(
                        f"dataset.a={self.a}, b={self.b}, c={self.c}: they leave too few "
                        f"different edges, dataset.num_edges={self.num_edges} are asked for"
                    )
                num_draws += more
            yield from self._choose(distinct)
        finally:
            distinct.close()

    def _draw(
        self,
        distinct: edge_spool.EdgeFile,
        first: int,
        num_draws: int,
        folder: Path,
        memory_bytes: int,
    ) -> int:
        """Add draws to the sorted distinct edges; return how many are new."""
        before = distinct.num_edges
        # A part of it, since a range's lists are there twice, beside slices of draws.
        spool = edge_spool.EdgeSpool(
            folder,
            num_vertices=self.num_vertices,
            undirected=False,
            self_loops="remove",
            memory_bytes=memory_bytes // 4,
        )
        try:
            for large, small in distinct.take_last(before):
                spool.add(large, small)
            with progress.track("drawing edges", num_draws, "edges") as advance:
                for start in range(0, num_draws, _SLICE_EDGES):
                    count = min(_SLICE_EDGES, num_draws - start)
                    small, large = ops.rmat_draws(
                        self.num_vertices,
                        *(self.a, self.b, self.c),
                        *(self.seed, first + start, count, hardware.usable_cores()),
                    )
                    spool.add(large, small)
                    advance(count)
            for part in sorted_lists(spool, True):
                degrees = np.diff(part.offsets)
                ids = np.arange(part.first, part.first + len(degrees), dtype=part.lists.dtype)
                distinct.append(part.lists, np.repeat(ids, degrees))
        finally:
            spool.close()
        return distinct.num_edges - before

    def _choose(self, distinct: edge_spool.EdgeFile) -> Iterator[tuple[Int32Array, Int32Array]]:
        """Drop the surplus evenly over the sorted edges, and number the vertices at random."""
        number = ops.rmat_numbering(self.num_vertices, self.seed)
        known, last = distinct.num_edges, self.num_edges
        for large, small in distinct.take_last(known):
            # Edge i is the one at place i * known // num_edges; these begin at `place`.
            place = distinct.num_edges
            first = -(-place * self.num_edges // known)
            from_place = first * known - place * self.num_edges
            chosen = (from_place + np.arange(last - first) * known) // self.num_edges
            last = first
            ends: tuple[Any, Any] = number[small[chosen]], number[large[chosen]]
            yield np.minimum(*ends), np.maximum(*ends)


#: Vertices of a generated graph, whose ids are drawn as int32, and edges drawn.
_MAX_VERTICES = 2**31 - 1
_MAX_EDGES = 2**40
#: Classes of a planted partition, which keeps a matrix of all pairs.
_MAX_COMMUNITIES = 4096
#: Entries of a table of scores, a row for each vertex, that is made at once.
_SCORES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class SyntheticGraph(base.Dataset):
    """Base of the graphs that are drawn, in which every edge has its reverse."""

    undirected: bool = True

    generated: ClassVar[bool] = True

    def raw_files(self) -> Sequence[Path]:
        """Return nothing: the graph is drawn."""
        return ()


@dataclass(frozen=True, kw_only=True)
class PlantedPartition(SyntheticGraph):
    """Communities that are the classes, joined by a degree-corrected block model.

    After Karrer & Newman (2011): one end of an edge is drawn by weight from all vertices, the
    other by weight from the same community with probability ``within``, else from all. A vertex's
    features are its community's centroid plus noise. They say little on their own; the
    neighbours' features say the rest.

    ``attainable_accuracy`` in ``meta.json`` is the accuracy of an oracle that knows the
    generator's parameters and the true communities of all neighbours: nothing that has to learn
    from features does better.

    Attributes:
        num_vertices: number of vertices.
        num_edges: undirected edges drawn; a few fall together.
        num_classes: number of communities, of equal size.
        num_features: length of the features; 0 for a graph without.
        within: probability that an edge is drawn inside a community.
        signal: half the typical distance between two centroids, in standard deviations.
        exponent: of the power law that the weights, hence the degrees, follow.
        seed: fixes everything but the split.
    """

    split: str = "random"
    train_fraction: float = 0.3
    num_vertices: int = 100_000
    num_edges: int = 1_000_000
    num_classes: int = 16
    num_features: int = 64
    within: float = 0.5
    signal: float = 1.0
    exponent: float = 2.5
    seed: int = 0

    has_split: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("dataset.num_classes", self.num_classes, 2, _MAX_COMMUNITIES)
        check_range("dataset.num_vertices", self.num_vertices, 2 * self.num_classes, _MAX_VERTICES)
        check_range("dataset.num_edges", self.num_edges, 1, _MAX_EDGES)
        check_range("dataset.num_features", self.num_features, 0, MAX_FEATURES)
        check_range("dataset.seed", self.seed, 0, 2**63 - 1)
        check_range("dataset.within", self.within, 0, 1)
        check_range("dataset.signal", self.signal, 0, 1e6)
        if not 2 < self.exponent <= 1e6:
            raise ConfigError(
                f"dataset.exponent={self.exponent}: must be above 2 and at most 1,000,000"
            )

    def read(self, writer: store.StoreWriter) -> None:
        """Draw communities, weights, edges and features."""
        self._check_room(writer)
        generator = np.random.Generator(np.random.Philox([self.seed, 0]))
        turns = np.arange(self.num_vertices, dtype=np.int32) % self.num_classes
        community = generator.permutation(turns)
        # A Pareto variable; bounded, since nothing keeps a single hub from most of the edges.
        weight = (1 - generator.random(self.num_vertices)) ** (-1 / (self.exponent - 1))
        bounded = np.minimum(weight, np.sqrt(self.num_vertices)).astype(np.float32)
        writer.set_num_vertices(self.num_vertices, source=self.name)
        with track("drawing edges"):
            src, dst = ops.planted_partition_edges(
                community, bounded, self.num_edges, self.within, self.seed
            )
        writer.add_edges(src, dst, source=self.name)
        del src, dst
        writer.set_labels(community, num_classes=self.num_classes, source=self.name)
        centroids = structure.class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        structure.write_made_features(
            writer, community, centroids, seed=self.seed, source=self.name
        )
        writer.notes["attainable_accuracy"] = self._attainable(writer, bounded, centroids)

    def _check_room(self, writer: store.StoreWriter) -> None:
        """Refuse edges and their copies, or a slice of the oracle's scores, that do not fit."""
        rows = min(1.0, _SCORES / self.num_classes / self.num_vertices)
        memory = 64 * self.num_vertices + int(max(24, 48 * rows) * self.num_edges)
        memory += 32 * self.num_classes**2 + 8 * self.num_classes * self.num_features
        _check_space(self, writer, memory)

    def _attainable(
        self, writer: store.StoreWriter, weight: Float32Array, centroids: Float32Array
    ) -> float:
        """Accuracy of the oracle: Bayes' rule on own features and neighbours' communities."""
        indptr, indices = writer.build_topology()
        community = writer.labels
        share = np.bincount(community, weight, self.num_classes) / weight.sum()
        chance = (1 - self.within) * share + self.within * np.eye(self.num_classes)
        evidence = np.log(np.maximum(chance, 1e-300)).T.astype(np.float32)
        correct = first = 0
        step = _SCORES // self.num_classes
        for rows in structure.class_features(community, centroids, seed=self.seed):
            for start in range(0, len(rows), step):
                score = rows[start : start + step] @ centroids.T - (centroids**2).sum(axis=1) / 2
                part = slice(first + start, first + start + len(score))
                offsets = indptr[part.start : part.stop + 1]
                owner = np.repeat(np.arange(len(score)), np.diff(offsets))
                places = owner * self.num_classes + community[indices[offsets[0] : offsets[-1]]]
                counts = np.bincount(places, minlength=len(score) * self.num_classes)
                score += counts.reshape(-1, self.num_classes).astype(np.float32) @ evidence
                correct += int((score.argmax(axis=1) == community[part]).sum())
            first += len(rows)
        return correct / self.num_vertices


@dataclass(frozen=True, kw_only=True)
class RMat(SyntheticGraph, structure.Structure):
    """A recursive-matrix graph (Chakrabarti et al., 2004) with Graph500's parameters.

    Vertices are numbered at random. Every undirected edge is stored both ways, no edge is drawn
    twice, and there are no loops. Labels and features are made as for any structure. The default
    sizes are those of ogbn-products, and so is the kind of its split, which is by sales: the most
    popular vertices, here those with most neighbours, train and the next ones validate.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of undirected edges.
        a: probability of the quadrant small id to small id.
        b: small to large.
        c: large to small; 1 - a - b - c remains for large to large.
    """

    drop_duplicates: bool = False
    num_vertices: int = 2_449_029
    num_edges: int = 61_859_140
    num_features: int = 100
    num_classes: int = 47
    signal: float = 1.5
    train_fraction: float = 196_615 / 2_449_029
    valid_fraction: float = 39_323 / 2_449_029
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    split: str = "published"

    has_split: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("dataset.num_vertices", self.num_vertices, 2, _MAX_VERTICES)
        pairs = self.num_vertices * (self.num_vertices - 1) // 2
        if not 1 <= self.num_edges <= min(pairs // 2, _MAX_EDGES):
            raise ConfigError(
                f"dataset.num_edges={self.num_edges}: allowed are 1 to "
                f"{min(pairs // 2, _MAX_EDGES)}, half of all pairs or 2^40"
            )
        probabilities = (self.a, self.b, self.c)
        # Written so that NaN is refused too.
        if not (all(each >= 0 for each in probabilities) and sum(probabilities) <= 1):
            raise ConfigError(
                f"dataset.a={self.a}, b={self.b}, c={self.c}: "
                "probabilities, with a sum of at most 1"
            )

    def read(self, writer: store.StoreWriter) -> None:
        """Push the structure and all made of it, and the split by popularity."""
        super().read(writer)
        if self.split == "published":
            indptr, _ = writer.build_topology()
            ranking = np.argsort(-np.diff(indptr), kind="stable")
            num_train = round(self.train_fraction * self.num_vertices)
            num_valid = round(self.valid_fraction * self.num_vertices)
            parts = np.split(ranking, [num_train, num_train + num_valid])
            writer.set_split(*parts, source=f"split of {self.name}")

    def read_edges(self, writer: store.StoreWriter) -> None:
        """Draw the edges."""
        # Draws, which are sorted; then labels and their order.
        memory = 64 * self.num_vertices + min(40 * self.num_edges, self.memory_bytes)
        _check_space(self, writer, memory + 8 * self.num_classes * self.num_features)
        writer.set_num_vertices(self.num_vertices, source=self.name)
        draws = RmatDraws(
            num_vertices=self.num_vertices,
            num_edges=self.num_edges,
            a=self.a,
            b=self.b,
            c=self.c,
            seed=self.seed,
        )
        folder = writer.path / "draws"
        folder.mkdir()
        for src, dst in draws.slices(folder, memory_bytes=self.memory_bytes):
            writer.add_edges(src, dst, source=self.name)
        folder.rmdir()


def _check_space(graph: PlantedPartition | RMat, writer: store.StoreWriter, memory: int) -> None:
    """Refuse, before anything is drawn, a graph that needs more than there is."""
    feature_bytes = row_bytes(graph.feature_dtype or "float32", graph.num_features)
    files.check_space(
        f"dataset.num_vertices={graph.num_vertices}, num_edges={graph.num_edges}, "
        f"num_features={graph.num_features}",
        writer.path,
        memory=memory,
        # Offsets, labels and split; both directions of the edges, and each once more unsorted.
        disk=graph.num_vertices * (feature_bytes + 24) + 16 * graph.num_edges,
    )
