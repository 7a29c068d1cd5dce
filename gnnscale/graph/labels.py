"""Labels of vertices or edges: which are known, and those of several vertex types."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, IntArray
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph.schema import GraphSchema

#: Bytes of labels and vertex ids checked at a time.
_LABEL_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class TypeLabels:
    """Labels of the vertices of one type, in a graph with labels of several."""

    vertex_type: str  #: name of the type
    vertices: slice  #: ids of the type
    values: Array  #: of all vertices, in a form of ``Graph.labels``, unknown outside the type
    num_classes: int  #: number of classes or regression targets
    metric: str  #: default metric
    classes: list[str] | None = None  #: names of the classes. None: they have no names

    def of_type(self, ids: Array) -> BoolArray:
        """Return ``[n]``, whether each of the vertices ``ids`` is of the type."""
        return np.asarray((ids >= self.vertices.start) & (ids < self.vertices.stop))


class LabelsByType:
    """Labels of several vertex types, each with its own kind and number of classes.

    The object replaces the one array as ``Graph.labels``. Indexing it raises GraphError:
    ``Graph.of_target`` has the labels of one type.
    """

    def __init__(self, types: Iterable[TypeLabels]) -> None:
        """Hold the labels of at least two types, in the order of the schema."""
        self.types = tuple(types)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labeled vertex types, in the order of the schema."""
        return tuple(labels.vertex_type for labels in self.types)

    def are_known(self, ids: IntArray) -> BoolArray:
        """Return ``[n]``, whether each of the vertices ``ids`` has a label."""
        is_known = np.zeros(len(ids), np.bool_)
        for labels in self.types:
            rows = np.flatnonzero(labels.of_type(ids))
            is_known[rows] = has_label(labels.values[ids[rows]])
        return is_known

    def refused(self) -> GraphError:
        """Return the error for a reader of one array of labels; the caller raises it."""
        return GraphError(
            f"labels: expected of one vertex type, got of {' and '.join(self.names)}; "
            f"graph.of_target({self.names[0]!r}) has those of one, and so has "
            f"task.target={self.names[0]}"
        )

    def __len__(self) -> int:
        return len(self.types[0].values)

    def __getitem__(self, index: object) -> NoReturn:
        raise self.refused()

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise self.refused()

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("dtype", "ndim", "shape"):
            raise self.refused()
        raise AttributeError(name)


def has_label(labels: Array) -> BoolArray:
    """Return ``[n]``, whether each row of ``labels``, in a form of ``Graph.labels``, is known.

    Class -1 is unknown, and so is a row of targets that are all NaN; multilabel rows are known.
    """
    if labels.dtype.kind == "f":
        is_number: BoolArray = ~np.isnan(labels)
        return is_number if labels.ndim == 1 else np.asarray(is_number.any(axis=1))
    if labels.ndim == 2:
        return np.ones(len(labels), np.bool_)
    return np.asarray(labels >= 0)


def are_labeled(labels: Any, ids: Array) -> BoolArray:
    """Return ``[n]``, whether each of ``ids`` is known in ``labels``, those of a graph."""
    return labels.are_known(ids) if isinstance(labels, LabelsByType) else has_label(labels[ids])


def labeled_vertices(labels: Array, schema: GraphSchema) -> slice:
    """Return the vertices of the only type that has ``labels``; none if no vertex has a label.

    ``labels`` are of all vertices, in a form of ``Graph.labels``. GraphError: several types have
    labels. A multi-label type has at least one label.
    """
    is_multilabel = labels.ndim == 2 and labels.dtype.kind != "f"
    labeled = np.flatnonzero(labels.any(axis=1) if is_multilabel else has_label(labels))
    types = np.unique(schema.type_of(labeled[[0, -1]])) if len(labeled) else labeled
    if len(types) > 1:
        names = " and ".join(schema.vertex_types[number].name for number in types)
        raise GraphError(f"labels: expected of one vertex type, got of {names}")
    return schema.vertices(int(types[0])) if len(types) else slice(0, 0)


def check_labeled(
    labels: Any, ids: Array, *, source: object, of: str, part: str = "", hint: str = ""
) -> None:
    """Raise GraphError if some of ``ids``, of vertices or edges, have no label in ``labels``.

    The message names the first id; ``source``, ``of`` (``vertex`` or ``edge``), ``part`` and
    ``hint`` are texts of the message.
    """
    first, count = None, 0
    arrays: Sequence[Array] = (
        [of_type.values for of_type in labels.types]
        if isinstance(labels, LabelsByType)
        else [labels]
    )
    row_bytes = ids[:1].nbytes + max(array[:1].nbytes for array in arrays)
    for rows in row_slices(len(ids), row_bytes, _LABEL_BYTES):
        labeled = are_labeled(labels, ids[rows])
        count += len(labeled) - np.count_nonzero(labeled)
        if first is None and not labeled.all():
            first = int(ids[rows][labeled.argmin()])
    if first is not None:
        of_part = f" of {part}" if part else ""
        raise GraphError(
            f"{source}: {of} {first}{of_part} has no label; {count} of {len(ids)} lack one{hint}"
        )
