"""Topology with labels of vertices, and their split."""

from dataclasses import dataclass, field

import numpy as np

from gnnscale.core import Array, IntArray
from gnnscale.graph import store_format
from gnnscale.graph.labels import LabelsByType, TypeLabels
from gnnscale.graph.split import Split
from gnnscale.graph.task_rows import TaskRows
from gnnscale.graph.topology import Topology


@dataclass(frozen=True, kw_only=True)
class LabeledTopology(Topology):
    """Labels of vertices and a split, beside the topology of a ``Graph``; see its attributes."""

    labels: IntArray
    num_classes: int
    split: Split = field(default_factory=Split)
    metric: str = "accuracy"
    rows: TaskRows | None = None

    @property
    def _target(self) -> str | None:
        """Name of the vertex type of all training vertices; None: of several types, or none."""
        vertices = self.train_idx
        if self.rows is not None:
            vertices = np.asarray(self.rows.vertices[self.rows.split.train_idx])
        if not len(vertices):
            return None
        ends = np.array([vertices.min(), vertices.max()])
        first, last = self.schema.type_of(ends).tolist()
        return self.vertex_types[first] if first == last else None

    @property
    def train_idx(self) -> IntArray:
        """Ids of training vertices."""
        return self.split.train_idx

    @property
    def valid_idx(self) -> IntArray:
        """Ids of validation vertices."""
        return self.split.valid_idx

    @property
    def test_idx(self) -> IntArray:
        """Ids of test vertices."""
        return self.split.test_idx

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return not self.targets and self.labels.ndim == 2 and not self.regression

    @property
    def regression(self) -> bool:
        """Whether labels are regression targets, not classes."""
        return not self.targets and self.labels.dtype.kind == "f"

    @property
    def type_labels(self) -> tuple[TypeLabels, ...]:
        """Labels of each type if several have labels, else empty."""
        labels: object = self.labels
        return labels.types if isinstance(labels, LabelsByType) else ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the labeled vertex types if several have labels; else empty."""
        return tuple(labels.vertex_type for labels in self.type_labels)

    @property
    def label_arrays(self) -> dict[str, Array]:
        """Arrays of labels by their names in a store: ``labels``, or one of each labeled type."""
        if not self.targets:
            return {"labels": self.labels}
        numbers = map(self.vertex_types.index, self.targets)
        return {
            store_format.typed_labels(number): labels.values
            for number, labels in zip(numbers, self.type_labels, strict=True)
        }
