"""Graph: topology, features, labels and split.

Its arrays are in memory or mapped from a graph store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, IntArray, standard_arithmetic
from gnnscale.core.artifact import files
from gnnscale.core.artifact.npy import check_length, row_slices
from gnnscale.core.files import refuse_address
from gnnscale.graph import store_arrays, store_format, store_meta, store_writer
from gnnscale.graph.dtypes import MAX_QUANTIZED, as_float32, quantized, row_length
from gnnscale.graph.labeled_topology import LabeledTopology
from gnnscale.graph.labels import LabelsByType, TypeLabels
from gnnscale.graph.sharded_features import ShardedFeatures
from gnnscale.graph.split import Split
from gnnscale.graph.timed_store import take_rows, take_times, timed_arrays, timed_entries
from gnnscale.graph.topology import EdgeData, Origin
from gnnscale.graph.typed_features import FeatureMatrix, InputTypes, TypedFeatures


@dataclass(frozen=True, kw_only=True)
class Graph(LabeledTopology):
    """Immutable graph with features, labels and a split, and types of vertices and edges if any.

    Attributes:
        name: name in reports.
        indptr: ``[num_vertices + 1]`` int64 offsets of the in-neighbors of each vertex (CSC);
            ``[num_rows + 1]``, one list for each row of the schema, if there are ``types``.
        indices: ``[num_edges]`` int32 or int64; ``indices[indptr[v]:indptr[v+1]]`` are the vertices
            that send messages to ``v``, sorted; with ``times`` by time first.
        features: ``[num_vertices, num_features]`` in one of ``FEATURE_DTYPES``. Rows of int8 and
            int4 are bytes, which ``dtypes.as_float32`` decodes. A ``ShardedFeatures`` if the store
            has the rows of one part; ``TypedFeatures`` if there are ``types``.
        feature_dtype: key of ``FEATURE_DTYPES``; with types, of the first that has features.
        labels: ``[num_vertices]`` int64 class, -1 if unknown; or ``[num_vertices, num_classes]``
            uint8 for multilabel; or regression targets, ``[num_vertices]`` or
            ``[num_vertices, num_classes]`` float32, NaN if unknown. ``LabelsByType`` if several
            vertex types have labels.
        num_classes: number of classes or regression targets, of several types the largest; 0
            without labels.
        split: training, validation and test vertices.
        metric: ``accuracy``, ``micro_f1`` or ``roc_auc``; ``rmse`` for regression; of several
            types, the first one's.
        origin: source of the graph.
        degrees: ``[num_vertices]`` uint32 in-degrees in the full graph, if this graph is a part
            with some adjacency lists missing; with types, the lengths of all lists in the full
            graph. None: degrees follow from ``indptr``.
        edges: data of edges.
        lists: ``ops.DiskLists`` if samplers read neighbors from disk. None: samplers read
            ``indices``.
        types: types of vertices and edges. None: there are none.
        times: times of vertices and edges. None: all are known at all times.
        rows: labels of vertices as of cut-offs. None: there are no cut-offs.
        samples_by_time: whether mini-batches of a run are as of the times of predicted edges.
        num_quantized: number of features of an int8 or int4 row; unused for other types.

    Example:
        >>> graph = Graph.open("~/.cache/gnnscale/graphs/karate")
        >>> graph.num_vertices, graph.num_edges, graph.features.shape
        (34, 156, (34, 34))
    """

    features: Array
    feature_dtype: str
    num_quantized: int = 0
    samples_by_time: bool = False

    def __repr__(self) -> str:
        """Return one line with the name and the sizes of the graph and its split."""
        classes = "regression targets" if self.regression else "classes"
        if self.targets:
            classes = f"outputs for labels of {', '.join(self.targets)}"
        parts = [
            f"{self.num_vertices:,} vertices",
            f"{self.num_edges:,} edges",
            f"{self.num_features:,} features",
            f"{self.num_classes:,} {classes}",
        ]
        if len(self.train_idx):
            sizes = "/".join(
                f"{len(ids):,}" for ids in (self.train_idx, self.valid_idx, self.test_idx)
            )
            parts.append(f"{sizes} train/valid/test")
        if self.rows is not None:
            parts.append(f"{len(self.rows.vertices):,} task rows")
        return f"<gnnscale.Graph {self.name!r}: {', '.join(parts)}>"

    def check_files(self) -> None:
        """Raise GraphError if a mapped file became shorter than when the graph was opened."""
        features = self._feature_arrays()
        split = (self.train_idx, self.valid_idx, self.test_idx)
        more = self.edges.arrays() | self.label_arrays | timed_arrays(self.times, self.rows)
        for array in (self.indptr, self.indices, *features, *split, *more.values()):
            check_length(array)

    def _feature_arrays(self) -> tuple[Array, ...]:
        if isinstance(self.features, TypedFeatures):
            return tuple(matrix.rows for matrix in self.features.present)
        return () if isinstance(self.features, ShardedFeatures) else (self.features,)

    @property
    def has_cutoffs(self) -> bool:
        """Whether a mini-batch may have a vertex among its inputs once for each cut-off."""
        return self.rows is not None or self.samples_by_time

    @property
    def timed_types(self) -> tuple[bool, ...]:
        """For each vertex type, without types for all, whether the model may read its times.

        It may if the types have times and task rows have cut-offs. Empty: it reads no times.
        """
        times, schema = self.times, self.schema
        if times is None or self.rows is None:
            return ()
        return tuple(times.are_timed(schema.vertices(i)) for i in range(len(schema.vertex_types)))

    @property
    def input_types(self) -> InputTypes | None:
        """Types and their numbers of features, as a model reads them. None: there are no types."""
        features: object = self.features
        if not isinstance(features, TypedFeatures):
            return None
        edge_types = self.schema.edge_types
        return InputTypes(
            widths=dict(zip(self.vertex_types, features.widths, strict=True)),
            edges=[(edges.source, edges.relation, edges.destination) for edges in edge_types],
            target=self._target,
            learned=tuple(self.vertex_types[number] for number in features.learned),
            edge_widths=() if self.edges.by_type is None else self.edges.by_type.widths,
        )

    def feature_widths(self, *, edges: bool) -> dict[str, int] | None:
        """Return the number of features of each vertex type, or with ``edges`` of each edge type.

        Types are named as in reports. None: there are no types, or no edge has features.
        """
        features: object = self.edges.by_type if edges else self.features
        if not isinstance(features, TypedFeatures):
            return None
        names = list(map(str, self.schema.edge_types)) if edges else self.vertex_types
        return dict(zip(names, features.widths, strict=True))

    @property
    def num_features(self) -> int:
        """Number of features of a vertex, f^0 in the papers; with types, of the widest one."""
        if isinstance(self.features, TypedFeatures):
            return max(self.features.widths)
        if self.feature_dtype in MAX_QUANTIZED:
            return self.num_quantized
        return int(self.features.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored feature row; with types, of the longest one."""
        if isinstance(self.features, TypedFeatures):
            return max((matrix.row_bytes for matrix in self.features.present), default=0)
        return int(self.features.shape[1]) * self.features.itemsize

    def of_target(self, *vertex_types: str) -> Graph:
        """Return the graph with labels and split of some vertex types alone, another content.

        GraphError: a type has no labels, or is the only one that has.
        """
        chosen = [labels for labels in self.type_labels if labels.vertex_type in vertex_types]
        if not chosen or len(chosen) != len(set(vertex_types)):
            raise GraphError(
                f"{self.name}: labels of {', '.join(vertex_types)}: expected vertex types that "
                f"have labels beside another, which are {', '.join(self.targets) or 'none'}"
            )
        parts = {}
        for name in store_format.SPLIT_ARRAYS:
            ids = getattr(self, name)
            parts[name] = ids[np.any([labels.of_type(ids) for labels in chosen], axis=0)]
        classes = chosen[0].classes if len(chosen) == 1 else None
        names = [labels.vertex_type for labels in chosen]
        content = self.origin.content and files.digest([self.origin.content, names])
        origin = replace(self.origin, content=content, classes=classes)
        graph = replace(self, split=Split(**parts), origin=origin)
        return graph.with_type_labels(chosen)

    def with_type_labels(self, types: Sequence[TypeLabels]) -> Graph:
        """Return the graph with labels of ``types``, in the order of the schema."""
        labels: Any = LabelsByType(types) if len(types) > 1 else types[0].values
        return replace(
            self,
            labels=labels,
            num_classes=max(of_type.num_classes for of_type in types),
            metric=types[0].metric,
        )

    def with_split(self, **parts: IntArray) -> Graph:
        """Return the graph with parts of its split replaced, such as ``train_idx=ids``."""
        return replace(self, split=replace(self.split, **parts))

    @property
    def matrices(self) -> tuple[FeatureMatrix | None, ...]:
        """Features of each vertex type of the schema; None: the type has none."""
        if isinstance(self.features, TypedFeatures):
            return self.features.matrices
        dtype: Any = self.feature_dtype
        return (FeatureMatrix(rows=self.features, dtype=dtype, width=self.num_features),)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the feature matrix of all vertices, as stored."""
        return self.features.nbytes

    def check_features(self) -> None:
        """Raise GraphError if vertices, without types, have no features."""
        if not self.num_features and self.types is None:
            raise GraphError(
                f"{self.path or self.name}: its vertices have no features; features=learned, "
                "degrees or projections gives them some (docs/featureless-graphs.md)"
            )

    def with_quantized_features(self, dtype: str) -> Graph:
        """Return the graph with features quantized to int8 or int4; GraphError: not finite."""
        if isinstance(self.features, TypedFeatures):
            raise self.features.refused()
        if dtype not in MAX_QUANTIZED:
            raise GraphError(f"{self.name}: features as {dtype}, allowed are int8 and int4")
        width = self.num_features
        rows = np.empty((self.num_vertices, row_length(dtype, width)), np.uint8)
        for part in row_slices(len(rows), 4 * width):
            values = as_float32(self.features[part], self.feature_dtype, width)
            if not np.isfinite(values).all():
                raise GraphError(f"{self.name}: features must be finite")
            rows[part] = quantized(values, dtype)
        return replace(self, features=rows, feature_dtype=dtype, num_quantized=width)

    def without_types(self) -> Graph:
        """Return the graph with one list of neighbors a vertex, over all edge types, and no types.

        A graph without types returns itself. The result shares all arrays but ``indptr``, has no
        features of vertices and no times, and reads neighbors in memory. It has the task rows.
        """
        if self.types is None:
            return self
        degrees = self.degrees
        if degrees is not None:
            offsets = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
            degrees = np.diff(self.types.vertex_offsets(offsets)).astype(np.uint32)
        return replace(
            self,
            degrees=degrees,
            indptr=self.types.vertex_offsets(self.indptr),
            features=np.empty((self.num_vertices, 0), np.float32),
            feature_dtype="float32",
            types=None,
            times=None,
            lists=None,
        )

    def without_edge_features(self) -> Graph:
        """Return the graph without edge features, for a model that does not use them."""
        return replace(self, edges=replace(self.edges, rows=None, features=None, by_type=None))

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Map the graph store at ``path`` read-only; processes share its pages.

        Ids in ``indices`` and rows in ``edge_rows`` are checked when samplers read them.

        Raises:
            GraphError: a file is missing, truncated, of another version, or invalid.
        """
        path = Path(path)
        meta = store_meta.read_meta(path)
        arrays: dict[str, Any] = store_arrays.map_arrays(path, meta)
        # Another process may have replaced the store in between.
        if store_meta.read_meta(path).content != meta.content:
            raise GraphError(f"{path}: was prepared anew while it was opened; try again")
        if meta.part is not None and meta.divides_rows:
            arrays["features"] = ShardedFeatures.from_store(arrays, meta.part, path)
        types = None if meta.types is None else meta.types.schema
        if meta.types is not None:
            arrays["features"] = store_arrays.vertex_matrices(arrays, meta.types)
        return cls(
            name=meta.name,
            feature_dtype=meta.feature_dtype,
            num_quantized=meta.num_features,
            num_classes=meta.num_classes,
            metric=meta.metric,
            split=Split(**{name: arrays.pop(name) for name in store_format.SPLIT_ARRAYS}),
            origin=Origin(
                path=path, content=meta.graph_content, attainable_accuracy=meta.attainable_accuracy
            ),
            edges=EdgeData.from_store(arrays, meta),
            types=types,
            times=take_times(arrays, meta.times),
            rows=take_rows(arrays, meta.row_labels, meta.name),
            **arrays,
        )

    @standard_arithmetic()
    def save(self, path: str | Path) -> None:
        """Write the graph to a new graph store at ``path``, atomically.

        ``Graph.open`` reads the store, and ``gnnscale train dataset=store dataset.store=PATH``
        trains on it. Weights, features and labels of edges are stored, ``edge_ids`` are not. For a
        graph opened from a store, the store's ids of vertices, columns and scaling of features,
        and names of classes are copied if the arrays that they describe are unchanged.

        Args:
            path: a new or empty directory; its parents are created.

        Raises:
            ConfigError: ``path`` is an address, such as ``s3://bucket/graph``.
            GraphError: ``path`` is not empty or not writable; the graph is a part of another graph;
                or it has no features, an incomplete split, or an unlabeled training or validation
                vertex.
        """
        refuse_address(path, "path")
        store_writer.write_store(Path(path), **self.store_contents())

    def store_contents(self) -> dict[str, Any]:
        """Return the arguments of ``store_writer.write_store``, of which ``source`` says ``save``.

        GraphError: the graph cannot be saved.
        """
        if self.degrees is not None:
            raise GraphError(f"{self.path or self.name}: is one part of a graph, copy its folder")
        parts = (self.train_idx, self.valid_idx, self.test_idx)
        self.origin.split.check(parts, self.name)
        self.origin.split.check_labeled(parts, self.labels, self.name)
        if self.edge_labels is not None:
            self.edge_labels.check_split()
        labels = self.edge_labels
        notes, copied = _applicable_notes(self)
        ids, classes = self.origin.ids, self.origin.classes
        if classes is not None and len(classes) == self.num_classes:
            notes["classes"] = classes
        return {
            "arrays": _store_arrays(self),
            "user_ids": ids if ids is not None and len(ids) == self.num_vertices else None,
            "copied": copied,
            "name": self.name,
            "num_classes": self.num_classes,
            "feature_dtype": self.feature_dtype,
            "num_features": self.num_features,
            "types": type_entry(self),
            "metric": self.metric,
            "attainable_accuracy": self.attainable_accuracy,
            "type_labels": store_meta.label_entries(self.type_labels),
            "edge_labels": labels and {"num_classes": labels.num_classes, "metric": labels.metric},
            "source": "Graph.save",
            "options": {},
            "raw": [],
            **timed_entries(self.times, self.rows),
            **notes,
        }


def _applicable_notes(graph: Graph) -> tuple[dict[str, Any], list[Path]]:
    """Return metadata of the graph's store, such as column names, that a copy keeps, and id files.

    Metadata is kept if the array that it describes equals the store's.
    """
    if graph.path is None:
        return {}, []
    stored = Graph.open(graph.path)
    pairs: dict[str, tuple[Any, Any]] = {
        "features": (graph.features, stored.features),
        "labels": (graph.labels, stored.labels),
        "edge_features": (graph.edge_features, stored.edge_features),
    }
    if graph.edges.by_type is not None:
        pairs["edge_features"] = (graph.edges.by_type, stored.edges.by_type)
    if graph.edge_labels is not None and stored.edge_labels is not None:
        pairs["edge_labels"] = graph.edge_labels.labels, stored.edge_labels.labels
    unchanged = [name for name, arrays in pairs.items() if store_writer.are_equal(*arrays)]
    if graph.num_vertices == stored.num_vertices:
        unchanged.append("vertices")
    return store_writer.applicable_metadata(graph.path, unchanged)


def _store_arrays(graph: Graph) -> dict[str, Array]:
    """Return a graph's arrays by their names in a store, in its types, ids of splits sorted."""
    ids = store_format.vertex_dtype(graph.num_vertices)
    indices = graph.indices.astype(ids, copy=False)
    arrays = {"indptr": graph.indptr, "indices": indices, **graph.label_arrays}
    if isinstance(graph.features, TypedFeatures):
        for number, matrix in enumerate(graph.features.matrices):
            if matrix is not None:
                arrays[store_format.typed_features(number)] = matrix.rows
    else:
        arrays["features"] = graph.features
    for part in store_format.SPLIT_ARRAYS:
        arrays[part] = np.sort(getattr(graph, part)).astype(ids)
    arrays |= graph.edges.arrays() | timed_arrays(graph.times, graph.rows)
    for part in store_format.EDGE_SPLITS if graph.edge_labels is not None else ():
        arrays[part] = np.sort(arrays[part]).astype(
            store_format.vertex_dtype(len(arrays[store_format.EDGE_LABELS]))
        )
    return arrays


def type_entry(graph: Graph) -> store_meta.TypeEntry | None:
    """Return the entry of ``meta.json`` for the graph's types; None: it has none."""
    features: object = graph.features
    if not isinstance(features, TypedFeatures):
        return None
    edges = graph.edges
    return store_meta.TypeEntry.of(graph.schema, features, edges.by_type, edges.labeled_type)
