"""Writing a graph store: edges, features, labels and split arrive in pieces, in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, GraphError, shown
from gnnscale.core.artifact.files import check_space
from gnnscale.core.artifact.npy import ArrayEntry, map_npy, write_array
from gnnscale.core.types import Array, Int64Array, IntArray
from gnnscale.data import validation as checks
from gnnscale.data.labels import read_edge_labels
from gnnscale.data.storage import edge_spool
from gnnscale.data.storage import store_check as raw_files
from gnnscale.data.storage.column_writers import FeatureEncoding, PublishedEdges, write_features
from gnnscale.data.storage.csc_builder import write_topology
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.standardize import ColumnScaling, Spread, warn_of_large, warn_of_spread
from gnnscale.graph import store_format as graph_store
from gnnscale.graph.dtypes import row_bytes
from gnnscale.graph.store_format import vertex_dtype

_LOG = logging.getLogger(__name__)


SPLITS = ("train", "valid", "test")
_CURE = "For training, dataset.standardize=true scales all alike"
_FEATURES, _UNSCALED = "features.npy", "unscaled.npy"


class StoreWriter:
    """Fills a directory with a graph store; a reader pushes what it finds, in any order.

    A context manager, which removes its temporary files at the end. The number of vertices comes
    first. Everything is checked as it arrives, and errors name the ``source`` given with it.
    ``path`` is an empty directory. ``advises`` says whether a model will be trained.
    """

    def __init__(self, path: Path, options: StoreOptions, *, advises: bool = True) -> None:
        self.path = path
        self.notes: dict[str, Any] = {}  # further entries of meta.json
        self._options = options
        self._advises = advises
        self._spool: edge_spool.EdgeSpool | None = None
        #: whether the store lists its edges as they come, for their labels; set before the first
        self.lists_edges = False
        #: whether to log how many edges repeat others, of a graph that the user brings
        self.counts_repeated = False
        self._published: PublishedEdges | None = None
        self._edge_labels: tuple[Array, int] | None = None
        self._edge_split: tuple[dict[str, Array], object] | None = None
        self._arrays: dict[str, ArrayEntry] = {}
        self._feature_dtype = ""
        self._num_features = 0
        #: The source of features that are scaled once the training vertices are known.
        self._unscaled: object = None
        self._labels: Array | None = None
        self._num_classes = 0
        self._metric = "accuracy"
        self._split: tuple[dict[str, Array], object] | None = None

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self._edges("the graph").num_vertices

    @property
    def labels(self) -> Array:
        """The labels that were set."""
        if self._labels is None:
            raise GraphError(f"{self.path}: labels are needed before this step")
        return self._labels

    def set_num_vertices(self, num_vertices: int, *, source: object) -> None:
        """Fix the number of vertices; needed before anything else."""
        if num_vertices < 1:
            raise GraphError(f"{source}: {num_vertices} vertices, at least 1 is needed")
        # Degrees, and the offsets while they are added up.
        check_space(f"{source}: {num_vertices} vertices", self.path, memory=32 * num_vertices)
        self._spool = edge_spool.EdgeSpool(
            self.path,
            num_vertices=num_vertices,
            undirected=self._options.undirected,
            self_loops=self._options.self_loops,
            memory_bytes=self._options.memory_bytes,
        )

    def add_edges(
        self,
        src: Array,
        dst: Array,
        *,
        weights: Array | None = None,
        features: Array | None = None,
        source: object,
    ) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``.

        Args:
            src: ``[num_edges]`` whole numbers.
            dst: the same.
            weights: ``[num_edges]`` numbers, finite and not negative; all calls give them, or none
                does. None if every edge counts the same.
            features: ``[num_edges, num_edge_features]`` finite numbers, written in this order;
                likewise. None if edges have no features.
            source: named in errors.

        Raises:
            GraphError: an id is out of range, or a weight or a feature not allowed.
        """
        spool = self._edges(source)
        checks.check_ids(src, spool.num_vertices, source)
        checks.check_ids(dst, spool.num_vertices, source)
        if spool.weighted is not None:
            _check_alike("weights", spool.weighted, weights, source)
            _check_alike("features", spool.has_rows, features, source)
        if weights is not None:
            weights = checks.checked_weights(weights, len(src), source)
        if features is not None or self.lists_edges:
            if self._published is None:
                ids = vertex_dtype(spool.num_vertices)
                self._published = PublishedEdges(self.path, ids, features, source)
            self._published.append(src, dst, features, source)
        spool.add(src, dst, weights, features is not None)

    def build_topology(self) -> tuple[Int64Array, IntArray]:
        """Sort the edges into in-neighbour lists, and map ``indptr`` and ``indices`` of the files.

        No edge may follow.
        """
        if "indptr" not in self._arrays:
            spool = self._edges("the graph")
            self._arrays |= write_topology(
                spool, self.path, drop_duplicates=self._options.drop_duplicates
            )
            if self._published is not None:
                # Loops that are added have no features: a row of zeros.
                self._arrays |= self._published.finish(num_zeros=int(spool.adds_loops))
                if not self._options.standardize:
                    self._warn_of(self._published.spread, self._published.source, "edge_columns")
            if self.counts_repeated:
                self._report_repeated(spool)
            spool.close()
        return map_npy(self.path / "indptr.npy"), map_npy(self.path / "indices.npy")

    def _report_repeated(self, spool: edge_spool.EdgeSpool) -> None:
        """Log how many edges are not stored, as others have the same ends."""
        loops = spool.num_vertices * spool.adds_loops
        num_stored = self._arrays["indices"].shape[0] - loops
        repeated = spool.num_edges - num_stored
        if repeated:
            kept = "; the features of the first are kept" if spool.has_rows else ""
            kept += "; their weights are added up" if spool.weighted else ""
            _LOG.info(
                "%s of %s edges, reverses included, have the ends of another, and are stored once%s"
                "; dataset.drop_duplicates=false stores all",
                *(f"{repeated:,}", f"{spool.num_edges:,}", kept),
            )

    def write_features(
        self, chunks: Iterable[Array], *, num_features: int, dtype: str, source: object
    ) -> None:
        """Write the feature rows of all vertices, in chunks and in order.

        Args:
            chunks: arrays ``[rows, num_features]``, together one row a vertex.
            num_features: length of a row.
            dtype: the entry of ``FEATURE_DTYPES`` that holds the values, if no option asks for
                another.
            source: named in errors.
        """
        checks.check_num_features(num_features, source)
        normalize, asked = self._options.normalize_features, self._options.feature_dtype
        if self._options.standardize:
            encoding = FeatureEncoding(dtype="float32", normalize=normalize)
            self._store(_UNSCALED, chunks, num_features, encoding, source)
            self._unscaled = source
            return
        dtype = asked or ("float32" if normalize and dtype == "uint8" else dtype)
        encoding = FeatureEncoding(dtype=dtype, asked_for=asked is not None, normalize=normalize)
        spread = Spread()
        watched = chunks if normalize else spread.watching(chunks)
        self._arrays["features"] = self._store(_FEATURES, watched, num_features, encoding, source)
        self._feature_dtype = dtype
        self._warn_of(spread, source, "columns")

    def _warn_of(self, spread: Spread, source: object, columns: str) -> None:
        """Warn of a column of features that is far larger than others; ``columns`` are a note."""
        if self._advises:
            of_edges = " of edges" if columns == "edge_columns" else ""
            if of_edges:  # those of vertices are looked at whole
                warn_of_large(spread.largest, source)
            warn_of_spread(
                spread, source, lambda column: self._name_of(column, columns) + of_edges, _CURE
            )

    def set_featureless(self, *, source: object) -> None:
        """Let vertices have no features: rows of length 0.

        Raises:
            ConfigError: an option is for features, and edges have no features either.
        """
        of_edges = self._published is not None and self._published.num_features > 0
        given = {
            "normalize_features": self._options.normalize_features or None,
            "standardize": (self._options.standardize and not of_edges) or None,
            "feature_dtype": self._options.feature_dtype,
        }
        for name, value in given.items():
            if value is not None:
                shown_value = str(value).lower() if value is True else value
                raise ConfigError(f"dataset.{name}={shown_value}: {source} has no features")
        rows = np.zeros((self.num_vertices, 0), np.float32)
        self._arrays["features"] = write_array(self.path / _FEATURES, rows)
        self._feature_dtype = "float32"
        _LOG.info(
            "%s: has no features; features=learned, degrees or projections trains without", source
        )

    def _name_of(self, feature: int, columns: str) -> str:
        """Return the column of a table that a feature is of, or its number."""
        first = 0
        for column in self.notes.get(columns, ()):
            first += column["width"]
            if feature < first:
                return shown(repr(column["name"]))
        return str(feature)

    def _standardize(self, train: IntArray | None) -> None:
        """Write the features, which wait in another file, scaled by those of ``train``, or all."""
        rows, asked = map_npy(self.path / _UNSCALED), self._options.feature_dtype
        scaling = ColumnScaling.of(rows, train)
        self.notes["scaling"] = asdict(scaling)
        encoding = FeatureEncoding(dtype=asked or "float32", asked_for=asked is not None)
        chunks = scaling.scaled(rows)
        self._arrays["features"] = self._store(
            _FEATURES, chunks, rows.shape[1], encoding, self._unscaled
        )
        self._feature_dtype = encoding.dtype
        (self.path / _UNSCALED).unlink()

    def _standardize_edges(self, edges: PublishedEdges) -> None:
        """Scale the features of edges, as they were published.

        They are fitted to the edges that train, as those of vertices are. If edges have no labels,
        and so no split, all are fitted: all of them are in the lists that training draws from.
        """
        split, _ = self._edge_split or (None, None)
        train = None if split is None else np.sort(split["train"])
        what = "edges" if train is None else "training edges"
        scaling = ColumnScaling.of(edges.features(), train, what)
        self.notes["edge_scaling"] = asdict(scaling)
        self._arrays[graph_store.EDGE_FEATURES] = edges.scale(scaling)

    def _store(
        self,
        name: str,
        chunks: Iterable[Array],
        num_features: int,
        encoding: FeatureEncoding,
        source: object,
    ) -> ArrayEntry:
        num_bytes = self.num_vertices * row_bytes(encoding.dtype, num_features)
        what = f"{source}: {num_features} features of {self.num_vertices} vertices"
        check_space(what, self.path, disk=num_bytes)
        shape = (self.num_vertices, num_features)
        self._num_features = num_features
        entry, largest = write_features(
            self.path / name, chunks, shape=shape, encoding=encoding, source=source
        )
        if self._advises and name == _FEATURES and not encoding.normalize:
            warn_of_large(largest, source)
        return entry

    def set_labels(
        self,
        labels: Array,
        *,
        source: object,
        num_classes: int | None = None,
        metric: str = "accuracy",
    ) -> None:
        """Set labels, of one of three kinds.

        Args:
            labels: ``[num_vertices]`` classes, -1 for unknown; or multi-label
                ``[num_vertices, C]`` zeros and ones; or with the metric ``rmse`` the targets of
                regression, ``[num_vertices]`` or ``[num_vertices, k]`` numbers, NaN for unknown.
            source: named in errors.
            num_classes: None for the largest class present; with ``rmse`` the targets count.
            metric: one of ``METRICS``.

        Raises:
            GraphError: a label is not allowed, or no vertex has one.
        """
        assert metric in graph_store.METRICS
        if metric == "rmse":
            targets = checks.checked_targets(labels, count=self.num_vertices, source=source)
            num_targets = 1 if targets.ndim == 1 else targets.shape[1]
            self._labels, self._num_classes, self._metric = targets, num_targets, metric
            return
        if num_classes is None:
            num_classes = checks.count_classes(labels, source)
        if num_classes < 1:
            raise GraphError(f"{source}: no vertex has a label")
        if num_classes > (limit := graph_store.MAX_CLASSES):
            raise GraphError(f"{source}: {num_classes} classes, allowed are up to {limit}")
        self._labels = checks.checked_labels(
            labels, count=self.num_vertices, num_classes=num_classes, source=source
        )
        self._num_classes = num_classes
        self._metric = metric

    def set_unlabelled(self) -> None:
        """Say that no vertex has a label, and that there is no split: a graph for its edges."""
        self._labels, self._num_classes = np.full(self.num_vertices, -1), 0
        none = np.empty(0, np.int64)
        self._split = (dict.fromkeys(SPLITS, none), self.path)

    @property
    def labelled(self) -> bool:
        """Whether vertices have labels."""
        return self._num_classes > 0

    def set_split(self, train: Array, valid: Array, test: Array, *, source: object) -> None:
        """Set the vertex ids to train on, to choose the epoch by, and to report."""
        self._split = (dict(zip(SPLITS, (train, valid, test), strict=True)), source)

    def set_edge_labels(self, labels: Array, *, source: object) -> None:
        """Set the labels of all published edges, in their order; ``lists_edges`` was set.

        Args:
            labels: in a form of ``read_labels``, with one class or one target for each edge.
            source: named in errors.

        Raises:
            GraphError: a label is not allowed, or no edge has one.
        """
        num_edges = 0 if self._published is None else self._published.num_edges
        found = read_edge_labels(labels, num_edges=num_edges, source=source)
        self._edge_labels = found.values, found.num_classes

    @property
    def edge_labels(self) -> Array | None:
        """The labels of edges that were set, None if edges have no labels."""
        return None if self._edge_labels is None else self._edge_labels[0]

    def edge_ends(self) -> IntArray:
        """Map the ends ``[n, 2]`` of the edges with labels. No edge may follow."""
        self.build_topology()
        return map_npy(self.path / f"{graph_store.EDGE_ENDS}.npy")

    def set_edge_split(self, train: Array, valid: Array, test: Array, *, source: object) -> None:
        """Set the numbers of the published edges to train on, to validate and to test."""
        self._edge_split = (dict(zip(SPLITS, (train, valid, test), strict=True)), source)

    def _write_edge_labels(self) -> dict[str, Any] | None:
        """Write labels and split of edges; return the entry of ``meta.json``, None without."""
        if self._edge_labels is None:
            return None
        labels, num_classes = self._edge_labels
        none = np.empty(0, np.int64)
        split, origin = self._edge_split or (dict.fromkeys(SPLITS, none), self.path)
        if self._edge_split is not None:
            checks.check_split(split, labels, len(labels), origin, of="edge")
        self._put(graph_store.EDGE_LABELS, labels)
        for name, part in zip(graph_store.EDGE_SPLITS, SPLITS, strict=True):
            self._put(name, np.sort(split[part]).astype(vertex_dtype(len(labels))))
        metric = "rmse" if labels.dtype.kind == "f" else "accuracy"
        return {"num_classes": num_classes, "metric": metric}

    def _put(self, name: str, array: Array) -> None:
        self._arrays[name] = write_array(self.path / f"{name}.npy", array)

    def finish(
        self,
        *,
        name: str,
        source: str,
        options: Mapping[str, Any],
        raw: Sequence[raw_files.RawFile] = (),
    ) -> None:
        """Write what is missing, and ``meta.json`` last, with the arguments as entries.

        Raises:
            GraphError: features, labels or split were not given, or the split is not allowed.
        """
        has_features = "features" in self._arrays or self._unscaled is not None
        if self._split is None or not has_features:
            missing = "a split" if self._split is None else "features"
            raise GraphError(f"{source}: the graph has no {missing}")
        self.build_topology()
        split, origin = self._split
        if self.labelled:
            checks.check_split(split, self.labels, self.num_vertices, origin)
        if self._unscaled is not None:
            # Vertices without labels have no split.
            self._standardize(np.asarray(split["train"]) if self.labelled else None)
        small = {"labels": self.labels}
        for part, ids in split.items():
            ids = ids if (ids[1:] >= ids[:-1]).all() else np.sort(ids)  # mostly sorted already
            small[f"{part}_idx"] = ids.astype(vertex_dtype(self.num_vertices))
        for part, array in small.items():
            self._put(part, array)
        of_edges = self._write_edge_labels()
        published = self._published
        if self._options.standardize and published is not None and published.num_features:
            self._standardize_edges(published)
        graph_store.write_meta(
            self.path,
            self._arrays,
            name=name,
            num_classes=self._num_classes,
            feature_dtype=self._feature_dtype,
            num_features=self._num_features,
            metric=self._metric,
            edge_labels=of_edges,
            source=source,
            options=dict(options),
            raw=[asdict(file) for file in raw],
            **self.notes,
        )

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._spool is not None:
            self._spool.close()
        if self._published is not None:
            self._published.close()

    def _edges(self, source: object) -> edge_spool.EdgeSpool:
        if self._spool is None:
            raise GraphError(f"{source}: edges come before the number of vertices is known")
        return self._spool


def _check_alike(what: str, before: bool, given: Array | None, source: object) -> None:
    """Raise GraphError unless edges have ``what`` if and only if those before have."""
    if before != (given is not None):
        now, some = ("", "none") if given is not None else ("no ", "some")
        raise GraphError(f"{source}: edges have {now}{what}, those before have {some}")
