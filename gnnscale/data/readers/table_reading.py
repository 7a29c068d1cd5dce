"""Reading of tables of vertices and edges into a graph store."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, brief, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.readers.column_reading import filled
from gnnscale.data.readers.edge_reading import EdgeReader
from gnnscale.data.readers.table_options import IdOptions, TableOptions
from gnnscale.data.readers.vertex_reading import VertexReader
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables.batch import is_text
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import IdMap
from gnnscale.graph.store_writer import write_ids

_LOG = logging.getLogger(__name__)
#: Bytes of memory per vertex: label, part of the split, in-degree and offset.
VERTEX_BYTES = 48
#: Bytes of memory per id, at most, besides texts.
ID_BYTES = 64


def read_tables(options: TableOptions, vertices: Table, edges: Table, writer: StoreWriter) -> None:
    """Push vertices with labels and split, edges with their data, then vertex features.

    What was filled, added or left out goes, with counts, into the note ``changes``.
    """
    changes: list[str] = []
    id_type = _id_type(options.ids, vertices, edges)
    edge_reader = EdgeReader(options, edges, id_type, writer, changes)
    vertex_reader = VertexReader(
        *(options.column_options(edges=False), vertices, options.ids.id, id_type, changes),
        check_memory=partial(_check_memory, options, vertices, writer.path),
    )
    unknown = _unknown_ids(options, vertex_reader, edges, edge_reader, changes)
    columns = [
        replace(column, num_empty=column.num_empty + len(unknown))
        for column in vertex_reader.columns
    ]
    changes += filled(columns, "vertices", len(unknown))
    features = FeatureColumns(vertices, columns, named=options.features is not None)
    if columns:
        writer.notes["columns"] = features.described()
    edge_reader.write(_write_vertices(vertex_reader, vertices, writer, unknown))
    if changes:
        writer.notes["changes"] = changes
    if not columns:
        writer.set_featureless(source=vertices.path)
        return
    width, dtype, source = features.num_features, features.dtype, vertices.path
    rows = features.rows(num_empty=len(unknown))
    writer.write_features(rows, num_features=width, dtype=dtype, source=source)


def _id_type(ids: IdOptions, vertices: Table, edges: Table) -> str:
    """Return the type of ids: texts if CSV has whole numbers of vertices and texts of edges."""
    if ids.type == "auto" and vertices.is_csv and edges.is_csv and ids.id in vertices.types:
        ends = [edges.types[end] for end in (ids.source, ids.target) if end in edges.types]
        if pyarrow.types.is_integer(vertices.types[ids.id]) and any(map(is_text, ends)):
            _LOG.info("%s: ids are read as texts, as the edges have texts", vertices.path)
            return "string"
    return ids.type


def _write_vertices(reader: VertexReader, table: Table, writer: StoreWriter, unknown: Any) -> IdMap:
    """Write the vertices: their number, labels, split and ids.

    Return the map from ids to vertices, in which the ids ``unknown`` are further vertices.
    """
    num_added = len(unknown)
    writer.set_num_vertices(reader.num_vertices + num_added, source=table.path)
    if reader.labels is None:
        writer.set_unlabeled()
    else:
        _write_labels(*reader.labels, num_added, table, writer)
        parts = reader.parts()
        if parts is not None:
            writer.set_split(*parts, source=table.path)
    if reader.times is not None:
        times, writer.time_unit = reader.times
        writer.set_vertex_times(times)
    groups = reader.groups()
    if groups is not None:
        writer.groups = np.append(groups, np.full(num_added, -1))
    id_map = reader.id_map.extended(unknown) if num_added else reader.id_map
    if id_map.array is not None:
        writer.notes["ids"] = write_ids(writer.path, id_map.array)
        id_map.array = None
    return id_map


def _write_labels(
    labels: Array, names: list[str] | None, num_added: int, table: Table, writer: StoreWriter
) -> None:
    """Set the labels, unknown for vertices added; class names go into the notes."""
    unknown = np.full(num_added, -1 if labels.dtype.kind == "i" else np.nan, labels.dtype)
    labels = np.concatenate([labels, unknown]) if num_added else labels
    num_classes = None if names is None else len(names)
    writer.set_labels(labels, num_classes=num_classes, metric=None, advice="", source=table.path)
    if names is not None:
        writer.notes["classes"] = names


def _check_memory(options: TableOptions, table: Table, folder: Path, num_vertices: int) -> None:
    """Log the estimated memory of writing a store of ``num_vertices`` vertices into ``folder``.

    NoSpaceError: the data of the vertices alone exceed the free memory.
    """
    id_bytes, data_bytes = ID_BYTES * num_vertices, VERTEX_BYTES * num_vertices
    what = f"{table.path}: about {num_vertices} vertices"
    files.check_space(what, folder, memory=data_bytes + id_bytes)
    sizes = (id_bytes, data_bytes, 12 * table.batch_bytes, options.memory_bytes)
    _LOG.info(
        "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
        "other data, %s for reading, then up to %s for edges",
        *(table.path, f"{num_vertices:,}", *map(files.size, sizes)),
    )


def _unknown_ids(
    options: TableOptions,
    vertices: VertexReader,
    table: Table,
    edges: EdgeReader,
    changes: list[str],
) -> Any:
    """Return the ids that only the edges have, to become vertices, as an Arrow array.

    GraphError: they would have empty features, which ``missing`` refuses.
    """
    has_numbers = any(column.categories is None for column in vertices.columns)
    all_empty = options.missing == "drop" and has_numbers
    adds = options.ids.unknown == "vertices"
    edges.drops_unknown = options.ids.unknown == "drop" or (adds and all_empty)
    if not adds or all_empty:
        return pyarrow.array([], vertices.id_map.type)
    unknown = edges.unknown_ids(vertices.id_map)
    if len(unknown):
        example = brief(repr(unknown[0].as_py()))
        if vertices.times is not None:
            raise GraphError(
                f"{table.path}: {len(unknown):,} ids such as {example} are of no vertex, and have "
                "no dataset.time; dataset.unknown_ids=drop leaves out their edges"
            )
        if options.missing == "refuse" and has_numbers:
            raise GraphError(
                f"{table.path}: {len(unknown):,} ids such as {example} are of no vertex, and have "
                "no features; dataset.missing=mean fills them, dataset.unknown_ids=drop leaves out "
                "their edges"
            )
        changes.append(
            f"{len(unknown):,} ids that only the edges have, such as {example}, are vertices "
            "without a label and with empty features (dataset.unknown_ids=vertices)"
        )
    return unknown
