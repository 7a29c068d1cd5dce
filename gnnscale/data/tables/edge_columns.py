"""Columns of the table of edges: ends, weights, features and labels, mapped by threads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, brief, hardware, pyarrow
from gnnscale.data.tables import vertex_ids
from gnnscale.data.tables.batch import Batch
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.table import Table, mapped

_Result = TypeVar("_Result")
#: Threads that look up ids, at most.
_MAX_THREADS = 8
#: Batches in the queue per thread.
_QUEUED_BATCHES = 4
#: Bytes of a row with two ids and a weight, about.
_ROW_BYTES = 32


@dataclass(frozen=True)
class MappedEdges:
    """Batch of edges whose ids are mapped to vertices."""

    src: Array  #: ``[num_edges]`` source vertices
    dst: Array  #: ``[num_edges]`` destination vertices
    weights: Float32Array | None  #: ``[num_edges]``. None: edges have no weights.
    features: Float32Array | None  #: ``[num_edges, num_features]``. None: no features.
    batch: Batch  #: rows of the table, without those left out
    num_unknown: int  #: edges left out for an unknown end
    num_empty: int  #: edges left out for an empty feature


@dataclass(kw_only=True)
class EdgeTable:
    """Table of edges, with its columns to read."""

    table: Table
    ends: tuple[str, str]  #: columns of the source ids and the destination ids
    weight: str | None  #: column of the weights. None: edges have no weights.
    features: FeatureColumns | None  #: None: edges have no features
    labels: LabelColumns | None  #: None: edges have no labels
    id_type: str  #: one of ``ID_TYPES``
    #: whether edges with an unknown end are left out, which are else refused
    drops_unknown: bool = False
    drops_empty: bool  #: whether edges with an empty feature are left out
    num_edges: int = 0  #: edges read so far
    num_unknown: int = 0  #: edges left out so far for an unknown end
    num_empty: int = 0  #: edges left out so far for an empty feature

    def mapped(self, ids: vertex_ids.IdMap) -> Iterator[MappedEdges]:
        """Yield the edges in batches, in the table's order, whose ends ``ids`` maps to vertices.

        Labels are appended to ``labels``. All problems of the table are a GraphError at the end;
        edges are not yielded after the first.
        """
        problems = self.table.problems
        types = self._end_types(ids)
        if self.weight is not None:
            types[self.weight] = pyarrow.float64()
        if self.features is not None and not problems.exist:
            types |= self.features.csv_types
        if self.labels is not None:
            types |= self.labels.csv_types
        for edges in self._map(lambda batch: self._mapped(batch, ids), types):
            self.num_edges += len(edges.src) + edges.num_unknown + edges.num_empty
            self.num_unknown += edges.num_unknown
            self.num_empty += edges.num_empty
            if self.labels is not None and len(edges.src):
                self.labels.add(edges.batch)
            if len(edges.src) and not problems.exist:
                yield edges
        problems.raise_any()
        if self.num_edges == self.num_unknown + self.num_empty:
            raise GraphError(
                f"{self.table.path}: no edge is left of {self.num_edges:,}: {self.num_unknown:,} "
                f"have an end that is no vertex, {self.num_empty:,} an empty number"
            )

    def unknown_ids(self, ids: vertex_ids.IdMap, max_bytes: int) -> Any:
        """Return the ids that stand only in the edges, sorted, an Arrow array, in a pass.

        GraphError: all ids in the edges are unknown, or unknown ids take over ``max_bytes``.
        """

        def look_up(batch: Batch) -> list[tuple[Any, bool]]:
            return [ids.unknown(batch, end) for end in self.ends]

        unknown, has_known = pyarrow.array([], ids.type), False
        arrays: list[Any] = []
        for columns in self._map(look_up, self._end_types(ids)):
            for array, has_other in columns:
                arrays.append(array)
                has_known |= has_other
            if sum(map(len, arrays)) > len(unknown):
                unknown, arrays = pyarrow.concat_arrays([unknown, *arrays]).unique(), []
                if unknown.nbytes > max_bytes:
                    raise GraphError(
                        f"{self.table.path}: ids that are no ids of vertices take over {max_bytes} "
                        "bytes; dataset.unknown_ids=drop leaves out their edges"
                    )
        unknown = pyarrow.concat_arrays([unknown, *arrays]).unique()
        self.table.problems.settle()
        if not has_known and len(unknown):
            raise GraphError(
                f"{self.table.path}: {self.ends[0]} and {self.ends[1]} hold no id of the "
                f"{ids.size} vertices, but ids such as {brief(repr(unknown[0].as_py()))}; name the "
                "columns by dataset.id, dataset.source and dataset.target"
            )
        return unknown.take(pyarrow.compute.sort_indices(unknown))

    def _end_types(self, ids: vertex_ids.IdMap) -> dict[str, Any]:
        """Return the Arrow type to parse the ids of CSV as, by column name."""
        return dict.fromkeys(self.ends, vertex_ids.csv_id_type(self.id_type, ids.type))

    def _map(self, work: Callable[[Batch], _Result], types: Mapping[str, Any]) -> Iterator[_Result]:
        """Yield ``work``, done by threads, of each batch of the columns ``types``."""
        row_bytes = _ROW_BYTES + 8 * (self.features.num_features if self.features else 0)
        batches = self.table.batches(list(types), types, row_bytes)
        num_threads = min(hardware.usable_cores(), _MAX_THREADS)
        limit = _QUEUED_BATCHES * num_threads
        return mapped(work, batches, num_threads=num_threads, limit=limit)

    def _mapped(self, batch: Batch, ids: vertex_ids.IdMap) -> MappedEdges:
        """Return the edges of a batch, without those left out; report those refused."""
        num_rows = len(batch)
        ends = [ids.find(batch, end) for end in self.ends]
        mask = np.ones(num_rows, np.bool_)
        for end, vertices in zip(self.ends, ends, strict=True):
            is_unknown = vertices < 0
            mask &= ~is_unknown
            if not self.drops_unknown and is_unknown.any():
                ids.report_unknown(batch, end, is_unknown)
        num_known = int(np.count_nonzero(mask))
        features = None if self.table.problems.exist else self.features
        if features is not None and self.drops_empty:
            mask &= ~features.empty(batch)
        batch = batch.filtered(mask)
        src, dst = (vertices[mask] for vertices in ends)
        return MappedEdges(
            src,
            dst,
            None if self.weight is None else _weights(batch, self.weight),
            None if features is None else features.of_batch(batch),
            batch,
            num_unknown=num_rows - num_known,
            num_empty=num_known - len(src),
        )


def _weights(batch: Batch, column: str) -> Float32Array:
    """Return the weights of a batch; report those that are empty, negative or not finite."""
    empty = batch.report_nulls(column)
    values = batch.floats(column, np.float32)
    batch.report(
        ~(empty | ((values >= 0) & np.isfinite(values))),
        (column, "weight"),
        lambda index: (
            f"{brief(column)}: expected a weight of at least 0 in the range of float32, got "
            f"{batch.columns[column][index]}"
        ),
    )
    return values
