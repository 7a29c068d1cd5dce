"""Base of the layouts of one file of edges, with features and labels in .npy files."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, check_choice
from gnnscale.core.artifact import check_array, map_npy, row_slices
from gnnscale.core.config.untrusted import names
from gnnscale.data import base, validation
from gnnscale.data.labels import read_labels
from gnnscale.data.storage import StoreWriter
from gnnscale.graph.store_format import METRICS


@dataclass(frozen=True, kw_only=True)
class EdgeFile(base.Dataset):
    """Base of the layouts of one file of edges, with features and labels in .npy files.

    Attributes:
        features: .npy file ``[num_vertices, num_features]`` or ``[num_vertices]``. None: vertices
            have no features.
        labels: .npy file of classes, targets or zeros and ones, one row per vertex. None: vertices
            have no labels.
        metric: one of ``METRICS``. None: the default of the labels.
        weighted: whether the third column holds the edges' weights.
    """

    features: str | None = field(default=None, metadata=names("place", unless="store"))
    labels: str | None = field(default=None, metadata=names("place", unless="store"))
    metric: str | None = None
    weighted: bool = False
    split: str = "random"

    has_split: ClassVar[bool] = False
    _is_users: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric is not None:
            check_choice("dataset.metric", self.metric, METRICS)

    @abstractmethod
    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges of ``file``; each layout implements it.

        ``num_rows`` are the rows of features or labels. None: there are neither. GraphError: the
        edges have other vertices.
        """

    def raw_files(self) -> list[Path]:
        """Return the file of edges, and those of features and labels, if any."""
        path = self.raw_path()
        if path.is_dir():
            raise GraphError(f"dataset.raw={self.raw}: expected {self._raw_form}, got a folder")
        return [path, *(file for file in self._arrays().values() if file is not None)]

    def read(self, writer: StoreWriter) -> None:
        """Push the edges, and features and labels of the .npy files."""
        file = self.raw_files()[0]
        arrays = self._arrays()
        features = _mapped(arrays["features"], "dataset.features")
        labels = _mapped(arrays["labels"], "dataset.labels")
        rows = [len(array) for array in (features, labels) if array is not None]
        if len(set(rows)) > 1:
            raise GraphError(
                f"{arrays['labels']}: {rows[1]} labels for the {rows[0]} rows of "
                f"{arrays['features']}"
            )
        writer.edges.counts_repeated = True
        self.read_edges(file, rows[0] if rows else None, writer)
        _set_features(writer, features, arrays["features"] or file)
        if labels is None or not self._has_labels:
            writer.set_unlabeled()
            return
        source = arrays["labels"]
        advice = "dataset.metric=accuracy makes them classes"
        found = read_labels(
            labels, count=len(labels), source=source, metric=self.metric, advice=advice
        )
        writer.set_labels(
            found.values, num_classes=found.num_classes, metric=found.metric, source=source
        )

    def _arrays(self) -> dict[str, Path | None]:
        """Return the files of features and labels; GraphError: one is no existing .npy file."""
        files: dict[str, Path | None] = {"features": None, "labels": None}
        for option in files:
            value = getattr(self, option)
            if value is not None:
                file = files[option] = base.existing_path(value, f"dataset.{option}")
                if file.suffix != ".npy":
                    raise GraphError(
                        f"dataset.{option}={value}: expected a .npy file, as numpy.save writes it; "
                        "dataset=arrays reads a .npz file"
                    )
        return files


def _mapped(file: Path | None, option: str) -> Array | None:
    """Return the mapped array of a file of numbers or booleans, of 1 or 2 axes."""
    if file is None:
        return None
    array = map_npy(file)
    check_array(array, axes=(1, 2), kinds="biuf", source=file)
    if not len(array):
        raise GraphError(f"{file}: expected a row per vertex ({option}), got none")
    return array


def _set_features(writer: StoreWriter, features: Array | None, source: Path) -> None:
    if features is None:
        writer.set_featureless(source=source)
        return
    rows = features[:, None] if features.ndim == 1 else features
    validation.check_num_features(rows.shape[1], source)
    dtype = "uint8" if rows.dtype.kind == "b" else str(rows.dtype)
    dtype = dtype if dtype in ("float32", "float16", "uint8") else "float32"
    writer.write_features(
        (np.asarray(rows[part]) for part in row_slices(len(rows), rows[:1].nbytes)),
        num_features=rows.shape[1],
        dtype=dtype,
        source=source,
    )
