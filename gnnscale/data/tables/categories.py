"""Columns of categories, one-hot encoded: one feature of 0 or 1 per category."""

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, ConfigError, Float32Array, GraphError, Int64Array, brief, pyarrow
from gnnscale.core.artifact.files import check_space
from gnnscale.data.tables.batch import Batch, is_text, plain
from gnnscale.graph import MAX_FEATURES, MAX_QUANTIZED, Graph, as_float32

if TYPE_CHECKING:
    from gnnscale.data.tables.table import Table

#: Categories of a column, at most; with more values it is free text.
MAX_CATEGORIES = 256
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
#: Code of an empty cell.
_NO_CATEGORY = -1
#: Bytes of rows that are remapped at a time.
_SLICE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of a table whose numbers or categories are features."""

    name: str
    #: number of features; 1 unless the column has lists or categories
    width: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    #: sorted categories, one per feature. None: the column has numbers.
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        names = self.categories
        if names is not None and (len(names) != self.width or list(names) != sorted(set(names))):
            raise ValueError(f"{len(names)} categories of {self.width} features, sorted or not")


def holds_texts(kind: Any) -> bool:
    """Whether an Arrow type is one of texts, plain or dictionary-encoded."""
    return is_text(kind.value_type if pyarrow.types.is_dictionary(kind) else kind)


def find_categories(
    table: "Table", columns: Sequence[str], *, option: str = "features"
) -> dict[str, tuple[str, ...]]:
    """Return the sorted distinct values, as texts, of each of ``columns``, texts or integers.

    Raises GraphError, naming ``option``, for over ``MAX_CATEGORIES`` values or none.
    """
    values_by_column: dict[str, set[str]] = {column: set() for column in columns}
    types = dict.fromkeys(columns, pyarrow.string())
    for batch in table.batches(columns, types, 64) if columns else ():
        for column, values in values_by_column.items():
            values.update(_as_texts(batch, column).unique().drop_null().to_pylist())
            if len(values) > MAX_CATEGORIES:
                _refuse_text(table, column, values)
                raise GraphError(
                    f"{batch.file}: column {brief(repr(column))} has over {MAX_CATEGORIES} "
                    "different values, which is too many for categories; free text is not read: "
                    f"encode it as numbers, or leave the column out by dataset.{option}=[...]"
                )
    for column, values in values_by_column.items():
        if not values:
            raise GraphError(
                f"{table.path}: column {brief(repr(column))} has no value, and so no category; "
                f"leave it out by dataset.{option}=[...]"
            )
    return {column: tuple(sorted(values)) for column, values in values_by_column.items()}


def _refuse_text(table: "Table", column: str, values: Collection[str]) -> None:
    """Raise GraphError for the first cell that is no number in a column of mostly numbers.

    Nothing is raised unless over half of ``values``, distinct values of ``column``, are numbers.
    """
    if 2 * sum(_NUMBER.fullmatch(value) is not None for value in values) <= len(values):
        return
    for batch in table.batches([column], {column: pyarrow.string()}, 64):
        for index, value in enumerate(_as_texts(batch, column).to_pylist()):
            if value is not None and not _NUMBER.fullmatch(value):
                raise GraphError(
                    f"{batch.locate(index)}: {brief(column)}: expected a number, as most values of "
                    f"the column, got {brief(repr(value))}"
                )


def mixed_up(categories: Sequence[str]) -> str | None:
    """Return the first category that is no number if others are numbers; else None."""
    texts = [name for name in categories if not _NUMBER.fullmatch(name)]
    return texts[0] if texts and len(texts) < len(categories) else None


def one_hot(batch: Batch, column: str, categories: Sequence[str]) -> Float32Array:
    """Return a column's one-hot rows ``[rows, len(categories)]`` float32; zeros for an empty cell.

    GraphError: a value is not among ``categories``.
    """
    encoded = _as_texts(batch, column).dictionary_encode()
    number = {name: index for index, name in enumerate(categories)}
    unknown = len(categories)
    names = encoded.dictionary.to_pylist()
    codes = np.array([*(number.get(name, unknown) for name in names), _NO_CATEGORY], np.int64)
    row_codes = codes[encoded.indices.fill_null(len(names)).to_numpy()]
    if (row_codes == unknown).any():
        index = int((row_codes == unknown).argmax())
        raise GraphError(
            f"{batch.locate(index)}: {brief(column)}: expected a category of the first pass over "
            f"the file, got {brief(repr(encoded[index].as_py()))}"
        )
    rows = np.zeros((len(batch), len(categories)), np.float32)
    filled = np.flatnonzero(row_codes != _NO_CATEGORY)
    rows[filled, row_codes[filled]] = 1
    return rows


def _as_texts(batch: Batch, column: str) -> Any:
    """Return a column of texts, integers or booleans as large_string."""
    array = plain(batch.columns[column])
    whole = pyarrow.types.is_integer(array.type) or pyarrow.types.is_boolean(array.type)
    if is_text(array.type):
        return array
    if whole or pyarrow.types.is_null(array.type):
        return pyarrow.compute.cast(array, pyarrow.large_string())
    raise GraphError(
        f"{batch.file}: column {brief(repr(column))}: expected texts or integers as categories, "
        f"got {brief(array.type)}"
    )


def feature_mapping(
    graph: str, columns: Sequence[Column], expected_columns: Sequence[Column]
) -> Int64Array | None:
    """Return the index, among the features of ``graph``, of each feature of the trained run.

    ``columns`` are the graph's, ``expected_columns`` the run's. -1: no vertex has the category.
    None: the features are equal. ConfigError: a category of the graph was not in training.
    """
    if columns == expected_columns or all(
        a.categories == b.categories for a, b in zip(columns, expected_columns, strict=True)
    ):
        return None
    mapping: list[int] = []
    first = 0
    for column, expected in zip(columns, expected_columns, strict=True):
        if expected.categories is None:
            mapping += range(first, first + column.width)
        else:
            mapping += _category_mapping(graph, column, expected, first)
        first += column.width
    return np.array(mapping, np.int64)


def check_kinds(graph: str, column: Column, expected: Column, option: str = "categories") -> None:
    """Raise ConfigError if just one of ``column`` and the run's ``expected`` has categories."""
    if column.categories is not None and expected.categories is None:
        raise ConfigError(
            f"dataset: column {brief(repr(expected.name))} of {graph}: expected numbers as in "
            f"training, got categories such as {brief(repr(column.categories[0]))}"
        )
    if column.categories is None and expected.categories is not None:
        raise ConfigError(
            f"dataset: column {brief(repr(expected.name))} of {graph}: expected categories as in "
            f"training, got numbers; set dataset.{option}=[{brief(expected.name)}]"
        )


def _category_mapping(graph: str, column: Column, expected: Column, first: int) -> list[int]:
    assert column.categories is not None
    assert expected.categories is not None
    unknown = sorted(set(column.categories) - set(expected.categories))
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ConfigError(
            f"dataset: column {brief(repr(expected.name))} of {graph}: expected the categories of "
            f"training, got {brief(repr(unknown[0]))}{more}; train again, or leave the cells empty"
        )
    number: Mapping[str, int] = {name: index for index, name in enumerate(column.categories)}
    return [first + number[name] if name in number else -1 for name in expected.categories]


def remap_features(graph: Graph, mapping: Int64Array) -> Graph:
    """Return ``graph`` whose vertex feature i is its feature ``mapping[i]``, or zeros for -1.

    The features are in a temporary file; int8 and int4 become float32.
    """
    dtype, width = graph.feature_dtype, graph.num_features
    if dtype not in MAX_QUANTIZED:
        return replace(graph, features=_remapped_copy(graph.features, mapping))
    rows = _remapped_copy(graph.features, mapping, lambda part: as_float32(part, dtype, width))
    return replace(graph, features=rows, feature_dtype="float32")


def remap_edge_features(graph: Graph, mapping: Int64Array) -> Graph:
    """Return ``graph`` whose edge feature i is its feature ``mapping[i]``, or zeros for -1."""
    assert graph.edges.features is not None
    return replace(
        graph, edges=replace(graph.edges, features=_remapped_copy(graph.edges.features, mapping))
    )


def _remapped_copy(
    features: Array, mapping: Int64Array, read: Callable[[Array], Array] = np.asarray
) -> Array:
    """Return rows whose feature i is feature ``mapping[i]`` of ``features``, or 0 for -1.

    They are mapped from a temporary file; ``read`` decodes stored rows.
    """
    shape, dtype = (len(features), len(mapping)), read(features[:0]).dtype
    num_bytes = shape[0] * shape[1] * dtype.itemsize
    check_space("features by category", Path(tempfile.gettempdir()), disk=num_bytes)
    with tempfile.TemporaryFile() as file:  # the map keeps it
        rows = np.memmap(file, dtype, "w+", shape=shape)
    copied = np.flatnonzero(mapping >= 0)
    step = max(1, _SLICE_BYTES // (dtype.itemsize * max(shape[1], features.shape[1])))
    for first in range(0, shape[0], step):
        rows[first : first + step, copied] = read(features[first : first + step])[
            :, mapping[copied]
        ]
    return rows
