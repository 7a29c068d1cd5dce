"""Writer of a graph store, filled by a reader in chunks and in bounded memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, IntArray
from gnnscale.core.artifact.npy import map_npy, row_slices, write_array
from gnnscale.data import validation
from gnnscale.data.formats.sparse import CsrMatrix, dense_rows
from gnnscale.data.labels import Labels, read_labels
from gnnscale.data.storage.edge_writer import EdgeWriter
from gnnscale.data.storage.feature_writer import FeatureWriter, stored_type
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.store_check import RawFile
from gnnscale.graph import TimeUnit, store_meta, vertex_dtype

SPLITS = ("train", "valid", "test")


class StoreWriter:
    """Writer of a graph store in an empty directory; a context manager.

    A reader sets the number of vertices first, then pushes edges, features, labels and split in any
    order. Data are checked on arrival, splits at the end; errors name ``source``. Example::

        writer.set_num_vertices(3, source="raw")
        writer.add_edges(np.array([0, 2]), np.array([1, 1]), source="raw")
        writer.finish(name="tiny", source="raw", options={})

    ``advises`` says whether to warn about features that impede training.
    """

    def __init__(self, path: Path, options: StoreOptions, *, advises: bool = True) -> None:
        self.path = path  #: directory of the store
        self.notes: dict[str, Any] = {}  #: further entries of ``meta.json``
        #: group of each vertex ``[num_vertices]``, for a random split; negative: its own group
        self.groups: Array | None = None
        #: unit of the times of vertices and edges. None: they have no times
        self.time_unit: TimeUnit | None = None
        self.edges = EdgeWriter(path, options, self.notes, advises=advises)
        self._features = FeatureWriter(path, options, self.notes, advises=advises)
        self._labels: Labels | None = None
        self._split: tuple[Mapping[str, Array], object] | None = None  #: vertices by part; source

    @property
    def num_vertices(self) -> int:
        """Number of vertices; GraphError before it is set."""
        return self.edges.num_vertices

    @property
    def labels(self) -> Array:
        """Labels of the vertices; GraphError before they are set."""
        if self._labels is None:
            raise GraphError(f"{self.path}: labels are needed before this step")
        return self._labels.values

    @property
    def has_labels(self) -> bool:
        """Whether any vertex has a label."""
        return self._labels is not None and self._labels.num_classes > 0

    @property
    def split(self) -> Sequence[Array] | None:
        """Ids of training, validation and test vertices, unchecked; None before they are set."""
        return None if self._split is None else list(self._split[0].values())

    def set_num_vertices(self, num_vertices: int, *, source: object) -> None:
        """Set the number of vertices; required before all other data."""
        self.edges.set_num_vertices(num_vertices, source)

    def add_edges(
        self,
        src: Array,
        dst: Array,
        *,
        weights: Array | None = None,
        features: Array | None = None,
        times: Int64Array | None = None,
        source: object,
    ) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``, integers ``[num_edges]``.

        ``weights`` ``[num_edges]`` are finite and not negative (None: all are 1), ``features``
        ``[num_edges, num_edge_features]`` finite (None: edges have no features), ``times``
        ``[num_edges]`` in ``time_unit`` (None: edges have none of their own); each is in all calls
        or in none. GraphError, naming ``source``, for other ids, weights or features.
        """
        self.edges.add(src, dst, weights, features, source, times)

    def set_vertex_times(self, times: Int64Array) -> None:
        """Set the times ``[num_vertices]`` from which vertices are known, before ``finish``."""
        self.edges.set_vertex_times(times)

    def build_topology(self) -> tuple[Int64Array, IntArray]:
        """Write and return ``indptr`` and ``indices``, mapped; no edge may follow."""
        self.edges.write_topology()
        return map_npy(self.path / "indptr.npy"), map_npy(self.path / "indices.npy")

    def write_features(
        self, chunks: Iterable[Array], *, num_features: int, dtype: str, source: object
    ) -> None:
        """Write the feature rows of all vertices.

        ``chunks`` are arrays ``[rows, num_features]`` in order, in total one row per vertex.
        ``dtype`` is the entry of ``FEATURE_DTYPES`` that holds the values; the option
        ``feature_dtype`` overrides it (ConfigError if it cannot hold a value). GraphError: a row is
        missing, has another length, or has a value that is not finite.
        """
        self._features.write(chunks, (self.num_vertices, num_features), dtype, source)

    def write_matrix(self, rows: Array | CsrMatrix, *, source: object) -> None:
        """Write the feature rows ``[num_vertices, k]`` of an array, mapped perhaps, or CSR matrix.

        Numbers of another type than ``stored_type`` names become float32.
        """
        if isinstance(rows, np.ndarray):
            parts = row_slices(len(rows), rows[:1].nbytes)
            chunks: Iterable[Array] = (np.asarray(rows[part]) for part in parts)
        else:
            chunks = dense_rows(rows)
        dtype = stored_type(rows.dtype, source)
        self.write_features(chunks, num_features=rows.shape[1], dtype=dtype, source=source)

    def set_featureless(self, *, source: object) -> None:
        """Write feature rows of length 0; ConfigError if an option that changes features is set."""
        self._features.write_empty(
            self.num_vertices, source, edges_have_features=self.edges.has_features
        )

    def set_labels(
        self,
        labels: Array,
        *,
        source: object,
        num_classes: int | None = None,
        metric: str | None = "accuracy",
        advice: str = "dataset.metric=accuracy makes them classes",
    ) -> None:
        """Set the labels of the vertices in any form of ``read_labels``, which has the arguments.

        GraphError: a label is not valid, or all are unknown.
        """
        form: dict[str, Any] = {"metric": metric, "num_classes": num_classes, "advice": advice}
        self._labels = read_labels(labels, count=self.num_vertices, source=source, **form)
        if not self.has_labels:
            raise GraphError(f"{source}: no vertex has a label")

    def set_unlabeled(self) -> None:
        """Set the labels of all vertices to unknown, and their split to empty."""
        unknown = np.full(self.num_vertices, -1)
        self._labels = Labels(values=unknown, num_classes=0, metric="accuracy")
        self._split = dict.fromkeys(SPLITS, np.empty(0, np.int64)), self.path

    def set_split(self, train: Array, valid: Array, test: Array, *, source: object) -> None:
        """Keep the ids of the training, validation and test vertices; ``finish`` checks them."""
        self._split = dict(zip(SPLITS, (train, valid, test), strict=True)), source

    def set_edge_labels(self, labels: Array, *, source: object) -> None:
        """Set labels of all edges in input order, after the edges.

        ``edges.lists_edges`` must be set before the first edge.
        """
        self.edges.set_labels(labels, source)

    def set_edge_split(self, train: Array, valid: Array, test: Array, *, source: object) -> None:
        """Keep the indices of training, validation and test edges, which ``finish`` checks."""
        self.edges.set_split(dict(zip(SPLITS, (train, valid, test), strict=True)), source)

    def finish(
        self, *, name: str, source: str, options: Mapping[str, Any], raw: Sequence[RawFile] = ()
    ) -> None:
        """Check the splits, write the remaining arrays, then ``meta.json``.

        GraphError: no features, no split, or an invalid split.
        """
        features, labels = self._features, self._labels
        if self._split is None or (features.entry is None and features.unfinished_source is None):
            missing = "a split" if self._split is None else "features"
            raise GraphError(f"{source}: the graph has no {missing}")
        self.edges.write_topology()
        split, split_source = self._split
        train = None
        if self.has_labels:
            validation.check_split(split, self.labels, self.num_vertices, split_source)
            train = np.asarray(split["train"])
        features.finish(train)
        assert features.entry is not None
        assert labels is not None
        arrays = {"labels": write_array(self.path / "labels.npy", labels.values)}
        for part, ids in split.items():
            ids = ids if (ids[1:] >= ids[:-1]).all() else np.sort(ids)  # mostly sorted already
            file, dtype = f"{part}_idx", vertex_dtype(self.num_vertices)
            arrays[file] = write_array(self.path / f"{file}.npy", ids.astype(dtype))
        edge_labels = self.edges.write_labels(SPLITS)
        if self.edges.has_features:
            self.edges.finish_features()
        store_meta.write_meta(
            self.path,
            {**self.edges.arrays, "features": features.entry, **arrays},
            name=name,
            num_classes=labels.num_classes,
            feature_dtype=features.dtype,
            num_features=features.num_features,
            metric=labels.metric,
            edge_labels=edge_labels,
            times=None if self.time_unit is None else {"unit": self.time_unit},
            source=source,
            options=dict(options),
            raw=[asdict(file) for file in raw],
            **self.notes,
        )

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *reason: object) -> None:
        self.edges.close()
