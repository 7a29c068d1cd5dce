"""Data of edges: weights, features, labels and ids."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.core import Array, Float32Array, Int64Array, IntArray, UInt32Array
from gnnscale.graph import store_format
from gnnscale.graph.split import Split, SplitSource

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
    """Labels and split of edges, one label for each published edge."""

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

    def check_split(self) -> None:
        """Raise GraphError for an incomplete split, or an unlabeled training or validation edge."""
        parts = (self.split.train_idx, self.split.valid_idx, self.split.test_idx)
        _EDGE_SPLIT.check(parts, self.name, "edge")
        _EDGE_SPLIT.check_labeled(parts, self.labels, self.name, "edge")


@dataclass(frozen=True, kw_only=True)
class EdgeData:
    """Data of edges, in the order of ``Graph.indices``."""

    #: ``[num_edges]`` float32, finite and not negative. None: all edges weigh 1
    weights: Float32Array | None = None
    #: ``[num_edges]`` int64 number of each edge in the arrays from which the graph was built. None:
    #: an edge's number is its position in ``indices``
    ids: Int64Array | None = None
    #: ``[num_edges]`` uint32 row in ``features`` of each edge; an edge and its reverse share a row.
    #: None: edges have no features
    rows: UInt32Array | None = None
    #: ``[num_rows, num_edge_features]`` float32, finite. None: edges have no features
    features: Float32Array | None = None
    #: ``[num_rows, 2]`` source and destination of each row of features and labels. None: edges have
    #: neither
    ends: IntArray | None = None
    #: labels of the rows. None: edges have no labels
    labels: EdgeLabels | None = None

    @classmethod
    def from_store(cls, arrays: dict[str, Array], meta: store_format.StoreMeta) -> EdgeData:
        """Return the data of edges in a store; removes its arrays from ``arrays``."""
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
        entry = meta.edge_labels
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
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a store by name; a store has no ``ids``."""
        arrays: dict[str, Array | None] = {
            store_format.WEIGHTS: self.weights,
            store_format.EDGE_ROWS: self.rows,
            store_format.EDGE_FEATURES: self.features,
            store_format.EDGE_ENDS: self.ends,
        }
        if self.labels is not None:
            arrays[store_format.EDGE_LABELS] = self.labels.labels
            for name, stored in zip(
                store_format.SPLIT_ARRAYS, store_format.EDGE_SPLITS, strict=True
            ):
                arrays[stored] = getattr(self.labels.split, name)
        return {name: array for name, array in arrays.items() if array is not None}
