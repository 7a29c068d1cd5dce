"""Reading of the table of edges into a graph store."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnscale.core.artifact import files
from gnnscale.data.readers.feature_reading import columns_of, filled, log_unread, surveys_of
from gnnscale.data.readers.table_options import SPLIT, WEIGHT, TableOptions
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables import roles, vertex_ids
from gnnscale.data.tables.edge_columns import EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.table import Table

#: Bytes of disk per edge: row, both ends, label and split.
_EDGE_ROW_BYTES = 28
#: Bytes of memory per edge: raw label, stored label and split.
_EDGE_LABEL_BYTES = 32


def edge_table(
    options: TableOptions, table: Table, id_type: str, writer: StoreWriter, changes: list[str]
) -> EdgeTable:
    """Return the edge table with its columns to read, and log the columns that are not read.

    Feature columns go into the notes of ``writer``.
    """
    ids = options.ids
    ends = (table.require("source", ids.source), table.require("target", ids.target))
    weight = None
    if options.weight is not None and (options.weight != WEIGHT or WEIGHT in table.names):
        weight = table.require("weight", options.weight)
    labels = _edge_labels(options, table) if options._has_labels else None
    names = [table.require("edge_features", name) for name in options.edge_features or ()]
    read = {*ends, weight, *names, *(labels.csv_types if labels else ())}
    log_unread(table, read, "edge_features")
    features = None
    if names:
        features = _edge_features(options, table, names, changes)
        writer.notes["edge_columns"] = features.described()
    _check_edge_space(table, features, labels is not None, writer.path)
    return EdgeTable(
        table=table,
        ends=ends,
        weight=weight,
        features=features,
        labels=labels,
        id_type=id_type,
        drops_empty=options.missing == "drop",
    )


def _edge_features(
    options: TableOptions, table: Table, names: Sequence[str], changes: list[str]
) -> FeatureColumns:
    """Survey the columns of edge features, in a pass of their own; problems are reported."""
    surveys = surveys_of(options, table, names, "edge_")
    types = {survey.name: survey.kind for survey in surveys}
    for batch in table.batches(names, types, 8 * len(types)):
        for survey in surveys:
            survey.add(batch)
    columns = columns_of(options, table, surveys, "edge_")
    table.problems.settle()
    if options.missing == "drop":
        columns = [
            column if column.categories else replace(column, num_empty=0) for column in columns
        ]
    changes += filled(columns, "edges")
    return FeatureColumns(table, columns, named=True)


def _edge_labels(options: TableOptions, table: Table) -> LabelColumns | None:
    if options.edge_label is None:
        return None
    name = table.require("edge_label", options.edge_label)
    split = None
    if options.split == "published":
        split = roles.find_split(table, "edge_split_column", options.edge_split_column, SPLIT)
    return LabelColumns(table, name, options.edge_label_kind, split, option="edge_label_kind")


def _check_edge_space(
    table: Table, features: FeatureColumns | None, has_labels: bool, folder: Path
) -> None:
    """Raise NoSpaceError if features and labels of the edges exceed the free memory or disk."""
    num_edges = table.num_rows()
    if num_edges is None or not (features or has_labels):
        return
    what = f"{table.path}: features and labels of about {num_edges} edges"
    row = _EDGE_ROW_BYTES + 4 * (features.num_features if features else 0)
    memory = _EDGE_LABEL_BYTES * num_edges * has_labels
    files.check_space(what, folder, memory=memory, disk=row * num_edges)


def write_edges(
    options: TableOptions, edges: EdgeTable, ids: vertex_ids.IdMap, writer: StoreWriter
) -> None:
    """Push the edges, their labels and their split."""
    source = edges.table.path
    writer.edges.lists_edges = options.edge_label is not None
    writer.edges.counts_repeated = True
    for part in edges.mapped(ids):
        writer.add_edges(
            *(part.src, part.dst), weights=part.weights, features=part.features, source=source
        )
    if edges.labels is None:
        return
    labels, names = edges.labels.labels()
    edges.table.problems.raise_any()
    parts = edges.labels.parts(labels, unlabeled=options.unlabelled, what="edges")
    writer.set_edge_labels(labels, source=source)
    if names is not None:
        writer.notes["edge_classes"] = names
    if parts is not None:
        writer.set_edge_split(*parts, source=source)


def left_out(edges: EdgeTable, missing: str) -> list[str]:
    """Return how many edges are left out, by reason."""
    policy = "missing" if missing == "drop" else "unknown_ids"
    reasons = (
        (edges.num_unknown, "an end is no vertex", policy),
        (edges.num_empty, "a number is empty", "missing"),
    )
    return [
        f"{count:,} of {edges.num_edges:,} edges left out, since {reason} (dataset.{option}=drop)"
        for count, reason, option in reasons
        if count
    ]
