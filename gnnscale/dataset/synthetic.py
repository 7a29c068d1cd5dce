"""Generated graphs: a degree-corrected planted partition, and R-MAT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.config import ConfigError
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import row_slices
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.dataset.structure import Structure, class_centroids, class_features
from gnnscale.hardware import usable_cores
from gnnscale.progress import track

__all__ = ["PlantedPartition", "RMat"]


@dataclass(frozen=True, kw_only=True)
class PlantedPartition(Dataset):
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
        num_features: length of the features.
        within: probability that an edge is drawn inside a community.
        signal: half the typical distance between two centroids, in standard deviations.
        exponent: of the power law that the weights, hence the degrees, follow.
        seed: fixes everything but the split.
    """

    undirected: bool = True
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
        least = {"num_edges": 1, "num_classes": 2, "num_features": 1, "signal": 0, "seed": 0}
        for name, low in (least | {"num_vertices": 2 * self.num_classes}).items():
            if getattr(self, name) < low:
                raise ConfigError(f"dataset.{name}={getattr(self, name)}: the least is {low}")
        if not 0 <= self.within <= 1:
            raise ConfigError(f"dataset.within={self.within}: allowed are 0 to 1")
        if self.exponent <= 2:
            raise ConfigError(f"dataset.exponent={self.exponent}: must be above 2")

    def read(self, writer: StoreWriter) -> None:
        """Draw communities, weights, edges and features."""
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
        writer.set_labels(community, num_classes=self.num_classes, source=self.name)
        centroids = class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        writer.write_features(
            class_features(community, centroids, seed=self.seed),
            num_features=self.num_features,
            dtype="float32",
            source=self.name,
        )
        writer.notes["attainable_accuracy"] = self._attainable(writer, bounded, centroids)

    def _attainable(
        self, writer: StoreWriter, weight: NDArray[np.float32], centroids: NDArray[np.float32]
    ) -> float:
        """Accuracy of the oracle: Bayes' rule on own features and neighbours' communities."""
        indptr, indices = writer.build_topology()
        community = writer.labels
        share = np.bincount(community, weight, self.num_classes) / weight.sum()
        chance = (1 - self.within) * share + self.within * np.eye(self.num_classes)
        evidence = np.log(np.maximum(chance, 1e-300)).T.astype(np.float32)
        features = class_features(community, centroids, seed=self.seed)
        correct = 0
        for part in row_slices(self.num_vertices, self.num_features * 4):
            offsets = indptr[part.start : part.stop + 1]
            rows = np.repeat(np.arange(part.stop - part.start), np.diff(offsets))
            places = rows * self.num_classes + community[indices[offsets[0] : offsets[-1]]]
            counts = np.bincount(places, minlength=(part.stop - part.start) * self.num_classes)
            score = counts.reshape(-1, self.num_classes).astype(np.float32) @ evidence
            score += next(features) @ centroids.T - (centroids**2).sum(axis=1) / 2
            correct += int((score.argmax(axis=1) == community[part]).sum())
        return correct / self.num_vertices


@dataclass(frozen=True, kw_only=True)
class RMat(Structure):
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

    undirected: bool = True
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
        pairs = self.num_vertices * (self.num_vertices - 1) // 2
        if not 2 <= self.num_vertices < 2**31:
            raise ConfigError(
                f"dataset.num_vertices={self.num_vertices}: allowed are 2 to {2**31 - 1}"
            )
        if not 1 <= self.num_edges <= pairs // 2:
            raise ConfigError(
                f"dataset.num_edges={self.num_edges}: allowed are 1 to {pairs // 2}, "
                "half of all pairs"
            )
        if min(self.a, self.b, self.c) < 0 or self.a + self.b + self.c > 1:
            raise ConfigError(
                f"dataset.a={self.a}, b={self.b}, c={self.c}: "
                "probabilities, with a sum of at most 1"
            )

    def read(self, writer: StoreWriter) -> None:
        """Push everything that is made of the structure, and the split by popularity."""
        super().read(writer)
        if self.split == "published":
            indptr, _ = writer.build_topology()
            ranking = np.argsort(-np.diff(indptr), kind="stable")
            num_train = round(self.train_fraction * self.num_vertices)
            num_valid = round(self.valid_fraction * self.num_vertices)
            parts = np.split(ranking, [num_train, num_train + num_valid])
            writer.set_split(*parts, source=f"split of {self.name}")

    def read_edges(self, writer: StoreWriter) -> None:
        """Draw the edges."""
        with track("drawing edges"):
            src, dst = ops.rmat_edges(
                self.num_vertices,
                self.num_edges,
                a=self.a,
                b=self.b,
                c=self.c,
                seed=self.seed,
                num_threads=usable_cores(),
            )
        writer.set_num_vertices(self.num_vertices, source=self.name)
        writer.add_edges(src, dst, source=self.name)
