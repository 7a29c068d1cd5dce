"""Reading of tables of several types of vertices and edges into a graph."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnscale.core import Float32Array, GraphError, Int64Array, IntArray, brief, pyarrow
from gnnscale.core.artifact import files, map_npy
from gnnscale.core.artifact.files import NoSpaceError
from gnnscale.data.labels import Labels, read_labels
from gnnscale.data.leaks import signs_of_leaks
from gnnscale.data.readers.column_reading import filled, survey_edges
from gnnscale.data.readers.table_options import ColumnOptions
from gnnscale.data.readers.table_reading import ID_BYTES, VERTEX_BYTES
from gnnscale.data.readers.typed.columns import reverse_type
from gnnscale.data.readers.typed.edge_features import EdgeFeatureFile
from gnnscale.data.readers.typed.edge_reading import (
    EdgeTable,
    ReadEdges,
    TypeIds,
    read_edges,
    unknown_ids,
)
from gnnscale.data.readers.typed.times import own_edge_times, times_of_types
from gnnscale.data.readers.vertex_reading import VertexReader
from gnnscale.data.splits import warn_of_small_classes
from gnnscale.data.storage.feature_writer import FeatureWriter
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.standardize import ColumnScaling
from gnnscale.data.tables.batch import is_text
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.survey import Surveyed
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import IdColumn, IdMap, max_id_bytes
from gnnscale.data.typed_edges import typed_topology
from gnnscale.data.typed_labels import with_labels_of
from gnnscale.graph import FeatureMatrix, Graph, GraphSchema, Origin, TypedFeatures

#: Bytes of memory per edge: both ends while they are joined, and the source in a list.
_EDGE_BYTES = 16
_LOG = logging.getLogger(__name__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class VertexTable:
    """Table of the vertices of one type, and how to read it."""

    name: str  #: vertex type
    table: Table
    ids: str | None  #: column of the ids. None: ids are row numbers from 0
    columns: ColumnOptions
    foreign_keys: Collection[str] = ()  #: columns that are no features by default


@dataclass(frozen=True, kw_only=True)
class TypedTableOptions:
    """Options on the reading of all tables."""

    targets: Collection[str]  #: vertex types with labels
    id_type: str  #: one of ``ID_TYPES``
    unknown: str  #: one of ``UNKNOWN_ID_POLICIES``
    missing: str  #: one of ``MISSING_POLICIES``
    reverse: bool  #: whether each edge type has a reverse edge type
    standardize: bool
    advises: bool


class TypedReading:
    """Reader of a graph with types, whose vertices and edges have a table for each type.

    Call ``read_topology``, then ``with_features`` when the split is known. ``changes`` has what was
    filled, added or left out, and ``notes`` are entries for ``meta.json``.

    Args:
        tables: by vertex type its table. None: its vertices are the ids in the edges.
        edges: tables of the edge types.
        options: options on the reading.
        folder: empty folder for the features.
    """

    def __init__(
        self,
        tables: Mapping[str, VertexTable | None],
        edges: Sequence[EdgeTable],
        options: TypedTableOptions,
        folder: Path,
    ) -> None:
        self._tables, self._edges, self._options = tables, edges, options
        self._folder = folder
        self.changes: list[str] = []
        self.notes: dict[str, Any] = {}
        self._readers: dict[str, VertexReader] = {}
        self._num_added: dict[str, int] = {}

    def read_topology(self, name: str) -> Graph:
        """Return the graph ``name`` with labels and published split, and without features."""
        ends = _ends_by_type(self._edges)
        id_types = {
            name: _id_type(name, table, ends.get(name, ()), self._options.id_type)
            for name, table in self._tables.items()
        }
        present = [table for table in self._tables.values() if table is not None]
        readers = _collected(lambda table: self._reader(table, id_types[table.name]), present)
        self._readers = dict(zip((table.name for table in present), readers, strict=True))
        ids = {name: self._type_ids(name, id_types[name]) for name in self._tables}
        self._add_unknown(ids)
        self._check_edge_space()
        edges = _collected(lambda edge: self._read_edges(edge, ids), self._edges)
        sizes = {name: type_ids.id_map.size for name, type_ids in ids.items()}
        for name_of_type, size in sizes.items():
            if not size:
                raise GraphError(f"dataset.vertices: {brief(name_of_type)} has no vertex")
        all_ids = _all_ids([type_ids.id_map for type_ids in ids.values()])
        ids.clear()
        graph = self._topology(name, sizes, edges)
        graph = replace(graph, origin=Origin(ids=all_ids))
        targets = [name for name in self._options.targets if self._readers[name].labels is not None]
        return with_labels_of(graph, {name: self._labeled(name) for name in targets})

    def with_features(self, graph: Graph) -> Graph:
        """Return ``graph`` with features, mapped from files, completed by its split.

        Empty cells of labeled types get means over their training vertices, those of other types
        means over all vertices.
        """
        matrices = [
            self._features(number, vertices.name, graph)
            for number, vertices in enumerate(graph.schema.vertex_types)
        ]
        rows: Any = TypedFeatures(matrices)
        present = rows.present
        dtype = present[0].dtype if present else "float32"
        graph = replace(graph, features=rows, feature_dtype=dtype)
        if self._options.advises:
            scalings = self.notes.get("type_scaling", {})
            self.changes += signs_of_leaks(
                graph,
                self.notes.get("type_columns", {}),
                {name: ColumnScaling(**scaling) for name, scaling in scalings.items()},
            )
        if self.changes:
            self.notes["changes"] = self.changes
        return graph

    def _reader(self, table: VertexTable, id_type: str) -> VertexReader:
        def check_memory(num_vertices: int) -> None:
            what = f"{table.table.path}: about {num_vertices} vertices"
            files.check_space(what, self._folder, memory=(ID_BYTES + VERTEX_BYTES) * num_vertices)

        return VertexReader(
            *(table.columns, table.table, table.ids, id_type, self.changes),
            check_memory=check_memory,
            what=f"vertices of {brief(table.name)}",
            other_roles=table.foreign_keys,
        )

    def _type_ids(self, name: str, id_type: str) -> TypeIds:
        """Return the ids of a vertex type, and the treatment of others by the options."""
        table = self._tables[name]
        if table is None:
            paths = {path for edge in self._edges for path in edge.table.paths}
            column = IdColumn(
                *(name, id_type, max_id_bytes(files.total_bytes(sorted(paths)))),
                what=f"vertices of {brief(name)}",
            )
            kind = self._kind_of_ends(name, id_type)
            id_map, policy = IdMap(column, pyarrow.array([], kind)), "vertices"
        else:
            reader = self._readers[name]
            id_map, policy = reader.id_map, self._options.unknown
            del reader.id_map  # its memory ends with the edges
            has_numbers = any(column.categories is None for column in reader.columns)
            if policy == "vertices" and self._options.missing == "drop" and has_numbers:
                policy = "drop"  # their features would be empty
        return TypeIds(
            vertex_type=name,
            id_map=id_map,
            id_type=id_type,
            policy=policy,
            has_table=table is not None,
        )

    def _kind_of_ends(self, name: str, id_type: str) -> Any:
        """Return the Arrow type of the ids of a vertex type without a table."""
        if id_type == "string":
            return pyarrow.large_string()
        kinds = [table.types[column] for table, column in _ends_by_type(self._edges)[name]]
        unsigned = all(kind == pyarrow.uint64() for kind in kinds)
        return pyarrow.uint64() if unsigned else pyarrow.int64()

    def _add_unknown(self, ids: Mapping[str, TypeIds]) -> None:
        """Add ids that stand only in the edges as vertices; GraphError: features are missing."""
        for name, unknown in unknown_ids(self._edges, ids).items():
            self._num_added[name] = len(unknown)
            if not len(unknown):
                continue
            ids[name].id_map = ids[name].id_map.extended(unknown)
            if not ids[name].has_table:
                continue
            columns = self._readers[name].columns
            example, of = brief(repr(unknown[0].as_py())), brief(name)
            if self._readers[name].times is not None:
                raise GraphError(
                    f"edges: {len(unknown):,} ids such as {example} are of no vertex of {of}, and "
                    "have no time; dataset.unknown_ids=drop leaves out their edges"
                )
            if self._options.missing == "refuse" and any(c.categories is None for c in columns):
                raise GraphError(
                    f"edges: {len(unknown):,} ids such as {example} are of no vertex of {of}, and "
                    "have no features; dataset.missing=mean fills them, dataset.unknown_ids=drop "
                    "leaves out their edges"
                )
            self.changes.append(
                f"{len(unknown):,} ids that only the edges have, such as {example}, are vertices "
                f"of {of} without a label and with empty features (dataset.unknown_ids=vertices)"
            )

    def _check_edge_space(self) -> None:
        counts = [edge.table.num_rows() for edge in self._edges]
        num_edges = sum(filter(None, counts))
        what = f"{self._folder}: about {num_edges} edges"
        files.check_space(what, self._folder, memory=_EDGE_BYTES * num_edges)

    def _read_edges(
        self, edge: EdgeTable, ids: Mapping[str, TypeIds]
    ) -> tuple[ReadEdges, FeatureMatrix | None]:
        """Return the edges of a table and their features; None: there are none.

        Columns and scaling of the features go into the notes, of the reverse edges too.
        """
        options, name = edge.columns, str(edge.edge_type)
        if options is None:
            return read_edges(edge, ids, self.changes), None
        features = survey_edges(options, edge.table, self.changes, brief(name))
        edge.table.problems.raise_any()
        count, width = edge.table.num_rows() or 0, features.num_features
        files.check_space(f"{edge.name}: features", self._folder, disk=4 * count * width)
        path = self._folder / f"edges-{self._edges.index(edge)}.npy"
        drops = options.missing == "drop"
        file = EdgeFeatureFile(path, features, edge.name, drops_empty=drops)
        read = read_edges(edge, ids, self.changes, file)
        matrix = file.finish(standardizes=self._options.standardize, advises=self._options.advises)
        reverse = [str(reverse_type(edge.edge_type))] if self._options.reverse else []
        for of_type in (name, *reverse):
            self.notes.setdefault("edge_type_columns", {})[of_type] = file.columns
            if file.scaling is not None:
                self.notes.setdefault("edge_type_scaling", {})[of_type] = file.scaling
        return read, matrix

    def _topology(
        self,
        name: str,
        sizes: dict[str, int],
        read: list[tuple[ReadEdges, FeatureMatrix | None]],
    ) -> Graph:
        """Return the graph of the edges, and of their reverses if wanted, which it releases."""
        types = [edge.edge_type for edge in self._edges]
        ends: list[tuple[IntArray, IntArray]] = [(edge.src, edge.dst) for edge, _ in read]
        weights = [edge.weights for edge, _ in read]
        features = [matrix for _, matrix in read]
        of_rows = {name: reader.times for name, reader in self._readers.items()}
        own_times = own_edge_times(self._edges, [edge for edge, _ in read], of_rows)
        if self._options.reverse:
            types = [*types, *map(reverse_type, types)]
            ends += [(dst, src) for src, dst in ends]
            weights += weights
            features += features
            own_times += own_times
        all_weights: list[Float32Array] | None = None
        if any(of_type is not None for of_type in weights):
            all_weights = [
                np.ones(len(src), np.float32) if of_type is None else of_type
                for of_type, (src, _) in zip(weights, ends, strict=True)
            ]
        read.clear()
        schema = GraphSchema.of(sizes, [(of.source, of.relation, of.destination) for of in types])
        has_features = any(matrix is not None for matrix in features)
        by_type = TypedFeatures(features) if has_features else None
        times = times_of_types(schema, of_rows, self._edges, own_times)
        return typed_topology(
            schema, ends, name=name, weights=all_weights, features=by_type, times=times
        )

    def _labeled(self, target: str) -> tuple[Labels, list[Int64Array] | None]:
        """Return labels and published split of the rows of type ``target``; None: no split."""
        reader, table = self._readers[target], self._tables[target]
        assert table is not None
        assert reader.labels is not None
        values, classes = reader.labels
        labels = read_labels(
            values,
            count=len(values),
            source=table.table.path,
            num_classes=None if classes is None else len(classes),
        )
        if not labels.num_classes:
            raise GraphError(f"{table.table.path}: no vertex has a label")
        parts = reader.parts()
        if parts is not None and self._options.advises:
            warn_of_small_classes(labels.values, parts, classes=classes)
        return replace(labels, classes=classes), parts

    def _features(self, number: int, name: str, graph: Graph) -> FeatureMatrix | None:
        """Return the features of a vertex type, written to a file; None: it has none."""
        table, num_added = self._tables[name], self._num_added.get(name, 0)
        columns: list[Surveyed] = self._readers[name].columns if table is not None else []
        if table is None or not columns:
            return None
        columns = [replace(column, num_empty=column.num_empty + num_added) for column in columns]
        self.changes += filled(columns, name, num_added)
        named = table.columns.features is not None
        features = FeatureColumns(table.table, columns, named=named)
        notes: dict[str, Any] = {"columns": features.described()}
        of_type = self._folder / str(number)
        of_type.mkdir()
        options = StoreOptions(standardize=self._options.standardize)
        writer = FeatureWriter(of_type, options, notes, advises=self._options.advises)
        vertices = graph.schema.vertices(number)
        writer.write(
            features.rows(num_empty=num_added),
            *((vertices.stop - vertices.start, features.num_features), features.dtype),
            table.table.path,
        )
        train = self._training_rows(number, name, graph)
        writer.finish(train if train is not None and len(train) else None)
        self.notes.setdefault("type_columns", {})[name] = notes["columns"]
        if "scaling" in notes:
            self.notes.setdefault("type_scaling", {})[name] = notes["scaling"]
        rows = map_npy(of_type / "features.npy")
        dtype: Any = writer.dtype
        return FeatureMatrix(rows=rows, dtype=dtype, width=features.num_features)

    def _training_rows(self, number: int, name: str, graph: Graph) -> IntArray | None:
        """Return the rows of a vertex type over which means are taken. None: all."""
        if name not in self._options.targets:
            return None
        vertices = graph.schema.vertices(number)
        is_own = (graph.train_idx >= vertices.start) & (graph.train_idx < vertices.stop)
        rows: IntArray = np.asarray(graph.train_idx[is_own] - vertices.start)
        return rows


def _id_type(
    name: str, table: VertexTable | None, ends: Sequence[tuple[Table, str]], option: str
) -> str:
    """Return how to read the ids of a vertex type: one of ``ID_TYPES``.

    Ids of CSV are texts if a column holds texts, although other columns hold whole numbers.
    ``ends`` are the tables and columns of edges with ids of the type, ``option`` is the user's.
    """
    if option != "auto":
        return option
    kinds = [of.types[column] for of, column in ends if column in of.types]
    if table is None:
        return "string" if any(map(is_text, kinds)) else "auto"
    of_csv = [of.types[column] for of, column in ends if of.is_csv and column in of.types]
    ids = table.table.types.get(table.ids or "")
    is_whole = table.table.is_csv and ids is not None and pyarrow.types.is_integer(ids)
    if is_whole and any(map(is_text, of_csv)):
        _LOG.info("ids of %s are read as texts, as edges have texts", brief(name))
        return "string"
    return "auto"


def _ends_by_type(edges: Sequence[EdgeTable]) -> dict[str, list[tuple[Table, str]]]:
    """Return by vertex type the tables and columns of edges that hold its ids."""
    ends: dict[str, list[tuple[Table, str]]] = {}
    for edge in edges:
        for name, column in edge.ends:
            ends.setdefault(name, []).append((edge.table, column))
    return ends


def _collected(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return ``work`` of each item; GraphError: the problems of all items, after the last one."""
    results: list[_Result] = []
    problems: list[str] = []
    for item in items:
        try:
            results.append(work(item))
        except NoSpaceError:
            raise
        except GraphError as error:
            problems.append(str(error))
    if problems:
        raise GraphError(" | ".join(problems), limit=4000)
    return results


def _all_ids(id_maps: Sequence[IdMap]) -> Any:
    """Return the ids of all types as one Arrow array of int64 or large_string.

    None: there is one type, and its ids are the vertex numbers.
    """
    if len(id_maps) == 1 and id_maps[0].array is None:
        return None
    arrays = [id_map.all_ids() for id_map in id_maps]
    text = pyarrow.large_string()
    if not any(is_text(array.type) for array in arrays):
        with suppress(pyarrow.ArrowInvalid):  # numbers of 64 bits without a sign
            return pyarrow.concat_arrays([array.cast(pyarrow.int64()) for array in arrays])
    return pyarrow.concat_arrays([array.cast(text) for array in arrays])
