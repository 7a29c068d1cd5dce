"""Layouts without features and labels, which are generated: their base, and ``csr``."""

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, errors, progress
from gnnscale.core.artifact import file_bytes, row_slices
from gnnscale.core.types import Float32Array, Float64Array, Int64Array, IntArray
from gnnscale.data import validation
from gnnscale.data.base import Dataset
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph import store_format

_LOG = logging.getLogger(__name__)
_SLICE_EDGES = 4 << 20
#: Arrays of a matrix that SciPy saved; the values are not read.
_CSR_ARRAYS = {"indptr", "indices", "shape", "format", "data"}


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
    _stratifies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.check_range("dataset.num_features", self.num_features, 0, store_format.MAX_FEATURES)
        errors.check_range("dataset.num_classes", self.num_classes, 2, store_format.MAX_CLASSES)
        errors.check_range("dataset.signal", self.signal, 0, 1e6)
        errors.check_range("dataset.seed", self.seed, 0, 2**63 - 1)

    @abstractmethod
    def read_edges(self, writer: StoreWriter) -> None:
        """Push the number of vertices and the edges; each layout implements it."""

    def read(self, writer: StoreWriter) -> None:
        """Push the layout's edges, labels made from the edges, and features made from labels."""
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
        writer.set_labels(labels, num_classes=self.num_classes, source=f"labels of {self.name}")
        centroids = class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        write_made_features(
            writer, labels, centroids, seed=self.seed, source=f"features of {self.name}"
        )


@dataclass(frozen=True, kw_only=True)
class Csr(Structure):
    """File ``<name>.npz``: ``indices[indptr[v]:indptr[v+1]]`` are the out-neighbors of ``v``.

    An archive with further arrays is refused, since they may be features and labels.
    """

    _raw_form: ClassVar[str] = "the file <name>.npz with indptr and indices, or its folder"

    def raw_files(self) -> list[Path]:
        """Return the path of the .npz file."""
        return [self.raw_file(f"{self.name}.npz")]

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the edges, from each vertex to its out-neighbors."""
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            unread = sorted(set(npz.names) - _CSR_ARRAYS)
            if unread:
                raise GraphError(
                    f"{path}: expected only {', '.join(sorted(_CSR_ARRAYS))}, got also "
                    f"{', '.join(unread)}; dataset=arrays reads features and labels"
                )
            indptr, indices = sparse.read_adjacency(npz)
        validation.check_num_vertices(len(indptr) - 1, file_bytes(path), path)
        writer.set_num_vertices(len(indptr) - 1, source=path)
        for src, dst in sparse.csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)


def write_made_features(
    writer: StoreWriter, labels: IntArray, centroids: Float32Array, *, seed: int, source: str
) -> None:
    """Write a feature row per vertex, drawn around the centroid of its class.

    ``labels`` are ``[num_vertices]`` classes, ``centroids`` ``[num_classes, num_features]``. With 0
    features, empty rows are written. ``source`` names the features in errors.
    """
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
    """Return balanced classes that neighbors tend to share, ``[num_vertices]``.

    Classes are quantiles of vertices' noise, to which, twice, its mean over in-neighbors is added.
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
    """Return the mean of ``signal`` over each vertex's in-neighbors; 0 without in-neighbors.

    ``indptr`` has the vertices' offsets into ``indices``.
    """
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
    """Yield feature rows in slices: the centroid of a vertex's class plus standard normal noise."""
    generator = np.random.Generator(np.random.Philox([seed, 3]))
    num_features = centroids.shape[1]
    for part in row_slices(len(labels), num_features * 4):
        rows = generator.standard_normal((part.stop - part.start, num_features), np.float32)
        rows += centroids[labels[part]]
        yield rows
