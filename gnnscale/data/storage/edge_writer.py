"""Edges of a graph store: topology, edge features, edge labels and their split."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, IntArray, track
from gnnscale.core.artifact.files import check_space
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter, check_array, map_npy, write_array
from gnnscale.data import validation
from gnnscale.data.labels import read_edge_labels
from gnnscale.data.storage.csc_builder import write_topology
from gnnscale.data.storage.edge_spool import EdgeSpool
from gnnscale.data.storage.feature_writer import CURE, feature_names
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.standardize import (
    MAGNITUDE_OF_LAYERS,
    Spread,
    completed_rows,
    has_gaps,
    warn_of_large,
    warn_of_spread,
)
from gnnscale.graph import EDGE_ENDS, EDGE_FEATURES, MAX_EDGE_ROWS, store_format, vertex_dtype
from gnnscale.graph.store_format import EDGE_ROW_TIMES

_LOG = logging.getLogger(__name__)


class EdgeWriter:
    """Writer of the edges of a store; ``notes`` are entries for ``meta.json``.

    ``advises`` says whether to warn about features that impede training.
    """

    def __init__(
        self, path: Path, options: StoreOptions, notes: dict[str, Any], *, advises: bool
    ) -> None:
        self.arrays: dict[str, ArrayEntry] = {}  #: entries of ``meta.json``
        #: whether the store lists the ends of all edges, for labels; set before the first edge
        self.lists_edges = False
        #: whether to log the number of repeated edges, for a graph that the user brings
        self.counts_repeated = False
        self._path = path
        self._options = options
        self._notes = notes
        self._advises = advises
        self._spool: EdgeSpool | None = None
        self._published: PublishedEdges | None = None
        self._labels: tuple[Array, int] | None = None
        self._split: tuple[Mapping[str, Array], object] | None = None

    @property
    def num_vertices(self) -> int:
        """Number of vertices; GraphError before it is set."""
        return self._require_spool("the graph").num_vertices

    @property
    def has_features(self) -> bool:
        """Whether the edges added so far have features."""
        return self._published is not None and self._published.num_features > 0

    @property
    def labels(self) -> Array | None:
        """Labels of the edges, or None before ``set_labels``."""
        return None if self._labels is None else self._labels[0]

    def set_num_vertices(self, num_vertices: int, source: object) -> None:
        """Set the number of vertices, before the first edge; NoSpaceError: memory is too small."""
        if num_vertices < 1:
            raise GraphError(f"{source}: expected at least 1 vertex, got {num_vertices}")
        # In-degrees, and the offsets during their cumulative sum.
        check_space(f"{source}: {num_vertices} vertices", self._path, memory=32 * num_vertices)
        self._spool = EdgeSpool(
            self._path,
            num_vertices=num_vertices,
            undirected=self._options.undirected,
            self_loops=self._options.self_loops,
            memory_bytes=self._options.memory_bytes,
        )

    @property
    def vertex_times(self) -> Int64Array | None:
        """Times of all vertices ``[num_vertices]``. None: they have none."""
        return self._require_spool("the graph").vertex_times

    def set_vertex_times(self, times: Int64Array) -> None:
        """Set the times of all vertices ``[num_vertices]``, before the topology is written."""
        self._require_spool("the graph").vertex_times = times

    def add(
        self,
        src: Array,
        dst: Array,
        weights: Array | None,
        features: Array | None,
        source: object,
        times: Int64Array | None = None,
    ) -> None:
        """Append edges, with weights, features and times unless None; GraphError: not valid."""
        spool = self._require_spool(source)
        validation.check_ids(src, spool.num_vertices, source)
        validation.check_ids(dst, spool.num_vertices, source)
        if spool.weighted is not None:
            _check_consistent("weights", spool.weighted, weights, source)
            _check_consistent("features", spool.has_rows, features, source)
            _check_consistent("times", spool.has_times, times, source)
        if weights is not None:
            weights = validation.check_weights(weights, len(src), source)
        if features is not None or self.lists_edges:
            if self._published is None:
                dtype = vertex_dtype(spool.num_vertices)
                has_times = times is not None and self.lists_edges
                self._published = PublishedEdges(
                    self._path, dtype, features, source, has_times=has_times
                )
            self._published.append(src, dst, features, source, times)
        spool.add(src, dst, weights, features is not None, times)

    def write_topology(self) -> None:
        """Write in-neighbor lists, edge ends and features, once; then remove temporary files."""
        if "indptr" in self.arrays:
            return
        spool = self._require_spool("the graph")
        self.arrays |= write_topology(
            spool, self._path, drop_duplicates=self._options.drop_duplicates
        )
        if spool.vertex_times is not None:
            file = self._path / f"{store_format.VERTEX_TIMES}.npy"
            self.arrays[store_format.VERTEX_TIMES] = write_array(file, spool.vertex_times)
        if self._published is not None:
            # Loops that are added share one row of zeros.
            self.arrays |= self._published.finish(num_zeros=int(spool.adds_loops))
            if self._advises and not self._options.standardize:
                spread, source = self._published.spread, self._published.source
                warn_of_large(spread.largest, source)  # of vertices, all rows are checked
                names = feature_names(self._notes.get("edge_columns", ()))
                warn_of_spread(spread, source, CURE, names, of=" of edges")
        if self.counts_repeated:
            self._log_repeated(spool)
        spool.close()

    def _log_repeated(self, spool: EdgeSpool) -> None:
        """Log how many edges in ``spool`` repeat another, and so are not stored."""
        loops = spool.num_vertices * spool.adds_loops
        repeated = spool.num_edges - (self.arrays["indices"].shape[0] - loops)
        if repeated:
            effects = "; the features of the first are kept" if spool.has_rows else ""
            effects += "; their weights are added up" if spool.weighted else ""
            _LOG.info(
                "%s of %s edges, reverses included, have the ends of another, and are stored once%s"
                "; dataset.drop_duplicates=false stores all",
                *(f"{repeated:,}", f"{spool.num_edges:,}", effects),
            )

    def set_labels(self, labels: Array, source: object) -> None:
        """Check and keep the labels of all edges in input order; GraphError: not valid."""
        num_edges = 0 if self._published is None else self._published.num_edges
        result = read_edge_labels(labels, num_edges=num_edges, source=source)
        self._labels = result.values, result.num_classes

    def set_split(self, split: Mapping[str, Array], source: object) -> None:
        """Keep the indices of training, validation and test edges; ``write_labels`` checks them."""
        self._split = split, source

    def ends(self) -> IntArray:
        """Write the topology; return source and destination of edges in input order, mapped."""
        self.write_topology()
        return map_npy(self._path / f"{store_format.EDGE_ENDS}.npy")

    def times(self) -> Int64Array | None:
        """Write the topology; return the mapped times of labeled edges. None: edges have none."""
        self.write_topology()
        file = self._path / f"{EDGE_ROW_TIMES}.npy"
        return map_npy(file) if EDGE_ROW_TIMES in self.arrays else None

    def write_labels(self, splits: Sequence[str]) -> dict[str, Any] | None:
        """Write edge labels and the parts ``splits`` of their split, which is checked.

        Return the entry for ``meta.json``; None: no labels.
        """
        if self._labels is None:
            return None
        labels, num_classes = self._labels
        split, source = self._split or (dict.fromkeys(splits, np.empty(0, np.int64)), self._path)
        if self._split is not None:
            validation.check_split(split, labels, len(labels), source, of="edge")
        arrays = {store_format.EDGE_LABELS: labels}
        for name, part in zip(store_format.EDGE_SPLITS, splits, strict=True):
            arrays[name] = np.sort(split[part]).astype(vertex_dtype(len(labels)))
        for name, array in arrays.items():
            self.arrays[name] = write_array(self._path / f"{name}.npy", array)
        metric = "rmse" if labels.dtype.kind == "f" else "accuracy"
        return {"num_classes": num_classes, "metric": metric}

    def finish_features(self) -> None:
        """Fill empty cells with the means over the training edges, or all without a split.

        By the option ``standardize``, scale features to mean 0 and deviation 1 over the same edges.
        """
        assert self._published is not None
        columns, standardizes = self._notes.get("edge_columns", []), self._options.standardize
        train = None if self._split is None else np.sort(self._split[0]["train"])
        what = "edges" if train is None else "training edges"
        rows = self._published.features()
        chunks, scaling = completed_rows(rows, columns, train, standardizes=standardizes, what=what)
        if scaling is not None:
            self._notes["edge_scaling"] = asdict(scaling)
        if scaling is not None or has_gaps(columns):
            self.arrays[store_format.EDGE_FEATURES] = self._published.rewrite(chunks)

    def close(self) -> None:
        """Close the files of ends and features, and remove the temporary files."""
        if self._spool is not None:
            self._spool.close()
        if self._published is not None:
            self._published.close()

    def _require_spool(self, source: object) -> EdgeSpool:
        if self._spool is None:
            raise GraphError(f"{source}: edges come before the number of vertices is known")
        return self._spool


def _check_consistent(what: str, expected: bool, values: Array | None, source: object) -> None:
    """Raise GraphError unless edges have ``values`` just if earlier edges have (``expected``).

    ``what`` names the values.
    """
    if expected != (values is not None):
        now, earlier = ("", "none") if values is not None else ("no ", "some")
        raise GraphError(f"{source}: edges have {now}{what}, those before have {earlier}")


_CHANGED = "changed.npy"


class PublishedEdges:
    """Writer of ``edge_ends.npy`` and ``edge_features.npy``: edges in input order.

    ``first`` features ``[n, num_edge_features]`` determine the width. None: no features.
    ``has_times``: whether ``edge_row_times.npy`` has the edges' times.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype[Any],
        first: Array | None,
        source: object,
        *,
        has_times: bool = False,
    ) -> None:
        self.num_edges = 0  #: edges written so far
        self.num_features = 0  #: length of a feature row; 0 without features
        self.source = source
        self.spread = Spread((MAGNITUDE_OF_LAYERS,))  #: magnitudes of the feature columns
        self._folder = folder
        self._num_zeros = 0
        if first is not None:
            check_array(first, axes=2, kinds="biuf", source=f"{source}: features of edges")
            validation.check_num_features(first.shape[1], f"{source}: edges")
            self.num_features = int(first.shape[1])
        self._files: dict[str, NpyWriter] = {}
        forms: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {EDGE_ENDS: (dtype, (2,))}
        if self.num_features:
            forms[EDGE_FEATURES] = np.dtype(np.float32), (self.num_features,)
        if has_times:
            forms[EDGE_ROW_TIMES] = np.dtype(np.int64), ()
        with ExitStack() as stack:
            for name, (kind, shape) in forms.items():
                file = NpyWriter(folder / f"{name}.npy", kind, shape)
                self._files[name] = stack.enter_context(file)
            what = "writing edges and their features" if self.num_features else "writing edges"
            self._advance = stack.enter_context(track(what, unit="edges"))
            self._stack = stack.pop_all()

    def append(
        self,
        src: Array,
        dst: Array,
        features: Array | None,
        source: object,
        times: Int64Array | None = None,
    ) -> None:
        """Write the next edges ``[n]``, their features ``[n, num_features]`` and times ``[n]``."""
        first, last = self.num_edges, self.num_edges + len(src)
        if last >= MAX_EDGE_ROWS:  # a row of zeros may follow
            raise GraphError(
                f"{source}: expected up to {MAX_EDGE_ROWS - 1} edges with features or labels, got "
                f"{last}"
            )
        if features is not None:
            rows = validation.edge_features(
                *(features, len(src), self.num_features), first=first, source=source
            )
            self._files[EDGE_FEATURES].append(rows)
            self.spread.add(rows)
        self._files[EDGE_ENDS].append(np.stack([src, dst], axis=1))
        if times is not None and EDGE_ROW_TIMES in self._files:
            self._files[EDGE_ROW_TIMES].append(times)
        self.num_edges = last
        self._advance(len(src))

    def finish(self, *, num_zeros: int) -> dict[str, ArrayEntry]:
        """Append ``num_zeros`` feature rows of zeros, for added loops; close the files.

        Return their entries for ``meta.json``.
        """
        self._num_zeros = num_zeros
        if self.num_features:
            self._files[EDGE_FEATURES].append(np.zeros((num_zeros, self.num_features), np.float32))
        entries = {name: file.close() for name, file in self._files.items()}
        self.close()
        return entries

    def features(self) -> Array:
        """Return the mapped features, without the rows of zeros that ``finish`` appended."""
        return map_npy(self._folder / f"{EDGE_FEATURES}.npy")[: self.num_edges]

    def rewrite(self, chunks: Iterable[Array]) -> ArrayEntry:
        """Replace the stored features by ``chunks``, except rows that ``finish`` appended.

        Return the file's entry.
        """
        rows, source = self.features(), f"{self.source}: scaled"
        check_space(f"{source} features of {len(rows)} edges", self._folder, disk=rows.nbytes)
        changed, first = self._folder / _CHANGED, 0
        with NpyWriter(changed, np.dtype(np.float32), (self.num_features,)) as file:
            for part in chunks:
                validation.check_features(part, first, source, "edge")
                file.append(part)
                first += len(part)
            file.append(np.zeros((self._num_zeros, self.num_features), np.float32))
            entry = file.close()
        changed.replace(self._folder / f"{EDGE_FEATURES}.npy")
        return entry

    def close(self) -> None:
        """Close the files, finished or not."""
        self._stack.close()
