"""Generated features and labels for graphs that are published without features and labels."""

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, Float32Array, Float64Array, Int64Array, IntArray, errors, progress
from gnnscale.core.artifact.npy import row_slices
from gnnscale.data.base import Dataset
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph import store_format

_LOG = logging.getLogger(__name__)
_SLICE_EDGES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Structure(Dataset):
    """Base of the layouts without features and labels, which are generated from the structure.

    Attributes:
        num_features: length of the generated features; 0: no features.
        num_classes: number of generated classes.
        signal: half the typical distance between the mean features of two classes, in standard
            deviations of the noise. At 1, features separate two classes 84 % of the time.
        seed: seed of features and labels.
    """

    split: str = "random"
    num_features: int = 64
    num_classes: int = 16
    signal: float = 1.0
    seed: int = 0

    has_split: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.check_range("dataset.num_features", self.num_features, 0, store_format.MAX_FEATURES)
        errors.check_range("dataset.num_classes", self.num_classes, 2, store_format.MAX_CLASSES)
        errors.check_range("dataset.signal", self.signal, 0, 1e6)
        errors.check_range("dataset.seed", self.seed, 0, 2**63 - 1)

    @abstractmethod
    def read_edges(self, writer: StoreWriter) -> None:
        """Push the number of vertices and the edges into ``writer``."""

    def read(self, writer: StoreWriter) -> None:
        """Push the edges, labels that are smooth over the edges, and features by label."""
        writer.notes["made"] = ["features", "labels"] if self.num_features else ["labels"]
        if not self.generated:
            _LOG.warning(
                "%s: the layout has no features and labels; %s made from the structure",
                self.name,
                "both are" if self.num_features else "labels are",
            )
        self.read_edges(writer)
        indptr, indices = writer.build_topology()
        labels = smooth_labels(indptr, indices, num_classes=self.num_classes, seed=self.seed)
        source = f"labels of {self.name}"
        writer.set_labels(labels, num_classes=self.num_classes, source=source)
        centroids = class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        write_made_features(
            writer, labels, centroids, seed=self.seed, source=f"features of {self.name}"
        )


def write_made_features(
    writer: StoreWriter, labels: IntArray, centroids: Float32Array, *, seed: int, source: str
) -> None:
    """Write the features of ``class_features``, or no features if their length is 0."""
    if not centroids.shape[1]:
        writer.set_featureless(source=source)
        return
    writer.write_features(
        class_features(labels, centroids, seed=seed),
        num_features=centroids.shape[1],
        dtype="float32",
        source=source,
    )


def smooth_labels(
    indptr: Int64Array, indices: IntArray, *, num_classes: int, seed: int
) -> Int64Array:
    """Return balanced classes that neighbors tend to share.

    The class of a vertex is the quantile of white noise that is averaged twice over each vertex and
    its in-neighbors. Takes 20 bytes per vertex and two scans of the edges.
    """
    generator = np.random.Generator(np.random.Philox([seed, 1]))
    signal = generator.standard_normal(len(indptr) - 1, dtype=np.float32)
    with progress.track("making labels", 2 * len(indices), "edges") as advance:
        for _ in range(2):
            mean = np.empty_like(signal)
            for first, last in _vertex_ranges(indptr):
                mean[first:last] = _neighbor_mean(indptr[first : last + 1], indices, signal)
                advance(int(indptr[last] - indptr[first]))
            signal += mean
            deviation = signal.std()
            if deviation > 0:  # a single vertex has none
                signal /= deviation
    rank = np.empty(len(signal), np.int64)
    rank[np.argsort(signal, kind="stable")] = np.arange(len(signal))
    return rank * num_classes // len(signal)


def _vertex_ranges(indptr: Int64Array) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(indptr) - 1:
        last = int(np.searchsorted(indptr, indptr[first] + _SLICE_EDGES, side="right")) - 1
        last = max(first + 1, min(last, first + _SLICE_EDGES))
        yield first, last
        first = last


def _neighbor_mean(indptr: Int64Array, indices: IntArray, signal: Float32Array) -> Float32Array:
    """Return the mean of ``signal`` over the in-neighbors of each vertex; 0 without neighbors."""
    values = signal[indices[indptr[0] : indptr[-1]]]
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    offsets = indptr - indptr[0]
    degrees = np.diff(offsets)
    mean: Float64Array = np.diff(sums[offsets]) / np.maximum(degrees, 1)
    return mean.astype(np.float32)


def class_centroids(
    num_classes: int, num_features: int, *, signal: float, seed: int
) -> Float32Array:
    """Return random mean features ``[num_classes, num_features]``, about ``2 * signal`` apart."""
    generator = np.random.Generator(np.random.Philox([seed, 2]))
    directions = generator.standard_normal((num_classes, num_features), dtype=np.float32)
    directions *= signal * np.sqrt(2 / max(num_features, 1))
    return directions


def class_features(labels: IntArray, centroids: Float32Array, *, seed: int) -> Iterator[Array]:
    """Yield slices of feature rows: the centroid of the class plus standard normal noise."""
    generator = np.random.Generator(np.random.Philox([seed, 3]))
    num_features = centroids.shape[1]
    for part in row_slices(len(labels), num_features * 4):
        rows = generator.standard_normal((part.stop - part.start, num_features), np.float32)
        rows += centroids[labels[part]]
        yield rows
