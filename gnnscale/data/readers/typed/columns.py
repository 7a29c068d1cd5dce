"""Names of edge types in options, and columns of ids in tables of several types."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from gnnscale.core import ConfigError, GraphError, brief
from gnnscale.data.tables.categories import Column
from gnnscale.data.tables.table import Table
from gnnscale.graph import EdgeType

#: Columns by vertex or edge type. None: the user names none.
ColumnsByType: TypeAlias = Mapping[str, list[str]] | None
#: Names listed in an error, at most.
_MAX_LISTED = 12


def listed(words: Iterable[str]) -> str:
    """Return words for a message, at most a few."""
    names = [brief(word or "''") for word in words]
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def reverse_type(edges: EdgeType) -> EdgeType:
    """Return the edge type of the reverse edges: of ``user-buys-item``, ``item-rev_buys-user``."""
    return EdgeType(edges.destination, f"rev_{edges.relation}", edges.source)


def parse_edge_type(key: str, vertex_types: Collection[str]) -> EdgeType:
    """Return the edge type that ``SOURCE-RELATION-TARGET`` names; names may contain ``-``.

    ConfigError: the text names no edge type of ``vertex_types``, or several.
    """
    types = [
        EdgeType(source, key[len(source) + 1 : -len(target) - 1], target)
        for source in vertex_types
        for target in vertex_types
        if key.startswith(f"{source}-")
        and key.endswith(f"-{target}")
        and len(key) > len(source) + len(target) + 2
    ]
    if len(types) == 1:
        return types[0]
    problem = "got several readings" if types else "got other names"
    raise ConfigError(
        f"dataset.edges: {brief(key)}: expected SOURCE-RELATION-TARGET with types of "
        f"dataset.vertices, which are {listed(vertex_types)}, {problem}"
    )


def parse_foreign_key(key: str, target: str, vertex_types: Collection[str]) -> EdgeType:
    """Return the edge type from the rows of ``TYPE.COLUMN`` to the type ``target``.

    ConfigError: the text names no column of one of ``vertex_types``, or several.
    """
    tables = [
        name for name in vertex_types if key.startswith(f"{name}.") and len(key) > len(name) + 1
    ]
    if len(tables) != 1:
        raise ConfigError(
            f"dataset.foreign_keys: {brief(key)}: expected TYPE.COLUMN with a type of "
            f"dataset.vertices, which are {listed(vertex_types)}"
        )
    return EdgeType(tables[0], key.removeprefix(f"{tables[0]}."), target)


def id_column(name: str, table: Table, chosen: Any, *, needed: bool) -> str | None:
    """Return the column of the ids of a vertex type; None: ids are row numbers.

    ``chosen`` is the user's column, columns by type, or None; ``needed`` says whether edges have
    ids of the type. GraphError: there is no column of ids by default, and edges have ids.
    """
    if isinstance(chosen, str):
        return table.require("id", chosen)
    if chosen is not None and name in chosen:
        column: str | None = chosen[name]
        return column
    default = next((column for column in ("id", f"{name}_id") if column in table.names), None)
    if default is None and needed:
        raise GraphError(
            f"{table.path}: has no column id or {brief(name)}_id, it has {listed(table.names)}; "
            f"{table.setting('id', 'COLUMN')} names it, and null takes row numbers from 0 as ids"
        )
    return default


def end_columns(
    key: str,
    edge_type: EdgeType,
    table: Table,
    chosen: Mapping[str, Sequence[str]],
    weight: str | None,
) -> tuple[str, str]:
    """Return the columns of source and target of a table of edges, the user's or by default.

    ``chosen`` are the user's columns by ``key``, the edge type's name in the options; ``weight`` is
    the column of the weights. GraphError: a column is missing, or there is no default.
    """
    if key in chosen:
        source, target = (table.require("ends", column) for column in chosen[key])
        return source, target
    if "source" in table.names and "target" in table.names:
        return "source", "target"
    by_type = [
        [column for column in (end, f"{end}_id") if column in table.names]
        for end in (edge_type.source, edge_type.destination)
    ]
    if edge_type.source != edge_type.destination and list(map(len, by_type)) == [1, 1]:
        return by_type[0][0], by_type[1][0]
    columns = [column for column in table.names if column != weight]
    if len(columns) == 2:
        return columns[0], columns[1]
    raise GraphError(
        f"{table.path}: has no columns source and target, it has {listed(table.names)}; "
        f"dataset.ends={{{brief(key)}: [SOURCE, TARGET]}} names the columns of ids"
    )


def columns_of_run(
    features: Mapping[str, list[str] | None] | None,
    categories: ColumnsByType,
    trained: Mapping[str, Sequence[Column]],
    names: Iterable[str],
) -> tuple[dict[str, Any], dict[str, list[str]] | None]:
    """Return columns of features and of categories by type, of a graph to predict.

    They are the user's ``features`` and ``categories``; of other types in ``names`` those that a
    run was ``trained`` on, and none if it read none.
    """
    all_features: dict[str, Any] = dict(features or {})
    all_categories = dict(categories or {})
    for name in names:
        if name in all_features:
            continue
        columns = trained.get(name, ())
        all_features[name] = [column.name for column in columns]
        chosen = [column.name for column in columns if column.categories is not None]
        if chosen:
            all_categories.setdefault(name, chosen)
    return all_features, all_categories or None
