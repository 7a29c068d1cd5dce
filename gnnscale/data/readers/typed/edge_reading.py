"""Reading of tables of edges between types of vertices, and of foreign keys."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gnnscale.core import (
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    brief,
    hardware,
    pyarrow,
)
from gnnscale.core.artifact import files
from gnnscale.data.readers.edge_reading import (
    MAX_THREADS,
    QUEUED_BATCHES,
    ROW_BYTES,
    read_weights,
)
from gnnscale.data.readers.table_options import ColumnOptions
from gnnscale.data.readers.typed.edge_features import EdgeFeatureFile
from gnnscale.data.tables.batch import Batch, is_text, null_mask
from gnnscale.data.tables.table import Table, mapped
from gnnscale.data.tables.time_columns import TimeColumn
from gnnscale.data.tables.vertex_ids import IdMap, csv_id_type, max_id_bytes
from gnnscale.graph import EdgeType, vertex_dtype

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class EdgeTable:
    """Table of the edges of one type.

    Example: the foreign key ``user_id`` of a table of orders has the edge type
    ``order-user_id-user``, ``source`` of None, and ``target`` of ``user_id``.
    """

    edge_type: EdgeType
    table: Table
    #: column of the source ids. None: each row is a source, and ``target`` is a foreign key, whose
    #: empty cells are no edges
    source: str | None
    target: str  #: column of the destination ids
    weight: str | None = None  #: column of the weights. None: all edges weigh 1
    columns: ColumnOptions | None = None  #: columns of features. None: edges have none
    time: TimeColumn | None = None  #: column of times. None: edges have none of their own

    @property
    def ends(self) -> list[tuple[str, str]]:
        """Vertex type and column of each end that has a column of ids."""
        target = self.edge_type.destination, self.target
        return [target] if self.source is None else [(self.edge_type.source, self.source), target]

    @property
    def name(self) -> str:
        """Table and edge type, for messages; of a foreign key, its column."""
        if self.source is None:
            return f"{self.table.path}: {brief(self.target)}"
        return f"{self.table.path}: {brief(str(self.edge_type))}"


@dataclass(kw_only=True)
class TypeIds:
    """Ids of the vertices of one type, and the treatment of other ids in the edges."""

    vertex_type: str
    id_map: IdMap
    id_type: str  #: one of ``ID_TYPES``
    policy: str  #: one of ``UNKNOWN_ID_POLICIES``
    has_table: bool


class ReadEdges(NamedTuple):
    """Edges of one type, ids counted from 0 in each vertex type."""

    src: IntArray  #: ``[num_edges]``
    dst: IntArray  #: ``[num_edges]``
    weights: Float32Array | None  #: ``[num_edges]``. None: all weigh 1
    times: Int64Array | None  #: ``[num_edges]``. None: edges have no times of their own


class _UnknownIds:
    """Collector of the distinct ids of a vertex type that stand only in the edges."""

    def __init__(self, ids: TypeIds, max_bytes: int) -> None:
        self._ids, self._max_bytes = ids, max_bytes
        self._distinct = pyarrow.array([], ids.id_map.type)
        self._arrays: list[Any] = []

    def add(self, array: Any, table: Table) -> None:
        """Add distinct unknown ids of a batch; GraphError: ids take too much memory."""
        self._arrays.append(array)
        if sum(map(len, self._arrays)) <= len(self._distinct):
            return
        self._merge()
        if self._distinct.nbytes > self._max_bytes:
            raise GraphError(
                f"{table.path}: ids that are no ids of {brief(self._ids.vertex_type)} take over "
                f"{self._max_bytes} bytes; dataset.unknown_ids=drop leaves out their edges"
            )

    def refuse(self, edge: EdgeTable, column: str) -> None:
        """Raise the GraphError that ``column`` has no id of any vertex of this type."""
        self._merge()
        ids = self._ids.id_map
        if len(self._distinct):
            raise GraphError(
                f"{edge.table.path}: {brief(column)} holds no id of the {ids.size} vertices of "
                f"{brief(self._ids.vertex_type)}, such as {brief(repr(ids.all_ids()[0].as_py()))}, "
                f"but ids such as {brief(repr(self._distinct[0].as_py()))}; name the columns by "
                "dataset.id and dataset.ends"
            )

    def finish(self) -> Any:
        """Return the ids, sorted, an Arrow array."""
        self._merge()
        return self._distinct.take(pyarrow.compute.sort_indices(self._distinct))

    def _merge(self) -> None:
        self._distinct = pyarrow.concat_arrays([self._distinct, *self._arrays]).unique()
        self._arrays = []


def unknown_ids(edges: Sequence[EdgeTable], ids: Mapping[str, TypeIds]) -> dict[str, Any]:
    """Return by vertex type the sorted ids that stand only in the edges, Arrow arrays, in a pass.

    They are of the types whose policy is ``vertices``. GraphError: a column holds no id of a type
    that has a table, or an id of another type; or unknown ids take too much memory.
    """
    max_bytes = max_id_bytes(sum(files.total_bytes(edge.table.paths) for edge in edges))
    collectors = {
        name: _UnknownIds(type_ids, max_bytes)
        for name, type_ids in ids.items()
        if type_ids.policy == "vertices"
    }
    for edge in edges:
        ends = [(name, column) for name, column in edge.ends if name in collectors]
        if ends:
            _collect(edge, ends, ids, collectors)
    unknown = {name: collector.finish() for name, collector in collectors.items()}
    for name, ids_of in unknown.items():
        if len(ids_of) and ids[name].has_table:
            _check_other_types(ids_of, ids[name], ids)
    return unknown


def _check_other_types(unknown: Any, type_ids: TypeIds, ids: Mapping[str, TypeIds]) -> None:
    """Raise GraphError if ``unknown``, texts that are no ids of a type, are ids of another type.

    Types that share ids, as those that count from 0 do, are not compared.
    """
    if not is_text(unknown.type):
        return
    is_in, all_ids = pyarrow.compute.is_in, type_ids.id_map.all_ids()
    for other in ids.values():
        if other is type_ids or not other.has_table or not is_text(other.id_map.type):
            continue
        other_ids = other.id_map.all_ids()
        wrong = unknown.filter(is_in(unknown, other_ids))
        if len(wrong) and not pyarrow.compute.any(is_in(all_ids, other_ids)).as_py():
            raise GraphError(
                f"edges: {len(wrong):,} ids such as {brief(repr(wrong[0].as_py()))} stand for "
                f"vertices of {brief(type_ids.vertex_type)} and are ids of "
                f"{brief(other.vertex_type)}; dataset.ends names the columns of each edge type, "
                "dataset.unknown_ids=drop leaves out such edges"
            )


def _collect(
    edge: EdgeTable,
    ends: Sequence[tuple[str, str]],
    ids: Mapping[str, TypeIds],
    collectors: Mapping[str, _UnknownIds],
) -> None:
    """Read a table of edges, and add ids that no vertex has to the collector of their vertex type.

    ``ends`` are pairs of a vertex type and its column in the table.
    """

    def look_up(first: int, batch: Batch) -> list[tuple[Any, bool]]:
        batch = _edges_in(edge, batch)[0]
        return [ids[name].id_map.unknown(batch, column) for name, column in ends]

    types = {column: _csv_type(edge, ids[name], column) for name, column in ends}
    is_used = [False] * len(ends)
    for results in _map(look_up, edge, types):
        for number, (array, has_other) in enumerate(results):
            collectors[ends[number][0]].add(array, edge.table)
            is_used[number] |= has_other and ids[ends[number][0]].has_table
    edge.table.problems.settle()
    for (name, column), has_ids in zip(ends, is_used, strict=True):
        if ids[name].has_table and not has_ids and not edge.table.problems.exist:
            collectors[name].refuse(edge, column)


class _Part(NamedTuple):
    """Edges of one batch."""

    src: Array
    dst: Array
    weights: Float32Array | None
    features: Float32Array | None
    times: Int64Array | None
    num_empty: int  #: edges left out, since the cell of a foreign key, or a number, is empty
    num_unknown: int  #: edges left out, since an end is no vertex


def read_edges(
    edge: EdgeTable,
    ids: Mapping[str, TypeIds],
    changes: list[str],
    file: EdgeFeatureFile | None = None,
) -> ReadEdges:
    """Return the edges of a table in its order; ``changes`` gets how many are left out.

    Features of the edges are written to ``file``; None: they have none. GraphError: cells cannot be
    read, an id is unknown and refused, or no edge is left.
    """
    types = {column: _csv_type(edge, ids[name], column) for name, column in edge.ends}
    if edge.weight is not None:
        types[edge.weight] = pyarrow.float64()
    if edge.time is not None:
        types |= edge.time.csv_types
    dtypes = [
        vertex_dtype(ids[name].id_map.size)
        for name in (edge.edge_type.source, edge.edge_type.destination)
    ]
    if file is not None:
        types |= file.features.csv_types
    # Compressed CSV does not tell its rows.
    capacity = edge.table.num_rows() or 0
    src, dst = (_Growing(dtype, capacity) for dtype in dtypes)
    weights = None if edge.weight is None else _Growing(np.dtype(np.float32), capacity)
    times = None if edge.time is None else _Growing(np.dtype(np.int64), capacity)
    num_edges = num_empty = num_unknown = 0
    width = 0 if file is None else file.features.num_features
    parts = _map(
        lambda first, batch: _read_batch(edge, ids, file, first, batch), edge, types, width
    )
    with file or nullcontext():
        for part in parts:
            num_edges += len(part.src)
            num_empty += part.num_empty
            num_unknown += part.num_unknown
            if edge.table.problems.exist:
                continue
            src.append(part.src)
            dst.append(part.dst)
            if weights is not None and part.weights is not None:
                weights.append(part.weights)
            if times is not None and part.times is not None:
                times.append(part.times)
            if file is not None and part.features is not None:
                file.append(part.features)
    edge.table.problems.raise_any()
    _note(edge, num_edges, num_empty, num_unknown, changes)
    optional = (None if array is None else array.values for array in (weights, times))
    return ReadEdges(src.values, dst.values, *optional)


def _read_batch(
    edge: EdgeTable,
    ids: Mapping[str, TypeIds],
    file: EdgeFeatureFile | None,
    first: int,
    batch: Batch,
) -> _Part:
    """Return the edges of a batch whose first row is ``first``; report those refused."""
    num_rows = len(batch)
    batch, rows = _edges_in(edge, batch)
    ends = [first + rows] if edge.source is None else []
    mask = np.ones(len(batch), np.bool_)
    for name, column in edge.ends:
        vertices = ids[name].id_map.find(batch, column)
        is_unknown = vertices < 0
        mask &= ~is_unknown
        if ids[name].policy != "drop" and is_unknown.any():
            ids[name].id_map.report_unknown(batch, column, is_unknown)
        ends.append(vertices)
    num_known = int(np.count_nonzero(mask))
    features = None if file is None or edge.table.problems.exist else file.features
    if features is not None and file is not None and file.drops_empty:
        mask &= ~features.empty(batch)
    num_kept = int(np.count_nonzero(mask))
    src, dst = ends if num_kept == len(mask) else (vertices[mask] for vertices in ends)
    has_values = any(values is not None for values in (edge.weight, features, edge.time))
    valid = batch.filtered(mask) if has_values else batch
    return _Part(
        *(src, dst),
        None if edge.weight is None else read_weights(valid, edge.weight),
        None if features is None else features.of_batch(valid),
        None if edge.time is None else edge.time.read(valid),
        num_empty=num_rows - len(batch) + num_known - num_kept,
        num_unknown=len(batch) - num_known,
    )


def _edges_in(edge: EdgeTable, batch: Batch) -> tuple[Batch, Array]:
    """Return the rows of a batch that are edges, and their indices in the batch."""
    if edge.source is not None:
        return batch, np.arange(len(batch))
    is_edge = ~null_mask(batch.columns[edge.target])
    return batch.filtered(is_edge), np.flatnonzero(is_edge)


#: Reasons of edges of a table that are left out.
_EMPTY_CELL = "the cell is empty"
_EMPTY_NUMBER = "a number is empty (dataset.missing=drop)"
_NO_VERTEX = "an end is no vertex (dataset.unknown_ids=drop, or dataset.missing=drop)"


def _note(
    edge: EdgeTable, num_edges: int, num_empty: int, num_unknown: int, changes: list[str]
) -> None:
    """Add the numbers of edges left out to the changes; GraphError: no edge is left."""
    total = num_edges + num_empty + num_unknown
    if not num_edges:
        raise GraphError(
            f"{edge.name}: no edge is left of {total:,}: {num_unknown:,} have an end that is no "
            f"vertex, {num_empty:,} an empty cell"
        )
    reasons = [(num_empty, _EMPTY_NUMBER), (num_unknown, _NO_VERTEX)]
    if edge.source is None:
        reasons = [(num_empty + num_unknown, _no_key(edge, num_empty, num_unknown))]
    for count, reason in reasons:
        if count:
            changes.append(f"{edge.name}: {count:,} of {total:,} edges left out, since {reason}")


def _no_key(edge: EdgeTable, num_empty: int, num_unknown: int) -> str:
    """Return the reason of rows without an edge by their foreign key."""
    if not num_unknown:
        return _EMPTY_CELL
    unknown = f"holds no id of {brief(edge.edge_type.destination)}"
    if not num_empty:
        return f"the cell {unknown}"
    return f"{_EMPTY_CELL} in {num_empty:,} and {unknown} in {num_unknown:,}"


class _Growing:
    """Array to which values are appended; ``capacity`` is their number, about."""

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self._array: Any = np.empty(capacity, dtype)  # pages are taken as they are written
        self._size = 0

    def append(self, values: Array) -> None:
        """Append ``values`` ``[n]``, cast to the type of the array."""
        size = self._size + len(values)
        if size > len(self._array):
            larger = np.empty(size + size // 8, self._array.dtype)
            larger[: self._size] = self._array[: self._size]
            self._array = larger
        self._array[self._size : size] = values
        self._size = size

    @property
    def values(self) -> Any:
        """Values appended."""
        return self._array[: self._size]


def _csv_type(edge: EdgeTable, ids: TypeIds, column: str) -> Any:
    """Return the Arrow type to parse a column of ids of CSV as."""
    kind = csv_id_type(ids.id_type, ids.id_map.type)
    # Whole numbers with gaps become 1.0, 2.0 in pandas.
    is_float = pyarrow.types.is_floating(edge.table.types[column])
    return pyarrow.float64() if is_float and pyarrow.types.is_integer(kind) else kind


def _map(
    work: Callable[[int, Batch], _Result],
    edge: EdgeTable,
    types: Mapping[str, Any],
    num_features: int = 0,
) -> Iterator[_Result]:
    """Yield ``work``, done by threads, of the first row and the rows of each batch."""

    def numbered() -> Iterator[tuple[int, Batch]]:
        first = 0
        for batch in edge.table.batches(list(types), types, ROW_BYTES + 8 * num_features):
            yield first, batch
            first += len(batch)

    num_threads = min(hardware.usable_cores(), MAX_THREADS)
    limit = QUEUED_BATCHES * num_threads
    return mapped(lambda rows: work(*rows), numbered(), num_threads=num_threads, limit=limit)
