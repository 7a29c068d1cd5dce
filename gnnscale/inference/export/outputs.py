"""Outputs of a model per row: classes, probabilities, logits, values or embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gnnscale.core import (
    Array,
    ConfigError,
    Float32Array,
    Int64Array,
    IntArray,
    binary_metrics,
    check_choice,
    pyarrow,
)
from gnnscale.graph import DATE_CODES, TimeUnit
from gnnscale.nn import TrainableModel
from gnnscale.run.checkpoint.input_schema import InputSchema

#: Outputs that ``answer`` computes from logits.
ANSWERS = ("classes", "probabilities", "logits")

#: Name of the rows of a hidden layer.
EMBEDDINGS = "embeddings"

#: Name of the rows of the last layer if labels are values.
VALUES = "values"


def answer(
    what: str,
    rows: Float32Array,
    *,
    multilabel: bool,
    thresholds: Sequence[float] | None = None,
) -> Array:
    """Return output ``what`` of vertices or edges, from the rows ``[n, width]`` of a model.

    Classes are ``[n]`` int64, the highest logits; with several labels ``[n, num_classes]`` uint8, 1
    for a positive logit; with ``thresholds``, by the logits of ``binary_metrics.shifted``.
    Probabilities are float32: the softmax of a row, or with several labels the sigmoid of each
    logit. Logits, ``EMBEDDINGS`` and ``VALUES`` are the rows.
    """
    if what == "classes":
        logits: Array = rows if thresholds is None else binary_metrics.shifted(rows, thresholds)
        return (logits > 0).astype(np.uint8) if multilabel else logits.argmax(axis=1)
    if what == "probabilities":
        tensor = torch.from_numpy(np.ascontiguousarray(rows))
        probabilities = tensor.sigmoid() if multilabel else tensor.softmax(dim=1)
        return probabilities.numpy()
    return rows


def check_labels(what: str | None, signature: InputSchema) -> None:
    """Raise ConfigError if ``what`` names an output, but labels are regression values."""
    if what is not None and signature.regression:
        raise ConfigError(
            f"what={what}: expected null, as labels of {signature.graph} are values, not classes"
        )


def check_layer(layer: int, num_layers: int, *, inference: str, what: str | None) -> int | None:
    """Return the number of layers to compute, from the first; None: all layers.

    ``layer`` counts from the end: -1 is the last. ConfigError: the layer does not exist, or does
    not support ``inference`` or ``what``.
    """
    if what is not None:
        check_choice("what", what, ANSWERS)
    if not -num_layers <= layer <= -1:
        raise ConfigError(
            f"layer={layer}: expected {-num_layers} to -1 for a model of {num_layers} layers, "
            "where -1 gives logits"
        )
    if layer == -1:
        return None
    if what is not None:
        raise ConfigError(
            f"what={what}: expected null with layer={layer}, whose rows precede the logits"
        )
    if inference != "exact":
        raise ConfigError(
            f"inference={inference}: expected exact with layer={layer}, whose rows are computed "
            "over all neighbors"
        )
    return num_layers + 1 + layer


def num_layers_of(model: TrainableModel) -> int:
    """Return the number of layers whose rows can be written; 1 for a model with logits only."""
    return len(model.layers) if model.infers_by_layer else 1


def width_of(model: TrainableModel, signature: InputSchema, num_layers: int | None) -> int:
    """Return the width of an output row of the first ``num_layers`` layers; None: all layers."""
    if not model.widths or (num_layers is None and signature.is_part):
        return signature.num_classes
    return model.widths[len(model.layers) if num_layers is None else num_layers]


@dataclass(frozen=True, kw_only=True)
class RowIds:
    """Ids of output rows: vertices, or the user's ids of these vertices."""

    vertices: IntArray | None  #: ``[n]`` vertices; None: all vertices of the graph
    #: ``[num_vertices]`` user ids, numbers or texts; None: ids are vertices
    user_ids: "pyarrow.Array | None" = None

    @property
    def are_rows(self) -> bool:
        """Whether the id of a row is its index."""
        return self.vertices is None and self.user_ids is None

    @property
    def num_columns(self) -> int:
        """Number of id columns of a vertex's row: 1."""
        return 1

    def columns(self, first: int, count: int) -> dict[str, Any]:
        """Return the ids of ``count`` rows from row ``first`` on, by name of the table column."""
        return {"id": self.slice(first, count)}

    def slice(self, first: int, count: int) -> Any:
        """Return the ids of ``count`` rows from row ``first`` on, ``[count]``.

        The result is an int64 array of vertices, or an Arrow array of user ids.
        """
        if self.vertices is None:
            rows = np.arange(first, first + count)
            return rows if self.user_ids is None else self.user_ids.slice(first, count)
        rows = self.vertices[first : first + count].astype(np.int64)
        return rows if self.user_ids is None else self.user_ids.take(rows)

    def array(self, first: int, count: int) -> Array:
        """Return ids from row ``first`` on as NumPy; texts are as wide as the longest id."""
        ids = self.slice(first, count)
        array = ids if isinstance(ids, np.ndarray) else ids.to_numpy(zero_copy_only=False)
        return array.astype(f"<U{self.longest}") if array.dtype == object else array

    @property
    def are_texts(self) -> bool:
        """Whether ids are user ids of type text."""
        return self.user_ids is not None and "string" in str(self.user_ids.type)

    @property
    def mean_bytes(self) -> int:
        """Mean bytes of an id over the graph, at least 8."""
        ids = self.user_ids
        return 8 if ids is None else max(8, ids.nbytes // max(len(ids), 1))

    @property
    def array_bytes(self) -> int:
        """Bytes of an id in the NumPy array that ``array`` returns."""
        return self.array(0, 0).dtype.itemsize

    @cached_property
    def longest(self) -> int:
        """Number of characters of the graph's longest text id, at least 1."""
        return int(pyarrow.compute.max(pyarrow.compute.utf8_length(self.user_ids)).as_py() or 1)


@dataclass(frozen=True, kw_only=True)
class CutoffIds(RowIds):
    """Ids of task rows: the ids of their vertices, and their cut-offs."""

    cutoffs: Int64Array  #: ``[n]`` cut-offs
    unit: TimeUnit  #: unit of the cut-offs

    @property
    def num_columns(self) -> int:
        """Number of id columns of a row: 2, the vertex and the cut-off."""
        return 2

    def columns(self, first: int, count: int) -> dict[str, Any]:
        """Return the ids of ``count`` rows as columns ``id`` and ``cutoff``, a date or a number."""
        cutoffs = self.cutoffs[first : first + count]
        if self.unit == "step":
            return {"id": self.slice(first, count), "cutoff": cutoffs}
        dates = pyarrow.array(cutoffs.astype(f"datetime64[{DATE_CODES[self.unit]}]"))
        return {"id": self.slice(first, count), "cutoff": dates}

    def array(self, first: int, count: int) -> Array:
        """Return ids and cut-offs as a NumPy array of records ``(id, cutoff)``, ``[count]``."""
        ids = super().array(first, count)
        records = np.empty(len(ids), [("id", ids.dtype), ("cutoff", np.int64)])
        records["id"], records["cutoff"] = ids, self.cutoffs[first : first + count]
        return records


@dataclass(frozen=True, kw_only=True)
class EdgeIds(RowIds):
    """Ids of edges: the ids of both ends; ``vertices`` is ``[n, 2]``, sources and destinations."""

    @property
    def num_columns(self) -> int:
        """Number of id columns of an edge's row: 2, the ids of its source and destination."""
        return 2

    def columns(self, first: int, count: int) -> dict[str, Any]:
        """Return the ids of ``count`` edges as columns ``source`` and ``target``."""
        source, target = (ids.slice(first, count) for ids in self._ends())
        return {"source": source, "target": target}

    def array(self, first: int, count: int) -> Array:
        """Return the ids of both ends as a NumPy array, ``[count, 2]``."""
        return np.stack([ids.array(first, count) for ids in self._ends()], axis=1)

    def _ends(self) -> list[RowIds]:
        assert self.vertices is not None
        return [RowIds(vertices=ends, user_ids=self.user_ids) for ends in self.vertices.T]
