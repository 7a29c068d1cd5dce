"""Columns of categories: a feature of 0 or 1 for each, the same for every table of a run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, ConfigError, Float32Array, GraphError, Int64Array, shown
from gnnscale.core.artifact.files import check_space
from gnnscale.data.tables.batch import Batch, is_text, plain
from gnnscale.graph import Graph
from gnnscale.graph.dtypes import MAX_QUANTIZED, as_float32
from gnnscale.graph.store_format import MAX_FEATURES

if TYPE_CHECKING:
    from gnnscale.data.tables.table import Table

#: A column with more different values is text, and no category.
MAX_CATEGORIES = 256
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
#: Of a vertex whose cell is empty.
_NO_CATEGORY = -1
#: Rows that are arranged at once take about so many bytes.
_SLICE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table whose numbers or categories are features."""

    name: str
    #: features; 1 unless it holds lists or categories
    width: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    #: what each feature means, sorted; None if the column holds numbers
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        names = self.categories
        if names is not None and (len(names) != self.width or list(names) != sorted(set(names))):
            raise ValueError(f"{len(names)} categories of {self.width} features, sorted or not")


def holds_texts(kind: Any) -> bool:
    """Whether an Arrow type is one of texts, as they are or by the numbers of a dictionary."""
    from pyarrow import types

    return is_text(kind.value_type if types.is_dictionary(kind) else kind)


def find_categories(
    table: Table, columns: Sequence[str], *, option: str = "features"
) -> dict[str, tuple[str, ...]]:
    """Return the different values of each of ``columns``, sorted, without empty cells.

    ``option`` is the one that names them.

    Raises:
        GraphError: a column has over ``MAX_CATEGORIES`` of them, or only empty cells, or holds
            something else than texts and whole numbers; names the column.
    """
    import pyarrow

    found: dict[str, set[str]] = {column: set() for column in columns}
    types = dict.fromkeys(columns, pyarrow.string())
    for batch in table.batches(columns, types, 64) if columns else ():
        for column, values in found.items():
            values.update(_texts(batch, column).unique().drop_null().to_pylist())
            if len(values) > MAX_CATEGORIES:
                _refuse_text(table, column, values)
                raise GraphError(
                    f"{batch.file}: column {shown(repr(column))} has over {MAX_CATEGORIES} "
                    "different values, which is too many for categories; free text is not read: "
                    f"encode it as numbers, or leave the column out by dataset.{option}=[...]"
                )
    for column, values in found.items():
        if not values:
            raise GraphError(
                f"{table.path}: column {shown(repr(column))} has no value, and so no category; "
                f"leave it out by dataset.{option}=[...]"
            )
    return {column: tuple(sorted(values)) for column, values in found.items()}


def _refuse_text(table: Table, column: str, values: Collection[str]) -> None:
    """Raise GraphError for the first text in a column of numbers, if most of ``values`` are."""
    import pyarrow

    if 2 * sum(_NUMBER.fullmatch(each) is not None for each in values) <= len(values):
        return
    for batch in table.batches([column], {column: pyarrow.string()}, 64):
        for index, value in enumerate(_texts(batch, column).to_pylist()):
            if value is not None and not _NUMBER.fullmatch(value):
                raise GraphError(
                    f"{batch.place(index)}: {shown(column)} is {shown(repr(value))}, and most "
                    "values of the column are numbers"
                )


def mixed_up(categories: Sequence[str]) -> str | None:
    """Return a text among numbers, which is rather a mistake in a column of numbers; else None."""
    texts = [name for name in categories if not _NUMBER.fullmatch(name)]
    return texts[0] if texts and len(texts) < len(categories) else None


def one_hot(batch: Batch, column: str, categories: Sequence[str]) -> Float32Array:
    """Return ``[rows, len(categories)]`` float32: 1 at the category of a row, else 0.

    A row whose cell is empty has zeros alone.

    Raises:
        GraphError: a value is not in ``categories``; names the row.
    """
    encoded = _texts(batch, column).dictionary_encode()
    number = {name: place for place, name in enumerate(categories)}
    unknown = len(categories)
    names = encoded.dictionary.to_pylist()
    codes = np.array([*(number.get(name, unknown) for name in names), _NO_CATEGORY], np.int64)
    found = codes[encoded.indices.fill_null(len(names)).to_numpy()]
    if (found == unknown).any():
        index = int((found == unknown).argmax())
        raise GraphError(
            f"{batch.place(index)}: {shown(column)} is {shown(repr(encoded[index].as_py()))}, "
            "which it was not when the categories were counted"
        )
    rows = np.zeros((len(batch), len(categories)), np.float32)
    known = np.flatnonzero(found != _NO_CATEGORY)
    rows[known, found[known]] = 1
    return rows


def _texts(batch: Batch, column: str) -> Any:
    """Return a column as large_string; whole numbers and booleans as they are written."""
    import pyarrow
    from pyarrow import compute, types

    array = plain(batch.columns[column])
    whole = types.is_integer(array.type) or types.is_boolean(array.type)
    if is_text(array.type):
        return array
    if whole or types.is_null(array.type):
        return compute.cast(array, pyarrow.large_string())
    raise GraphError(
        f"{batch.file}: column {shown(repr(column))} holds {shown(array.type)}, categories are "
        "texts or whole numbers"
    )


def places_of(graph: str, have: Sequence[Column], want: Sequence[Column]) -> Int64Array | None:
    """Return the feature of ``have`` that each feature of ``want`` is, -1 if it has no such.

    Columns have the same names in the same order. A category that a table does not have is a
    feature of zeros. None if all features are those of ``have``.

    Args:
        graph: name of the graph that has the columns ``have``, for errors.

    Raises:
        ConfigError: a column has categories in one of the two alone, or one that is not in
            ``want``; names the column and the value.
    """
    if have == want or all(a.categories == b.categories for a, b in zip(have, want, strict=True)):
        return None
    places: list[int] = []
    first = 0
    for found, own in zip(have, want, strict=True):
        if own.categories is None:
            places += range(first, first + found.width)
        else:
            places += _places_of_categories(graph, found, own, first)
        first += found.width
    return np.array(places, np.int64)


def check_kinds(graph: str, found: Column, own: Column, option: str = "categories") -> None:
    """Raise ConfigError if one of two columns of a name has categories, and the other numbers.

    ``option`` is the one that makes numbers categories.
    """
    if found.categories is not None and own.categories is None:
        raise ConfigError(
            f"dataset: {graph} has categories in column {shown(repr(own.name))}, such as "
            f"{shown(repr(found.categories[0]))}, and the run was trained on numbers in it"
        )
    if found.categories is None and own.categories is not None:
        raise ConfigError(
            f"dataset: {graph} has numbers in column {shown(repr(own.name))}, and the run was "
            f"trained on categories in it; set dataset.{option}=[{shown(own.name)}]"
        )


def _places_of_categories(graph: str, found: Column, own: Column, first: int) -> list[int]:
    assert found.categories is not None
    assert own.categories is not None
    unknown = sorted(set(found.categories) - set(own.categories))
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ConfigError(
            f"dataset: {graph} has {shown(repr(unknown[0]))}{more} in column "
            f"{shown(repr(own.name))}, which the run was not trained on; train it again, or leave "
            "these cells empty, which is no category"
        )
    number: Mapping[str, int] = {name: place for place, name in enumerate(found.categories)}
    return [first + number[name] if name in number else -1 for name in own.categories]


def arranged_graph(graph: Graph, places: Int64Array) -> Graph:
    """Return ``graph`` with other features, in a temporary file.

    Args:
        places: ``[num_features]`` of the result: the feature that each is, -1 for zeros.

    Raises:
        NoSpaceError: the disk has no room for it.
    """
    dtype, width = graph.feature_dtype, graph.num_features
    if dtype not in MAX_QUANTIZED:
        return replace(graph, features=_arranged(graph.features, places))
    rows = _arranged(graph.features, places, lambda part: as_float32(part, dtype, width))
    return replace(graph, features=rows, feature_dtype="float32")


def arranged_edges(graph: Graph, places: Int64Array) -> Graph:
    """Return ``graph`` with other features of edges; as ``arranged_graph``."""
    assert graph.edges.features is not None
    return replace(
        graph, edges=replace(graph.edges, features=_arranged(graph.edges.features, places))
    )


def _arranged(
    features: Array, places: Int64Array, read: Callable[[Array], Array] = np.asarray
) -> Array:
    """Return ``[num_rows, len(places)]`` rows of ``features`` by ``places``, in a file.

    ``read`` gives some rows the columns that places are of.
    """
    shape, dtype = (len(features), len(places)), read(features[:0]).dtype
    num_bytes = shape[0] * shape[1] * dtype.itemsize
    check_space("features by category", Path(tempfile.gettempdir()), disk=num_bytes)
    with tempfile.TemporaryFile() as file:  # the map keeps it
        rows = np.memmap(file, dtype, "w+", shape=shape)
    kept = np.flatnonzero(places >= 0)
    step = max(1, _SLICE_BYTES // (dtype.itemsize * max(shape[1], features.shape[1])))
    for first in range(0, shape[0], step):
        rows[first : first + step, kept] = read(features[first : first + step])[:, places[kept]]
    return rows
