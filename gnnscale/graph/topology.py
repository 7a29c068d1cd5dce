"""Topology of a graph: in-neighbor lists, data and labels of edges, origin; sums of weights."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gnnscale.core import (
    Array,
    ConfigError,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    UInt32Array,
    brief,
)
from gnnscale.graph import store_format, store_meta
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.split import Split, SplitSource
from gnnscale.graph.times import GraphTimes
from gnnscale.graph.typed_edge_store import edge_matrices
from gnnscale.graph.typed_features import TypedFeatures

#: Number of types that an error lists, at most.
_MAX_LISTED = 8
#: Names of the split of edges in ``from_arrays``, which takes it as one argument.
_EDGE_SPLIT = SplitSource(
    names=("edge_split[0]", "edge_split[1]", "edge_split[2]"),
    hint=(
        "gnnscale.data.random_edge_split(edge_labels, ends, (0.6, 0.2), seed=0) draws them, "
        "where row i of ends is the source and destination of edge i"
    ),
)


@dataclass(frozen=True, kw_only=True)
class EdgeLabels:
    """Labels and split of a graph's edges, one label for each edge of the input."""

    name: str  #: name of the graph
    #: ``[num_rows]`` int64 class, -1 if unknown; or float32 regression target, NaN if unknown
    labels: Array
    num_classes: int  #: number of classes, 1 for regression
    split: Split  #: rows of training, validation and test
    metric: str = "accuracy"  #: ``accuracy``, ``roc_auc`` or ``rmse``

    @property
    def multilabel(self) -> bool:
        """False: an edge has one class."""
        return False

    def refuse_untrained(self) -> NoReturn:
        """Raise GraphError that no edge trains."""
        _EDGE_SPLIT.refuse_empty(self.name, "edge")

    def check_split(self) -> None:
        """Raise GraphError for a split without training, or an unlabeled edge that trains."""
        parts = (self.split.train_idx, self.split.valid_idx, self.split.test_idx)
        _EDGE_SPLIT.check(parts, self.name, "edge")
        _EDGE_SPLIT.check_labeled(parts, self.labels, self.name, "edge")


@dataclass(frozen=True, kw_only=True)
class EdgeData:
    """Data of edges: weights, ids and row numbers in the order of ``Graph.indices``.

    Features, ends and labels are indexed by the row numbers, which in a graph with types count from
    0 in each edge type.
    """

    #: ``[num_edges]`` float32, finite and not negative. None: all edges weigh 1
    weights: Float32Array | None = None
    #: ``[num_edges]`` int64 numbers of edges in the input. None: positions in ``indices``
    ids: Int64Array | None = None
    #: ``[num_edges]`` uint32 row in ``features`` or, with types, in the matrix of the edge's type;
    #: shared with the reverse. None: no features
    rows: UInt32Array | None = None
    #: ``[num_rows, num_edge_features]`` float32, finite. None: edges have no features
    features: Float32Array | None = None
    #: ``[num_rows, 2]`` ends of each row of features and labels. None: edges have neither
    ends: IntArray | None = None
    #: labels of the rows. None: edges have no labels
    labels: EdgeLabels | None = None
    #: ``[num_rows]`` int64 own times of the edges in ``ends``, in the unit of ``GraphTimes``. None:
    #: edges have none of their own
    row_times: Int64Array | None = None
    #: features of each edge type, in place of ``features``. None: no edge type has any
    by_type: TypedFeatures | None = None
    #: edge type whose edges ``ends`` lists, by its number. None: unknown, or there are no types
    labeled_type: int | None = None

    @classmethod
    def from_store(cls, arrays: dict[str, Array], meta: store_meta.StoreMeta) -> "EdgeData":
        """Remove the arrays of edges from a store's ``arrays``; return them as ``EdgeData``."""
        labels = arrays.pop(store_format.EDGE_LABELS, None)
        split = Split(
            **{
                name: arrays.pop(stored)
                for name, stored in zip(
                    store_format.SPLIT_ARRAYS, store_format.EDGE_SPLITS, strict=True
                )
                if stored in arrays
            }
        )
        entry, types = meta.edge_labels, meta.types
        return cls(
            weights=arrays.pop(store_format.WEIGHTS, None),
            rows=arrays.pop(store_format.EDGE_ROWS, None),
            features=arrays.pop(store_format.EDGE_FEATURES, None),
            ends=arrays.pop(store_format.EDGE_ENDS, None),
            labels=None
            if entry is None or labels is None
            else EdgeLabels(
                name=meta.name,
                labels=labels,
                num_classes=entry.num_classes,
                split=split,
                metric=entry.metric,
            ),
            row_times=arrays.pop(store_format.EDGE_ROW_TIMES, None),
            by_type=None if types is None else edge_matrices(arrays, types.edge_features),
            labeled_type=None if types is None else types.labeled_edges,
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are not None by their names in a store, which lacks ``ids``."""
        arrays: dict[str, Array | None] = {
            store_format.WEIGHTS: self.weights,
            store_format.EDGE_ROWS: self.rows,
            store_format.EDGE_FEATURES: self.features,
            store_format.EDGE_ENDS: self.ends,
            store_format.EDGE_ROW_TIMES: self.row_times,
        }
        if self.labels is not None:
            arrays[store_format.EDGE_LABELS] = self.labels.labels
            for name, stored in zip(
                store_format.SPLIT_ARRAYS, store_format.EDGE_SPLITS, strict=True
            ):
                arrays[stored] = getattr(self.labels.split, name)
        if self.by_type is not None:
            pairs = zip(self.by_type.owners, self.by_type.matrices, strict=True)
            arrays |= {
                store_format.typed_edge_features(number): matrix.rows
                for number, matrix in pairs
                if matrix is not None
            }
        return {name: array for name, array in arrays.items() if array is not None}


#: Number of adjacency lists whose weights are summed at a time.
_LISTS = 1 << 18


def list_sums(indptr: Int64Array, values: Float32Array) -> Float32Array:
    """Return the float32 sums of ``values[indptr[i]:indptr[i + 1]]``, accumulated in float64."""
    sums = np.zeros(len(indptr) - 1, np.float32)
    filled = np.diff(indptr) > 0
    if filled.any():
        with np.errstate(over="ignore", invalid="ignore"):  # of damaged weights
            sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=np.float64)
    return sums


def checked_list_sums(indptr: Int64Array, weights: Float32Array, *, source: object) -> Float32Array:
    """Return the float32 sum of edge ``weights`` in each list by ``indptr``, in bounded memory.

    GraphError, which names ``source``: offsets are out of order, or a sum is negative or not
    finite.
    """
    num_vertices = len(indptr) - 1
    sums = np.empty(num_vertices, np.float32)
    for first in range(0, num_vertices, _LISTS):
        ends = np.asarray(indptr[first : first + _LISTS + 1])
        if ends[0] < 0 or ends[-1] > len(weights) or (np.diff(ends) < 0).any():
            raise GraphError(
                f"{source}: damaged, indptr: lists between vertices {first} and "
                f"{first + len(ends) - 1} do not lie in order within the {len(weights)} weights; "
                "gnnscale doctor store=DIR shows more"
            )
        values = np.asarray(weights[ends[0] : ends[-1]])
        part = list_sums(ends - ends[0], values)
        valid = (part >= 0) & np.isfinite(part)
        if not valid.all():
            i = int(valid.argmin())
            if part[i] == np.inf and np.isfinite(values).all():
                raise GraphError(
                    f"{source}: edge_weights: those of the in-edges of vertex {first + i} add up "
                    "to more than float32 holds; scale all weights"
                )
            raise GraphError(
                f"{source}: damaged, edge_weights: those of the in-edges of vertex {first + i} "
                f"add up to {part[i]}; gnnscale doctor store=DIR looks at all of it"
            )
        sums[first : first + _LISTS] = part
    return sums


def damaged_lists(graph: "Topology") -> GraphError:
    """Return the error for a source that is no vertex of its type; the caller raises it."""
    return GraphError(
        f"{graph.path or graph.name}: damaged, indices: a source is no vertex of its type; "
        "gnnscale doctor store=DIR looks at all of it"
    )


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Source of a graph: path and digest of its store, and names of its split for errors."""

    path: Path | None = None  #: the graph store. None: the graph is in memory
    content: str | None = None  #: hex digest of the store's content. None: the graph is in memory
    #: best test accuracy that the graph's generator allows. None: unknown
    attainable_accuracy: float | None = None
    #: whether the features are the store's, and not computed or learned by a run
    has_stored_features: bool = True
    #: names of labels and of the split's parts at their source
    split: SplitSource = field(default_factory=SplitSource)
    #: Arrow array ``[num_vertices]`` of the users' ids of a graph in memory, int64 or large_string.
    #: None: they are vertex numbers, or in the store
    ids: Any = field(default=None, compare=False)
    #: names of the classes of a graph in memory. None: no names, or in the store
    classes: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Name, origin, in-neighbor lists and data of edges of a ``Graph``; see its attributes."""

    name: str
    indptr: Int64Array
    indices: IntArray
    origin: Origin = Origin()
    degrees: UInt32Array | None = None
    edges: EdgeData = field(default_factory=EdgeData)
    lists: Any = None
    types: GraphSchema | None = None
    times: GraphTimes | None = None

    @cached_property
    def schema(self) -> GraphSchema:
        """Types of vertices and edges; one of each if the graph has no ``types``."""
        return self.types or GraphSchema.homogeneous(len(self.indptr) - 1)

    @property
    def vertex_types(self) -> list[str]:
        """Names of the vertex types; empty: vertices have no types."""
        return [] if self.types is None else [entry.name for entry in self.types.vertex_types]

    def refuse_types(self, purpose: str) -> None:
        """Raise ConfigError if vertices have types, which ``purpose`` does not support."""
        if self.types is not None:
            names = self.vertex_types
            listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
            raise ConfigError(
                f"dataset: expected a graph without types for {purpose}, got {self.name} with "
                f"vertices of {brief(listed)}; gnnscale train model=rsage trains on it"
            )

    @property
    def edge_weights(self) -> Float32Array | None:
        """``[num_edges]`` weights. None: all edges weigh 1."""
        return self.edges.weights

    @property
    def edge_ids(self) -> Int64Array | None:
        """``[num_edges]`` index of each edge in the input. None: its position in ``indices``."""
        return self.edges.ids

    @property
    def edge_rows(self) -> UInt32Array | None:
        """``[num_edges]`` row in ``edge_features`` of each edge. None: edges have no features."""
        return self.edges.rows

    @property
    def edge_features(self) -> Float32Array | None:
        """``[num_rows, num_edge_features]``, indexed by ``edge_rows``. None: no features.

        Edges of a graph with types have theirs in ``edges.by_type``.
        """
        return self.edges.features

    @property
    def labeled_edge_features(self) -> Array | None:
        """``[num_rows, f]`` features of the edges in ``edges.ends``. None: no features."""
        by_type, number = self.edges.by_type, self.edges.labeled_type
        matrix = None if by_type is None or number is None else by_type.matrices[number]
        return self.edge_features if matrix is None else matrix.rows

    @property
    def num_labeled_edge_features(self) -> int:
        """Number of features of an edge in ``edges.ends``."""
        features = self.labeled_edge_features
        return 0 if features is None else int(features.shape[1])

    @property
    def edge_labels(self) -> EdgeLabels | None:
        """Labels and split of edges. None: edges have no labels."""
        return self.edges.labels

    @property
    def num_edge_features(self) -> int:
        """Number of features of an edge; with types, of the widest edge type."""
        if self.edges.by_type is not None:
            return max(self.edges.by_type.widths)
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    @property
    def num_vertices(self) -> int:
        """Number of vertices, of all types."""
        return len(self.indptr) - 1 if self.types is None else self.types.num_vertices

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return len(self.indices)

    @property
    def topology_bytes(self) -> int:
        """Bytes of ``indptr`` and ``indices``."""
        return self.indptr.nbytes + self.indices.nbytes

    @property
    def mapped_bytes(self) -> int:
        """Bytes of ``indptr``, and of ``indices`` unless samplers read neighbors from disk.

        Samplers read these at random in memory or mapped files.
        """
        return self.indptr.nbytes if self.lists is not None else self.topology_bytes

    @property
    def path(self) -> Path | None:
        """Path of the graph store. None: the graph is in memory."""
        return self.origin.path

    @property
    def content(self) -> str | None:
        """Hex digest of the store's content, for a shard of the full graph's. None: in memory."""
        return self.origin.content

    @property
    def attainable_accuracy(self) -> float | None:
        """Best test accuracy that the graph's generator allows. None: unknown."""
        return self.origin.attainable_accuracy

    @cached_property
    def weight_sums(self) -> Float32Array | None:
        """``[num_vertices]`` sum of the weights of each vertex's in-edges. None: all weigh 1.

        The first use reads all weights, and refuses damaged ones. NaN: the adjacency list of the
        vertex is missing in this part of a graph.
        """
        if self.edge_weights is None:
            return None
        source = self.path or self.name
        sums = checked_list_sums(self.indptr, self.edge_weights, source=source)
        if self.degrees is not None:
            sums[(np.asarray(self.degrees) > 0) & (np.diff(self.indptr) == 0)] = np.nan
        return sums
