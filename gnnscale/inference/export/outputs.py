"""What is made of a model's rows: classes, probabilities, logits; or embeddings as they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnscale.core import Array, ConfigError, Float32Array, IntArray, check_choice
from gnnscale.nn import TrainableModel
from gnnscale.run.checkpoint.input_schema import InputSchema

if TYPE_CHECKING:
    import pyarrow

#: What ``answer`` makes of logits.
ANSWERS = ("classes", "probabilities", "logits")

#: What rows of a hidden layer are called.
EMBEDDINGS = "embeddings"

#: What rows of the last layer are called when labels are values, not classes.
VALUES = "values"


def answer(what: str, rows: Float32Array, *, multilabel: bool) -> Array:
    """Turn rows of a model into what is asked for.

    Args:
        what: one of ``ANSWERS``, or ``EMBEDDINGS`` or ``VALUES`` for rows as they are.
        rows: ``[n, width]``.

    Returns:
        ``[n]`` int64 classes, those of the highest logit; with several labels
        ``[n, num_classes]`` uint8, 1 for a positive logit. Probabilities are float32, the
        softmax of a row, or the sigmoid of each logit with several labels.
    """
    if what == "classes":
        return (rows > 0).astype(np.uint8) if multilabel else rows.argmax(axis=1)
    if what == "probabilities":
        logits = torch.from_numpy(np.ascontiguousarray(rows))
        found = logits.sigmoid() if multilabel else logits.softmax(dim=1)
        return found.numpy()
    return rows


def check_labels(what: str | None, signature: InputSchema) -> None:
    """Refuse classes of a model whose labels are values.

    Raises:
        ConfigError: ``what`` is asked for, and there are none.
    """
    if what is not None and signature.regression:
        raise ConfigError(
            f"what={what}: labels of {signature.graph} are values, not classes; leave it out"
        )


def check_layer(layer: int, num_layers: int, *, inference: str, what: str | None) -> int | None:
    """Return how many layers of ``num_layers`` are computed; None for all, which gives logits.

    Args:
        layer: counted from the end, as in a Python list: -1 is the last.
        what: is made of the rows, None if nothing was asked for.

    Raises:
        ConfigError: there is no such layer, or ``inference`` or ``what`` do not go with it.
    """
    if what is not None:
        check_choice("what", what, ANSWERS)
    if not -num_layers <= layer <= -1:
        raise ConfigError(
            f"layer={layer}: the model has {num_layers} layers; allowed are {-num_layers} to -1, "
            "whose rows are the logits"
        )
    if layer == -1:
        return None
    if what is not None:
        raise ConfigError(
            f"what={what}: is made of logits, and layer={layer} gives rows before them; leave one "
            "of them out"
        )
    if inference != "exact":
        raise ConfigError(
            f"inference={inference}: gives logits alone; rows of layer={layer} are computed over "
            "all neighbours, inference=exact"
        )
    return num_layers + 1 + layer


def num_layers_of(model: TrainableModel) -> int:
    """Return the layers whose rows can be taken; 1 for a model that has logits alone."""
    return len(model.layers) if model.infers_by_layer else 1


def width_of(model: TrainableModel, signature: InputSchema, num_layers: int | None) -> int:
    """Return the length of a row of the first ``num_layers`` layers, of all if None."""
    if not model.widths:
        return signature.num_classes
    return model.widths[len(model.layers) if num_layers is None else num_layers]


@dataclass(frozen=True, kw_only=True)
class RowIds:
    """Ids of the rows of some vertices."""

    #: ``[n]`` numbers of the vertices; None for all of the graph
    vertices: IntArray | None
    #: ``[num_vertices]`` the user's ids, whole numbers or texts; None if there are none
    own: pyarrow.Array | None = None

    @property
    def are_rows(self) -> bool:
        """Whether the id of a row is its number."""
        return self.vertices is None and self.own is None

    @property
    def num_columns(self) -> int:
        """Ids of a row."""
        return 1

    def columns(self, first: int, count: int) -> dict[str, Any]:
        """Return the ids of ``count`` rows from row ``first`` on, as columns of a table."""
        return {"id": self.slice(first, count)}

    def slice(self, first: int, count: int) -> Any:
        """Return the ids of ``count`` rows from row ``first`` on, ``[count]``.

        They are int64, or an Arrow array of the user's ids.
        """
        if self.vertices is None:
            rows = np.arange(first, first + count)
            return rows if self.own is None else self.own.slice(first, count)
        rows = self.vertices[first : first + count].astype(np.int64)
        return rows if self.own is None else self.own.take(rows)

    def array(self, first: int, count: int) -> Array:
        """Return the same as NumPy has it; texts are as long as the longest of the graph."""
        ids = self.slice(first, count)
        found = ids if isinstance(ids, np.ndarray) else ids.to_numpy(zero_copy_only=False)
        return found.astype(f"<U{self.longest}") if found.dtype == object else found

    @property
    def are_texts(self) -> bool:
        """Whether ids are the user's own texts."""
        return self.own is not None and "string" in str(self.own.type)

    @property
    def mean_bytes(self) -> int:
        """Bytes of an id, on the average over the graph; at least 8."""
        return 8 if self.own is None else max(8, self.own.nbytes // max(len(self.own), 1))

    @property
    def array_bytes(self) -> int:
        """Bytes of an id as ``array`` has it."""
        return self.array(0, 0).dtype.itemsize

    @cached_property
    def longest(self) -> int:
        """Characters of the longest of the graph's texts, at least 1."""
        from pyarrow import compute

        return int(compute.max(compute.utf8_length(self.own)).as_py() or 1)


@dataclass(frozen=True, kw_only=True)
class EdgeIds(RowIds):
    """Ids of the ends of some edges; ``vertices`` are ``[n, 2]``, sources and targets."""

    @property
    def num_columns(self) -> int:
        """Ids of a row."""
        return 2

    def columns(self, first: int, count: int) -> dict[str, Any]:
        """Return the ids of both ends, of ``count`` rows from row ``first`` on."""
        source, target = (each.slice(first, count) for each in self._ends())
        return {"source": source, "target": target}

    def array(self, first: int, count: int) -> Array:
        """Return both as NumPy has them, ``[count, 2]``."""
        return np.stack([each.array(first, count) for each in self._ends()], axis=1)

    def _ends(self) -> tuple[RowIds, RowIds]:
        assert self.vertices is not None
        source, target = self.vertices.T
        return RowIds(vertices=source, own=self.own), RowIds(vertices=target, own=self.own)
