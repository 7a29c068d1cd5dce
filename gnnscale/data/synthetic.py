"""Generated graphs: a degree-corrected planted partition, and R-MAT."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale import ops
from gnnscale.core import ConfigError, check_range, errors, hardware, progress, track
from gnnscale.core.types import Float32Array, Int32Array
from gnnscale.data import base, structure_only
from gnnscale.data.storage import edge_spool
from gnnscale.data.storage.csc_builder import sorted_lists
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph import MAX_FEATURES, row_bytes, vertex_dtype

_SLICE_EDGES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RmatDraws:
    """Sampler of R-MAT edges with bounded memory; its edges equal those of ``ops.rmat_edges``."""

    num_vertices: int  #: number of vertices
    num_edges: int  #: number of distinct undirected edges
    a: float  #: probability of the quadrant small id to small id
    b: float  #: probability of the quadrant small id to large id
    c: float  #: probability of the quadrant large id to small id
    seed: int  #: seed of the edges

    def slices(self, folder: Path, *, memory_bytes: int) -> Iterator[tuple[Int32Array, Int32Array]]:
        """Yield all ``num_edges`` edges in slices ``(src, dst)`` with ``src < dst``.

        Takes ``memory_bytes`` plus 20 bytes per vertex, and up to 16 bytes per edge of disk.
        ConfigError: samples hardly give new edges before ``num_edges`` are distinct.
        """
        distinct = edge_spool.EdgeFile(folder / "distinct", vertex_dtype(self.num_vertices))
        try:
            num_draws = 0
            # Hubs repeat: sample until enough edges are distinct.
            while distinct.num_edges < self.num_edges:
                missing = self.num_edges - distinct.num_edges
                more = missing + missing // 8 + 1024
                num_new = self._draw(distinct, num_draws, more, folder, memory_bytes)
                # If most samples repeat edges, the last new edges would take forever.
                if num_new < more // 10_000 + 1:
                    raise errors.ConfigError(
                        f"dataset.a={self.a}, b={self.b}, c={self.c}: expected probabilities with "
                        f"dataset.num_edges={self.num_edges} different edges"
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
        """Draw ``num_draws`` samples from number ``first`` on, and merge them into ``distinct``.

        Return how many edges are new.
        """
        num_before = distinct.num_edges
        # A quarter, since the lists of a range are in memory twice, besides slices of samples.
        spool = edge_spool.EdgeSpool(
            folder,
            num_vertices=self.num_vertices,
            undirected=False,
            self_loops="remove",
            memory_bytes=memory_bytes // 4,
        )
        try:
            for large, small in distinct.take_last(num_before):
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
        return distinct.num_edges - num_before

    def _choose(self, distinct: edge_spool.EdgeFile) -> Iterator[tuple[Int32Array, Int32Array]]:
        """Yield ``num_edges`` of the distinct edges, evenly spaced, with vertices renumbered."""
        number = ops.rmat_numbering(self.num_vertices, self.seed)
        num_distinct, last = distinct.num_edges, self.num_edges
        for large, small in distinct.take_last(num_distinct):
            # Edge i is the one at place i * known // num_edges; these begin at `place`.
            num_left = distinct.num_edges
            first = -(-num_left * self.num_edges // num_distinct)
            offset = first * num_distinct - num_left * self.num_edges
            chosen = (offset + np.arange(last - first) * num_distinct) // self.num_edges
            last = first
            ends: tuple[Any, Any] = number[small[chosen]], number[large[chosen]]
            yield np.minimum(*ends), np.maximum(*ends)


#: Vertices, whose ids are sampled as int32, and edges of a generated graph, at most.
_MAX_VERTICES = 2**31 - 1
_MAX_EDGES = 2**40
#: Classes of a planted partition, at most: it has a matrix of all pairs.
_MAX_COMMUNITIES = 4096
#: Entries of a table of scores ``[vertices, classes]`` that is computed at a time.
_SCORES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class SyntheticGraph(base.Dataset):
    """Base of the generated graphs, undirected by default."""

    undirected: bool = True

    generated: ClassVar[bool] = True
    _stratifies: ClassVar[bool] = False

    def raw_files(self) -> Sequence[Path]:
        """Return no files."""
        return ()


@dataclass(frozen=True, kw_only=True)
class PlantedPartition(SyntheticGraph):
    """Degree-corrected stochastic block model, whose communities are the classes.

    After Karrer & Newman (2011): one end of an edge is sampled by weight from all vertices, the
    other by weight from the same community with probability ``within``, else from all. The features
    of a vertex are the centroid of its community plus noise; alone they predict little, together
    with the features of the neighbors they predict the class.

    ``attainable_accuracy`` in ``meta.json`` is the accuracy of an oracle that knows the parameters
    and the communities of all neighbors: an upper bound for a model that learns from features.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of sampled undirected edges; a few coincide.
        num_classes: number of communities, of equal size.
        num_features: length of the features; 0: no features.
        within: probability that an edge is sampled inside a community.
        signal: half the typical distance between two centroids, in standard deviations.
        exponent: exponent of the power law of weights, hence of degrees.
        seed: seed of all but the split.
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
                f"dataset.exponent={self.exponent}: expected above 2 and at most 1,000,000"
            )

    def read(self, writer: StoreWriter) -> None:
        """Sample and push edges, communities as labels, features; note attainable accuracy."""
        # Edges, their copies, and a slice of scores.
        rows = min(1.0, _SCORES / self.num_classes / self.num_vertices)
        memory = 64 * self.num_vertices + int(max(24, 48 * rows) * self.num_edges)
        memory += 32 * self.num_classes**2 + 8 * self.num_classes * self.num_features
        _check_space(self, writer, memory)
        generator = np.random.Generator(np.random.Philox([self.seed, 0]))
        turns = np.arange(self.num_vertices, dtype=np.int32) % self.num_classes
        community = generator.permutation(turns)
        # Pareto weights, bounded so that no single hub has most of the edges.
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
        centroids = structure_only.class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        structure_only.write_made_features(
            writer, community, centroids, seed=self.seed, source=self.name
        )
        writer.notes["attainable_accuracy"] = self._attainable(writer, bounded, centroids)

    def _attainable(
        self, writer: StoreWriter, weight: Float32Array, centroids: Float32Array
    ) -> float:
        """Return the oracle's accuracy: Bayes' rule on features and neighbors' communities."""
        indptr, indices = writer.build_topology()
        community = writer.labels
        share = np.bincount(community, weight, self.num_classes) / weight.sum()
        chance = (1 - self.within) * share + self.within * np.eye(self.num_classes)
        evidence = np.log(np.maximum(chance, 1e-300)).T.astype(np.float32)
        correct = first = 0
        step = _SCORES // self.num_classes
        for rows in structure_only.class_features(community, centroids, seed=self.seed):
            for start in range(0, len(rows), step):
                score = rows[start : start + step] @ centroids.T - (centroids**2).sum(axis=1) / 2
                part = slice(first + start, first + start + len(score))
                offsets = indptr[part.start : part.stop + 1]
                owner = np.repeat(np.arange(len(score)), np.diff(offsets))
                cells = owner * self.num_classes + community[indices[offsets[0] : offsets[-1]]]
                counts = np.bincount(cells, minlength=len(score) * self.num_classes)
                score += counts.reshape(-1, self.num_classes).astype(np.float32) @ evidence
                correct += int((score.argmax(axis=1) == community[part]).sum())
            first += len(rows)
        return correct / self.num_vertices


@dataclass(frozen=True, kw_only=True)
class RMat(SyntheticGraph, structure_only.Structure):
    """Recursive-matrix graph (Chakrabarti et al., 2004) with the parameters of Graph500.

    Vertices are numbered at random. Edges are distinct, undirected and without loops. Labels and
    features are generated from the structure. The default sizes are those of ogbn-products. The
    published split is by popularity, as for ogbn-products: vertices of highest degree train, the
    next validate.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of undirected edges.
        a: probability of the quadrant small id to small id.
        b: probability of the quadrant small id to large id.
        c: probability of the quadrant large id to small id; 1 - a - b - c is that of large to
            large.
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
                f"dataset.num_edges={self.num_edges}: expected 1 to "
                f"{min(pairs // 2, _MAX_EDGES)}, half of all pairs or 2^40"
            )
        probabilities = (self.a, self.b, self.c)
        # Written so that NaN is refused too.
        if not (all(probability >= 0 for probability in probabilities) and sum(probabilities) <= 1):
            raise ConfigError(
                f"dataset.a={self.a}, b={self.b}, c={self.c}: "
                "expected probabilities with a sum of at most 1"
            )

    def read(self, writer: StoreWriter) -> None:
        """Push edges, features and labels and, for ``split=published``, a split by degree."""
        super().read(writer)
        if self.split == "published":
            indptr, _ = writer.build_topology()
            ranking = np.argsort(-np.diff(indptr), kind="stable")
            num_train = round(self.train_fraction * self.num_vertices)
            num_valid = round(self.valid_fraction * self.num_vertices)
            parts = np.split(ranking, [num_train, num_train + num_valid])
            writer.set_split(*parts, source=f"split of {self.name}")

    def read_edges(self, writer: StoreWriter) -> None:
        """Sample and push the edges."""
        # First sorted samples; then labels and their order.
        memory = 64 * self.num_vertices + min(40 * self.num_edges, self.memory_bytes)
        _check_space(self, writer, memory + 8 * self.num_classes * self.num_features)
        writer.set_num_vertices(self.num_vertices, source=self.name)
        sizes = {"num_vertices": self.num_vertices, "num_edges": self.num_edges}
        draws = RmatDraws(**sizes, a=self.a, b=self.b, c=self.c, seed=self.seed)
        folder = writer.path / "draws"
        folder.mkdir()
        for src, dst in draws.slices(folder, memory_bytes=self.memory_bytes):
            writer.add_edges(src, dst, source=self.name)
        folder.rmdir()


def _check_space(graph: PlantedPartition | RMat, writer: StoreWriter, memory: int) -> None:
    """Raise NoSpaceError unless ``memory`` bytes, and disk for the graph's store, are free."""
    sizes = {"num_vertices": graph.num_vertices, "num_edges": graph.num_edges}
    options = ", ".join(f"{name}={size}" for name, size in sizes.items())
    what = f"dataset.{options}, num_features={graph.num_features}"
    vertex_bytes = row_bytes(graph.feature_dtype or "float32", graph.num_features) + 8
    graph.check_space(what, writer.path, **sizes, vertex_bytes=vertex_bytes, memory=memory)
