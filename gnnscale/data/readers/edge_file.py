"""Base of the layouts of one file of edges, with features and labels in .npy files."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from gnnscale.core import Array, GraphError, check_choice
from gnnscale.core.artifact import check_array, map_npy
from gnnscale.core.config.untrusted import names
from gnnscale.data import base, raw_paths
from gnnscale.data.storage import StoreWriter
from gnnscale.graph.store_format import METRICS


@dataclass(frozen=True, kw_only=True)
class EdgeFormat(base.Dataset):
    """Base of the layouts of one file of edges, with features and labels in .npy files.

    Attributes:
        features_file: .npy file ``[num_vertices, num_features]`` or ``[num_vertices]``. None:
            vertices have no features.
        labels_file: .npy file of classes, targets or zeros and ones, one row per vertex. None:
            vertices have no labels.
        metric: one of ``METRICS``. None: the default of the labels.
        weighted: whether the third column holds the edges' weights.
    """

    features_file: str | None = field(default=None, metadata=names("place", unless="store"))
    labels_file: str | None = field(default=None, metadata=names("place", unless="store"))
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
        return [path, *filter(None, (self._file("features_file"), self._file("labels_file")))]

    def read(self, writer: StoreWriter) -> None:
        """Push the edges, and features and labels of the .npy files."""
        edges = self.raw_files()[0]
        feature_file, label_file = self._file("features_file"), self._file("labels_file")
        features, labels = _mapped(feature_file), _mapped(label_file)
        rows = [len(array) for array in (features, labels) if array is not None]
        if len(set(rows)) > 1:
            raise GraphError(f"{label_file}: {rows[1]} labels for {rows[0]} rows of {feature_file}")
        writer.edges.counts_repeated = True
        self.read_edges(edges, rows[0] if rows else None, writer)
        if features is None:
            writer.set_featureless(source=edges)
        else:
            rows_of = features[:, None] if features.ndim == 1 else features
            writer.write_matrix(rows_of, source=feature_file)
        if labels is None or not self._has_labels:
            writer.set_unlabeled()
        else:
            writer.set_labels(labels, metric=self.metric, source=label_file)

    def _file(self, option: str) -> Path | None:
        """Return the file that an option names, or None; GraphError: no existing .npy file."""
        name = getattr(self, option)
        if name is None:
            return None
        file = raw_paths.existing_path(name, f"dataset.{option}")
        if file.suffix != ".npy":
            raise GraphError(
                f"dataset.{option}={name}: expected a .npy file, as numpy.save writes it; "
                "dataset=arrays reads a .npz file"
            )
        return file


def _mapped(file: Path | None) -> Array | None:
    """Return the mapped array of a file of numbers or booleans, of 1 or 2 axes."""
    if file is None:
        return None
    array = map_npy(file)
    check_array(array, axes=(1, 2), kinds="biuf", source=file)
    if not len(array):
        raise GraphError(f"{file}: expected a row per vertex, got none")
    return array
