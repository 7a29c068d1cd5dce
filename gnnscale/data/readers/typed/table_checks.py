"""Checks of options of tables by type: labels, columns by type, edge types and foreign keys."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gnnscale.core import ConfigError, brief, suggestion
from gnnscale.data.readers.table_options import check_columns
from gnnscale.data.readers.typed.columns import (
    ColumnsByType,
    listed,
    parse_foreign_key,
    reverse_type,
)
from gnnscale.graph import EdgeType


def check_type(
    option: str, name: str, vertices: Mapping[str, str | None], *, needs_table: bool = False
) -> None:
    """Raise ConfigError if ``name`` in an option is no type of ``vertices``, or lacks its table.

    ``vertices`` are the files of tables by vertex type; None: the type has no table.
    """
    if name not in vertices:
        raise ConfigError(
            f"dataset.{option}: {brief(name)}: expected a type of dataset.vertices, which are "
            f"{listed(vertices)}{suggestion(name, vertices)}"
        )
    if needs_table and vertices[name] is None:
        raise ConfigError(
            f"dataset.{option}: {brief(name)}: expected a type with a table, got null in "
            "dataset.vertices"
        )


def check_labels(
    target: str | None, label: Any, vertices: Mapping[str, str | None], *, is_random: bool
) -> None:
    """Raise ConfigError for a ``target`` that does not fit ``label``, a column or some by type.

    ``is_random`` says whether the split is random, and so needs labels.
    """
    is_by_type = isinstance(label, Mapping)
    if is_by_type and target is not None:
        raise ConfigError(
            f"dataset.target={brief(target)}: expected null, as dataset.label names "
            f"the labeled types ({listed(label)}); task.target trains some of them"
        )
    columns = [*label.values()] if isinstance(label, Mapping) else [] if label is None else [label]
    if not all(isinstance(column, str) for column in columns):
        raise ConfigError(
            f"dataset.label={brief(label)}: expected a column, or columns by vertex type, "
            "as {user: fan, item: kind}"
        )
    if not is_by_type and (target is None) != (label is None):
        (lacking, has), value = ("target", "label"), label
        purpose = "the type of the labeled vertices"
        if target is not None:
            lacking, has, value, purpose = "label", "target", target, "their column"
        raise ConfigError(
            f"dataset.{has}={brief(value)}: expected dataset.{lacking} too, {purpose}"
        )
    types = [*label] if isinstance(label, Mapping) else [] if target is None else [target]
    if not types and is_random:
        raise ConfigError("dataset.split=random: dataset.target=null leaves nothing to split")
    for name in types:
        check_type("label" if is_by_type else "target", name, vertices, needs_table=True)


def check_vertex_options(vertices: Mapping[str, str | None], **options: Any) -> None:
    """Raise ConfigError for a key of ``options`` by vertex type that names no type with a table.

    The option ``id`` may be a column instead.
    """
    ids = options["id"]
    if not (ids is None or isinstance(ids, (str, Mapping))):
        raise ConfigError(f"dataset.id={brief(ids)}: expected a column, or columns by vertex type")
    for option, values in options.items():
        for key in values if isinstance(values, Mapping) else ():
            check_type(option, key, vertices, needs_table=True)


def check_edge_options(
    edges: Collection[str],
    ends: ColumnsByType,
    features: ColumnsByType,
    categories: ColumnsByType,
    *,
    weight: str | None,
) -> None:
    """Raise ConfigError for options by edge type that name no type of ``edges``, or wrong columns.

    ``weight`` is the column of the weights, which is no feature.
    """
    for option, columns_of in (
        *(("ends", ends), ("edge_features", features), ("edge_categories", categories)),
    ):
        for key in columns_of or ():
            if key not in edges:
                raise ConfigError(
                    f"dataset.{option}: {brief(key)}: expected an edge type of dataset.edges, got "
                    f"none of {listed(edges)}"
                )
    for key, columns in (ends or {}).items():
        if len(columns) != 2 or columns[0] == columns[1]:
            raise ConfigError(
                f"dataset.ends: {brief(key)}: expected two columns, [SOURCE, TARGET], got "
                f"[{', '.join(map(brief, columns))}]"
            )
    for key in {*(features or ()), *(categories or ())}:
        used = (weight, *(ends or {}).get(key, ()))
        check_columns("edge_", (features or {}).get(key, []), (categories or {}).get(key), used)


def check_times(
    times: Collection[str], vertices: Mapping[str, str | None], edges: Collection[str]
) -> None:
    """Raise ConfigError for a key of ``times`` that is no edge type, and no type with a table."""
    for key in times:
        if key in edges:
            continue
        if key not in vertices:
            raise ConfigError(
                f"dataset.times: {brief(key)}: expected a type of dataset.vertices or "
                f"dataset.edges, which are {listed([*vertices, *edges])}"
                f"{suggestion(key, [*vertices, *edges])}"
            )
        check_type("times", key, vertices, needs_table=True)


def foreign_key_types(
    keys: Mapping[str, str], vertices: Mapping[str, str | None]
) -> list[EdgeType]:
    """Return the edge types of foreign ``keys``; ConfigError: a key or type is invalid."""
    types = []
    for key, target in keys.items():
        edge_type = parse_foreign_key(key, target, vertices)
        check_type("foreign_keys", edge_type.source, vertices, needs_table=True)
        check_type("foreign_keys", target, vertices)
        types.append(edge_type)
    return types


def check_edge_types(
    types: Sequence[EdgeType], vertices: Mapping[str, str | None], *, reverse: bool
) -> None:
    """Raise ConfigError for a repeated edge type, or a vertex type without vertices.

    With ``reverse``, each edge type has a reverse edge type beside it.
    """
    with_reverse = [*types, *(map(reverse_type, types) if reverse else ())]
    for number, edge_type in enumerate(with_reverse):
        if edge_type in with_reverse[:number]:
            hint = "; dataset.reverse=false adds no reverse types" if reverse else ""
            raise ConfigError(f"dataset.edges: {edge_type}: appears twice{hint}")
    ends = {end for edges in types for end in (edges.source, edges.destination)}
    for name, file in vertices.items():
        if file is None and name not in ends:
            raise ConfigError(
                f"dataset.vertices: {brief(name)}: expected a file, as null takes the ids in "
                "the edges as vertices, and no edge type has this type"
            )
