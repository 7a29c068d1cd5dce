"""The Graph record: topology, features, labels and split, memory-mapped from a graph store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from gnnscale.core import (
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    UInt32Array,
    standard_arithmetic,
)
from gnnscale.core.artifact.npy import check_length, row_slices
from gnnscale.graph.dtypes import MAX_QUANTIZED, as_float32, quantized, row_length
from gnnscale.graph.sharded import ShardedFeatures
from gnnscale.graph.store_format import (
    EDGE_ENDS,
    EDGE_FEATURES,
    EDGE_LABELS,
    EDGE_ROWS,
    EDGE_SPLITS,
    OWNER,
    SPLIT_ARRAYS,
    WEIGHTS,
    StoreMeta,
    kept_notes,
    map_arrays,
    read_meta,
    refuse_unlabelled,
    vertex_dtype,
    write_store,
)

#: Lists whose weights are added up in one go.
_LISTS = 1 << 18


def list_sums(indptr: Int64Array, values: Float32Array) -> Float32Array:
    """Return the sum of each list's values, ``[num_lists]`` float32, added up in float64.

    Args:
        indptr: ``[num_lists + 1]`` where each list begins in ``values``, and the end of the last.
        values: ``[indptr[-1]]`` float32.
    """
    sums = np.zeros(len(indptr) - 1, np.float32)
    filled = np.diff(indptr) > 0
    if filled.any():
        with np.errstate(over="ignore", invalid="ignore"):  # of damaged weights
            sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=np.float64)
    return sums


def _no_vertices() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which vertices train, validate and test: ``[n]`` ids each, disjoint.

    Those of a store are sorted, and only test vertices may lack a label, if the publisher hides it.
    All are empty if the graph has no split.
    """

    train_idx: IntArray = field(default_factory=_no_vertices)  #: those that are trained
    valid_idx: IntArray = field(default_factory=_no_vertices)  #: those that choose the best epoch
    test_idx: IntArray = field(default_factory=_no_vertices)  #: those that are tested at the end


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """Names of the parts of a split at their source, and how to get them, for errors."""

    names: tuple[str, str, str] = ("train_idx", "valid_idx", "test_idx")
    cure: str = (
        "gnnscale.data.random_split(graph.labels, (0.6, 0.2), seed=0) draws them, and "
        "graph.with_split sets them"
    )

    def check(self, parts: Sequence[Array], graph: str, of: str = "vertex") -> None:
        """Raise GraphError for a part without vertices or edges ``of`` beside parts that have some.

        Args:
            parts: ids of training, validation and test.
            graph: name of the graph.
        """
        empty = [name for name, ids in zip(self.names, parts, strict=True) if not len(ids)]
        if empty and len(empty) < len(parts):
            raise GraphError(
                f"{graph}: {' and '.join(empty)} is missing or names no {of}; training needs all "
                f"of {', '.join(self.names)}, since validation chooses the best epoch and test "
                f"measures it; {self.cure}"
            )

    def check_labelled(
        self, parts: Sequence[Array], labels: Array, graph: str, of: str = "vertex"
    ) -> None:
        """Raise GraphError for a vertex or edge without a label that trains or validates.

        Args:
            parts: as for ``check``.
            labels: of all vertices, or edges.
            graph: name of the graph.
            of: ``vertex`` or ``edge``.
        """
        for name, ids in zip(self.names[:2], parts[:2], strict=True):
            cure = f"; leave them out of {name}"
            refuse_unlabelled(labels, ids, source=graph, of=of, part=name, cure=cure)


#: Of the labels of edges, whose split ``from_arrays`` takes in one argument.
_EDGE_SPLIT = SplitSource(
    names=("edge_split[0]", "edge_split[1]", "edge_split[2]"),
    cure=(
        "gnnscale.data.random_edge_split(edge_labels, ends, (0.6, 0.2), seed=0) draws them, "
        "where row i of ends is the source and destination of edge i"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a graph comes from, and what is known of it there."""

    path: Path | None = None  #: the store it was opened from, None for a graph in memory
    content: str | None = None  #: hex digest of what the store holds, None for a graph in memory
    #: the best test accuracy that the graph's generator allows, None if not known
    attainable_accuracy: float | None = None
    #: whether the features are those of the store; a run may have made or learned others
    own_features: bool = True
    split: SplitSource = SplitSource()  #: the parts of the split at their source


class SplitLabels(Protocol):
    """What has labels and a split: the vertices of a graph, or its edges."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def labels(self) -> Array:
        """One for each, in the forms of ``Graph.labels``."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of classes, or of regression targets."""
        ...

    @property
    def metric(self) -> str:
        """What decides if nothing else is asked for."""
        ...

    @property
    def multilabel(self) -> bool:
        """Whether one may have many classes."""
        ...

    @property
    def split(self) -> Split:
        """Which train, validate and test."""
        ...


@dataclass(frozen=True, kw_only=True)
class EdgeLabels:
    """The labels of edges, one for each edge as it was published, and their split.

    Attributes:
        name: of the graph.
        labels: ``[num_rows]`` int64 class, -1 where unknown; or float32 regression target, NaN
            where unknown.
        num_classes: number of classes, 1 for regression.
        split: the rows that train, validate and test.
        metric: ``accuracy``, ``roc_auc`` or ``rmse``.
    """

    name: str
    labels: Array
    num_classes: int
    split: Split
    metric: str = "accuracy"

    @property
    def multilabel(self) -> bool:
        """No edge has many classes."""
        return False


@dataclass(frozen=True, kw_only=True)
class EdgeData:
    """What edges carry, in the order of ``Graph.indices``."""

    #: ``[num_edges]`` float32, finite and not negative; None if every edge counts the same
    weights: Float32Array | None = None
    #: ``[num_edges]`` int64, the number that each edge had among those that the graph was made of;
    #: None if an edge is numbered by its place in ``indices``
    ids: Int64Array | None = None
    #: ``[num_edges]`` uint32, the row of ``features`` of each edge, which an edge and its reverse
    #: share; None if edges have no features
    rows: UInt32Array | None = None
    #: ``[num_rows, num_edge_features]`` float32, finite; None if edges have no features
    features: Float32Array | None = None
    #: ``[num_rows, 2]`` source and destination of each row of features and labels; None if edges
    #: have neither
    ends: IntArray | None = None
    #: the labels of the rows, or None
    labels: EdgeLabels | None = None

    @classmethod
    def taken(cls, arrays: dict[str, Array], meta: StoreMeta) -> EdgeData:
        """Take from ``arrays`` of a store what edges carry."""
        labels = arrays.pop(EDGE_LABELS, None)
        split = Split(
            **{
                name: arrays.pop(stored)
                for name, stored in zip(SPLIT_ARRAYS, EDGE_SPLITS, strict=True)
                if stored in arrays
            }
        )
        entry = meta.edge_labels
        return cls(
            weights=arrays.pop(WEIGHTS, None),
            rows=arrays.pop(EDGE_ROWS, None),
            features=arrays.pop(EDGE_FEATURES, None),
            ends=arrays.pop(EDGE_ENDS, None),
            labels=None
            if entry is None or labels is None
            else EdgeLabels(
                name=meta.name,
                labels=labels,
                num_classes=entry.num_classes,
                split=split,
                metric=entry.metric,
            ),
        )

    def arrays(self) -> dict[str, Array]:
        """Return what edges carry by the names of a store's arrays; it keeps no ``ids``."""
        found: dict[str, Array | None] = {
            WEIGHTS: self.weights,
            EDGE_ROWS: self.rows,
            EDGE_FEATURES: self.features,
            EDGE_ENDS: self.ends,
        }
        if self.labels is not None:
            found[EDGE_LABELS] = self.labels.labels
            for name, stored in zip(SPLIT_ARRAYS, EDGE_SPLITS, strict=True):
                found[stored] = getattr(self.labels.split, name)
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A homogeneous graph with features, labels and a split. Never copied, never written to.

    Attributes:
        name: what reports call it.
        indptr: ``[num_vertices + 1]`` int64 offsets of the in-neighbours of each vertex (CSC).
        indices: ``[num_edges]`` int32 or int64; ``indices[indptr[v]:indptr[v+1]]`` are the vertices
            that send messages to ``v``, sorted.
        features: ``[num_vertices, num_features]`` in one of ``FEATURE_DTYPES``; rows of int8 and
            int4 are bytes, and ``feature_types.as_float32`` reads them. Of a store that has the
            rows of one part, a ``ShardedFeatures``.
        feature_dtype: which; tells bfloat16 from the uint16 that carries it.
        labels: ``[num_vertices]`` int64 class, -1 where unknown; or
            ``[num_vertices, num_classes]`` uint8 if a vertex may have several; or the targets of
            regression, ``[num_vertices]`` or ``[num_vertices, num_classes]`` float32, NaN if
            unknown.
        num_classes: number of classes, or of targets of regression; 0 if nothing is labelled.
        split: the vertices that train, validate and test.
        metric: ``accuracy``, ``micro_f1`` or ``roc_auc``, of which higher is better; or ``rmse``
            of regression, of which lower is better.
        origin: where it comes from.
        degrees: ``[num_vertices]`` uint32 in-degrees in the whole graph if this is one part of
            it, whose lists are not all there; None if ``indptr`` tells.
        edges: what its edges carry.
        lists: ``ops.DiskLists`` if samplers read neighbours from the file of ``indices``, of which
            memory holds a part; None if they read ``indices``.
        num_quantized: features of a row of int8 or int4, which its bytes do not say; not read with
            other types.
    """

    name: str
    indptr: Int64Array
    indices: IntArray
    features: Array
    feature_dtype: str
    labels: IntArray
    num_classes: int
    split: Split = field(default_factory=Split)
    metric: str = "accuracy"
    origin: Origin = Origin()
    degrees: UInt32Array | None = None
    edges: EdgeData = EdgeData()
    lists: Any = None
    num_quantized: int = 0

    def check_files(self) -> None:
        """Look whether the files of the graph have the length that they had when it was opened.

        Raises:
            GraphError: one became shorter; what was read of it may be wrong.
        """
        features = () if isinstance(self.features, ShardedFeatures) else (self.features,)
        split = (self.train_idx, self.valid_idx, self.test_idx)
        edges = self.edges.arrays().values()
        for array in (self.indptr, self.indices, self.labels, *features, *split, *edges):
            check_length(array)

    @property
    def train_idx(self) -> IntArray:
        """Ids of the vertices that are trained."""
        return self.split.train_idx

    @property
    def valid_idx(self) -> IntArray:
        """Ids of those that are validated."""
        return self.split.valid_idx

    @property
    def test_idx(self) -> IntArray:
        """Ids of those that are tested."""
        return self.split.test_idx

    @property
    def path(self) -> Path | None:
        """The store it was opened from, None for a graph in memory."""
        return self.origin.path

    @property
    def content(self) -> str | None:
        """Hex digest of what the store holds, None for a graph in memory."""
        return self.origin.content

    @property
    def attainable_accuracy(self) -> float | None:
        """The best test accuracy that the graph's generator allows, None if not known."""
        return self.origin.attainable_accuracy

    @property
    def edge_weights(self) -> Float32Array | None:
        """``[num_edges]`` weights; None if every edge counts the same."""
        return self.edges.weights

    @property
    def edge_ids(self) -> Int64Array | None:
        """``[num_edges]`` numbers of edges; None if these are places in ``indices``."""
        return self.edges.ids

    @property
    def edge_rows(self) -> UInt32Array | None:
        """``[num_edges]`` rows of ``edge_features``; None if edges have no features."""
        return self.edges.rows

    @property
    def edge_features(self) -> Float32Array | None:
        """``[num_rows, num_edge_features]``, found by ``edge_rows``; or None."""
        return self.edges.features

    @property
    def edge_labels(self) -> EdgeLabels | None:
        """The labels and the split of edges, or None."""
        return self.edges.labels

    @property
    def num_edge_features(self) -> int:
        """Length of a feature row of an edge, or 0."""
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges stored."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """Length of a feature row, f^0 in the papers."""
        if self.feature_dtype in MAX_QUANTIZED:
            return self.num_quantized
        return int(self.features.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row as it is stored."""
        return int(self.features.shape[1]) * self.features.itemsize

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.labels.ndim == 2 and not self.regression

    @property
    def regression(self) -> bool:
        """Whether labels are numbers to be met, not classes."""
        return self.labels.dtype.kind == "f"

    @cached_property
    def weight_sums(self) -> Float32Array | None:
        """``[num_vertices]`` the sum of the weights of each vertex's in-edges, or None.

        They are added up when they are first asked for: the weights are read once, and four bytes
        a vertex are kept. One part of a graph knows those of the lists that it has; others are NaN.

        Raises:
            GraphError: a weight is damaged: the sum is no number, or below 0; or the lists do not
                lie within the weights.
        """
        if self.edge_weights is None:
            return None
        sums = np.empty(self.num_vertices, np.float32)
        for first in range(0, self.num_vertices, _LISTS):
            ends = np.asarray(self.indptr[first : first + _LISTS + 1])
            if ends[0] < 0 or ends[-1] > len(self.edge_weights) or (np.diff(ends) < 0).any():
                raise GraphError(
                    f"{self.path or self.name}: damaged, indptr: lists between vertices {first} "
                    f"and {first + len(ends) - 1} do not lie in order within the "
                    f"{len(self.edge_weights)} weights; gnnscale doctor store=DIR shows more"
                )
            weights = np.asarray(self.edge_weights[ends[0] : ends[-1]])
            part = list_sums(ends - ends[0], weights)
            wrong = ~((part >= 0) & np.isfinite(part))
            if wrong.any():
                vertex = int(wrong.argmax())
                if part[vertex] == np.inf and np.isfinite(weights).all():
                    raise GraphError(
                        f"{self.path or self.name}: edge_weights: those of the in-edges of vertex "
                        f"{first + vertex} add up to more than float32 holds; scale all weights"
                    )
                raise GraphError(
                    f"{self.path or self.name}: damaged, edge_weights: those of the in-edges of "
                    f"vertex {first + vertex} add up to {part[vertex]}; gnnscale doctor store=DIR "
                    "looks at all of it"
                )
            sums[first : first + _LISTS] = part
        if self.degrees is not None:
            sums[(np.asarray(self.degrees) > 0) & (np.diff(self.indptr) == 0)] = np.nan
        return sums

    @property
    def topology_bytes(self) -> int:
        """Bytes of ``indptr`` and ``indices``."""
        return self.indptr.nbytes + self.indices.nbytes

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the topology that samplers read at random places of mapped files."""
        return self.indptr.nbytes if self.lists is not None else self.topology_bytes

    @property
    def feature_bytes(self) -> int:
        """Bytes of ``features``."""
        return self.features.nbytes

    def check_features(self) -> None:
        """Raise GraphError if vertices have no features."""
        if not self.num_features:
            raise GraphError(
                f"{self.path or self.name}: its vertices have no features; features=learned, "
                "degrees or projections gives them some (docs/no-features.md)"
            )

    def with_split(self, **parts: IntArray) -> Graph:
        """Return the graph with other vertices in ``parts`` of its split, as ``train_idx=ids``."""
        return replace(self, split=replace(self.split, **parts))

    def with_quantized_features(self, dtype: str) -> Graph:
        """Return the graph with features of a lossy type, in memory (docs/data.md).

        Args:
            dtype: ``int8`` or ``int4``.

        Raises:
            GraphError: it is neither, or a feature is not finite.
        """
        if dtype not in MAX_QUANTIZED:
            raise GraphError(f"{self.name}: features as {dtype}, allowed are int8 and int4")
        width = self.num_features
        rows = np.empty((self.num_vertices, row_length(dtype, width)), np.uint8)
        for part in row_slices(len(rows), 4 * width):
            values = as_float32(self.features[part], self.feature_dtype, width)
            if not np.isfinite(values).all():
                raise GraphError(f"{self.name}: features must be finite")
            rows[part] = quantized(values, dtype)
        return replace(self, features=rows, feature_dtype=dtype, num_quantized=width)

    def without_edge_features(self) -> Graph:
        """Return the graph without features of edges, for a model that does not read them."""
        return replace(self, edges=replace(self.edges, rows=None, features=None))

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Map the graph store at ``path`` read-only; pages are shared by every process.

        Raises:
            GraphError: a file is missing, truncated, of another version, or holds what no graph
                can have. Ids in ``indices`` are checked by the samplers that read them, and rows in
                ``edge_rows`` likewise.
        """
        path = Path(path)
        meta = read_meta(path)
        arrays = map_arrays(path, meta)
        # Another process may have put a new store into its place in between.
        if read_meta(path).content != meta.content:
            raise GraphError(f"{path}: was prepared anew while it was opened; try again")
        if meta.part is not None and meta.part.rows_of is not None:
            rows = ShardedFeatures(
                arrays["features"],
                arrays.pop(OWNER),
                part=meta.part.index,
                num_parts=meta.part.num_parts,
                partition=meta.part.rows_of,
                path=path,
            )
            arrays["features"] = cast(Any, rows)  # it says what of a matrix it is not
        return cls(
            name=meta.name,
            feature_dtype=meta.feature_dtype,
            num_quantized=meta.num_features,
            num_classes=meta.num_classes,
            metric=meta.metric,
            split=Split(**{name: arrays.pop(name) for name in SPLIT_ARRAYS}),
            origin=Origin(
                path=path, content=meta.graph_content, attainable_accuracy=meta.attainable_accuracy
            ),
            edges=EdgeData.taken(arrays, meta),
            **arrays,
        )

    @standard_arithmetic()
    def save(self, path: str | Path) -> None:
        """Write the graph as a store at ``path``, whole or not at all; nothing is replaced.

        ``Graph.open`` reads it, and ``gnnscale train dataset=store dataset.store=PATH`` trains on
        it. Weights, features and labels of edges are kept; numbers of edges, ``edge_ids``, are not.
        Of a graph that was opened, so are the ids of its vertices, the columns and the scaling of
        its features and the names of its classes, if these are still those of its store.

        Args:
            path: a directory that does not exist yet, or is empty. Those above it are made.

        Raises:
            GraphError: ``path`` holds something, or cannot be written; the graph is a part of
                another; or a store cannot hold it: it has no features, some parts of its split are
                empty and others are not, or a vertex to train on or to validate has no label.
        """
        if self.degrees is not None:
            raise GraphError(f"{self.path or self.name}: is one part of a graph, copy its folder")
        parts = (self.train_idx, self.valid_idx, self.test_idx)
        self.origin.split.check(parts, self.name)
        self.origin.split.check_labelled(parts, self.labels, self.name)
        if self.edge_labels is not None:
            split = self.edge_labels.split
            parts = (split.train_idx, split.valid_idx, split.test_idx)
            _EDGE_SPLIT.check(parts, self.name, "edge")
            _EDGE_SPLIT.check_labelled(parts, self.edge_labels.labels, self.name, "edge")
        ids = vertex_dtype(self.num_vertices)
        arrays = {
            "indptr": self.indptr,
            "indices": self.indices.astype(ids, copy=False),
            "features": self.features,
            "labels": self.labels,
        }
        for part in SPLIT_ARRAYS:
            arrays[part] = np.sort(getattr(self, part)).astype(ids)
        arrays |= self.edges.arrays()
        labels = self.edge_labels
        for part in EDGE_SPLITS if labels is not None else ():
            arrays[part] = np.sort(arrays[part]).astype(vertex_dtype(len(arrays[EDGE_LABELS])))
        notes, copied = self._notes()
        write_store(
            Path(path),
            arrays,
            copied=copied,
            name=self.name,
            num_classes=self.num_classes,
            feature_dtype=self.feature_dtype,
            num_features=self.num_features,
            metric=self.metric,
            attainable_accuracy=self.attainable_accuracy,
            edge_labels=None
            if labels is None
            else {"num_classes": labels.num_classes, "metric": labels.metric},
            source="Graph.save",
            options={},
            raw=[],
            **notes,
        )

    def _notes(self) -> tuple[dict[str, Any], list[Path]]:
        """Return what its store says beside the arrays, as far as it is true, and files of it."""
        if self.path is None:
            return {}, []
        stored = Graph.open(self.path)
        pairs = {
            "features": (self.features, stored.features),
            "labels": (self.labels, stored.labels),
            "edge_features": (self.edge_features, stored.edge_features),
        }
        if self.edge_labels is not None and stored.edge_labels is not None:
            pairs["edge_labels"] = self.edge_labels.labels, stored.edge_labels.labels
        unchanged = [name for name, each in pairs.items() if _are_equal(*each)]
        if self.num_vertices == stored.num_vertices:
            unchanged.append("vertices")
        return kept_notes(self.path, unchanged)


def _are_equal(mine: Array | None, stored: Array | None) -> bool:
    """Whether an array is that of a store, mapped or read; False if one of them is None."""
    if isinstance(mine, np.memmap) and isinstance(stored, np.memmap):
        places = [(each.filename, each.offset, each.shape) for each in (mine, stored)]
        return places[0] == places[1]
    return mine is not None and stored is not None and bool(np.array_equal(mine, stored))
