"""Vertex labels and split of a graph store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gnnscale.core import GraphError
from gnnscale.core.artifact.npy import ArrayEntry, write_array
from gnnscale.core.types import Array, IntArray
from gnnscale.data import validation
from gnnscale.graph import store_format
from gnnscale.graph.store_format import vertex_dtype


class LabelWriter:
    """Writer of the vertex labels and the split of a graph store in the directory ``path``."""

    def __init__(self, path: Path) -> None:
        self.labels: Array | None = None  #: as in a ``Graph``; None before they are set
        self.num_classes = 0  #: classes, or regression targets
        self.metric = "accuracy"  #: one of ``METRICS``
        self.split: tuple[Mapping[str, Array], object] | None = None  #: vertices by part, source
        self._path = path

    def set_labels(
        self,
        labels: Array,
        num_vertices: int,
        *,
        source: object,
        num_classes: int | None,
        metric: str,
    ) -> None:
        """Set labels as ``StoreWriter.set_labels`` describes."""
        assert metric in store_format.METRICS
        if metric == "rmse":
            targets = validation.checked_targets(labels, count=num_vertices, source=source)
            num_targets = 1 if targets.ndim == 1 else targets.shape[1]
            self.labels, self.num_classes, self.metric = targets, num_targets, metric
            return
        if num_classes is None:
            num_classes = validation.count_classes(labels, source)
        if num_classes < 1:
            raise GraphError(f"{source}: no vertex has a label")
        if num_classes > (limit := store_format.MAX_CLASSES):
            raise GraphError(f"{source}: expected up to {limit} classes, got {num_classes}")
        self.labels = validation.checked_labels(
            labels, count=num_vertices, num_classes=num_classes, source=source
        )
        self.num_classes, self.metric = num_classes, metric

    def check_split(self) -> None:
        """Raise GraphError unless the split fits the labels."""
        if self.num_classes and self.split is not None and self.labels is not None:
            split, source = self.split
            validation.check_split(split, self.labels, len(self.labels), source)

    def training_vertices(self) -> IntArray | None:
        """Return the training vertices. None: vertices have no labels, and so no split."""
        if not self.num_classes or self.split is None:
            return None
        return np.asarray(self.split[0]["train"])

    def write(self) -> dict[str, ArrayEntry]:
        """Write labels and sorted split; return the entries of ``meta.json``."""
        assert self.labels is not None
        assert self.split is not None
        arrays = {"labels": self.labels}
        dtype = vertex_dtype(len(self.labels))
        for part, ids in self.split[0].items():
            ids = ids if (ids[1:] >= ids[:-1]).all() else np.sort(ids)  # mostly sorted already
            arrays[f"{part}_idx"] = ids.astype(dtype)
        return {
            name: write_array(self._path / f"{name}.npy", array) for name, array in arrays.items()
        }
