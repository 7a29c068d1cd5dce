"""Your own graph as NumPy arrays: a folder of .npy files, or one .npz file."""

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, check_choice
from gnnscale.core.artifact.npy import row_slices
from gnnscale.data import base
from gnnscale.data import validation as checks
from gnnscale.data.formats.npz import ArrayFolder, NpzReader, open_arrays
from gnnscale.data.formats.sparse import check_csr, csr_edges
from gnnscale.data.labels import read_labels
from gnnscale.data.storage import writer as store
from gnnscale.data.storage.options import PrepareEstimate
from gnnscale.graph.store_format import METRICS

_LOG = logging.getLogger(__name__)

#: What each array may be called.
_FEATURES = ("features", "x", "feat")
_LABELS = ("labels", "y", "label")
_WEIGHTS = ("edge_weights", "edge_weight")
_EDGE_FEATURES = ("edge_features", "edge_attr", "edge_feat")
_EDGE_LABELS = ("edge_labels", "edge_y")

_SPLIT = (
    ("train_mask", "train_idx"),
    ("valid_mask", "val_mask", "valid_idx", "val_idx"),
    ("test_mask", "test_idx"),
)
_EDGE_SPLIT = tuple(tuple(f"edge_{name}" for name in names) for names in _SPLIT)

#: The three forms of edges, each the arrays that it takes.
_EDGES = (("edge_index",), ("src", "dst"), ("indptr", "indices"))
_FORMS = (
    _FEATURES,
    _LABELS,
    _WEIGHTS,
    _EDGE_FEATURES,
    _EDGE_LABELS,
    *_SPLIT,
    *_EDGE_SPLIT,
    *_EDGES,
)
_NAMES = {name for names in _FORMS for name in names}
#: Which lists ``indptr`` and ``indices`` are: of in-neighbours, or of out-neighbours.
_LISTS = ("csc", "csr")
_Edges = Generator[tuple[Array, Array]]


@dataclass(frozen=True, kw_only=True)
class Arrays(base.Dataset):
    """Arrays ``edge_index`` and perhaps ``features``, ``labels``, a split and data of edges.

    Each has a few accepted names; see ``docs/your-graph.md``. Features and edges of a folder are
    mapped and read in slices.

    Attributes:
        lists: whether ``indptr`` and ``indices`` hold in-neighbours (``csc``) or out-neighbours
            (``csr``).
        metric: one of ``METRICS``; None for the labels' default.
        edge_split_by: unit of a random split of edges: ``pair`` keeps all edges between two
            vertices in one part, ``edge`` divides each edge by itself.
    """

    lists: str = "csc"
    metric: str | None = None
    edge_split_by: str = "pair"

    _is_users: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.lists", self.lists, _LISTS)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        if self.metric is not None:
            check_choice("dataset.metric", self.metric, METRICS)

    def raw_files(self) -> list[Path]:
        """Return the archive, or the files that are read."""
        path = self.raw_path()
        if not path.is_dir():
            return [path]
        files = [path / f"{name}.npy" for name in sorted(_NAMES)]
        return [file for file in files if file.exists()]

    def read(self, writer: store.StoreWriter) -> None:
        """Push the graph."""
        with open_arrays(self.raw_path()) as arrays:
            others = sorted(set(arrays.names) - _NAMES)
            if others:
                _LOG.info("%s: not read: %s", arrays.path, ", ".join(others))
            writer.counts_repeated = True
            writer.lists_edges = _found(arrays, _EDGE_LABELS) is not None
            features = _found(arrays, _FEATURES)
            if features is None:
                num_vertices = _num_vertices(arrays)
                self._check_needs(arrays, writer, num_vertices, 0, "float32")
                writer.set_num_vertices(num_vertices, source=arrays.path)
                self._read_edges(arrays, writer)
                writer.set_featureless(source=arrays.path)
            else:
                self._read_with_features(arrays, writer, features)
            if self._has_labels:
                self._read_labels(arrays, writer)
                self._read_edge_labels(arrays, writer)
            else:
                writer.set_unlabelled()

    @property
    def _splits_pairs(self) -> bool:
        return self.edge_split_by == "pair"

    def _read_with_features(
        self, arrays: ArrayFolder | NpzReader, writer: store.StoreWriter, features: str
    ) -> None:
        """Push vertices, edges and the array ``features``."""
        header, source = arrays.header(features, axes=2, kinds="biuf"), arrays.source(features)
        num_vertices, num_features = header.shape
        dtype = _stored(header.dtype)
        self._check_needs(arrays, writer, num_vertices, num_features, dtype)
        writer.set_num_vertices(num_vertices, source=source)
        if header.dtype.kind != "b" and dtype != str(header.dtype):
            _LOG.info("%s: %s is stored as %s", source, header.dtype, dtype)
        self._read_edges(arrays, writer)
        # An archive's file stays open as long as one of its arrays is read.
        with closing(arrays.rows(features, kinds="biuf")) as rows:
            writer.write_features(rows, num_features=num_features, dtype=dtype, source=source)

    def _check_needs(
        self,
        arrays: ArrayFolder | NpzReader,
        writer: store.StoreWriter,
        num_vertices: int,
        num_features: int,
        dtype: str,
    ) -> None:
        """Report the max needs of preparing, and refuse what does not fit."""
        num_edges = _num_edges(arrays, _edge_form(arrays))
        labels = _found(arrays, _LABELS)
        width = _num_edge_features(arrays, num_edges)
        labelled = _found(arrays, _EDGE_LABELS) is not None
        row = arrays.header(labels, axes=(1, 2), kinds="biuf").shape[1:] if labels else ()
        needs = PrepareEstimate(
            num_vertices=num_vertices,
            num_edges=num_edges * (2 if self.undirected else 1)
            + (num_vertices if self.self_loops == "add" else 0),
            num_features=num_features,
            feature_dtype=self.feature_dtype or dtype,
            label_bytes=int(np.prod(row)) if row else 8,
            weighted=_found(arrays, _WEIGHTS) is not None,
            num_edge_rows=num_edges if width or labelled else 0,
            num_edge_features=width,
            labelled_edges=labelled,
            memory_bytes=self.memory_bytes,
        )
        needs.check(arrays.path, writer.path)

    def _read_edges(self, arrays: ArrayFolder | NpzReader, writer: store.StoreWriter) -> None:
        form = _edge_form(arrays)
        name = _found(arrays, _WEIGHTS)
        weights = None if name is None else arrays.vector(name, kinds="iuf")
        num_edges = _num_edges(arrays, form)
        if weights is not None and len(weights) != num_edges:
            raise GraphError(f"{arrays.path}/{name}: {len(weights)} weights for {num_edges} edges")
        width = _num_edge_features(arrays, num_edges)
        source = _source(arrays, form, name, _found(arrays, _EDGE_FEATURES))
        first = 0
        with (
            closing(self._edges(arrays, form, writer.num_vertices)) as slices,
            closing(_edge_rows(arrays)) as chunks,
        ):
            rows = _RowChunks(chunks)
            for src, dst in slices:
                for part in row_slices(len(src), max(8 * width, 8)):
                    count = part.stop - part.start
                    writer.add_edges(
                        src[part],
                        dst[part],
                        weights=None if weights is None else weights[first : first + count],
                        features=rows.take(count) if width else None,
                        source=source,
                    )
                    first += count

    def _edges(
        self, arrays: ArrayFolder | NpzReader, form: tuple[str, ...], num_vertices: int
    ) -> _Edges:
        if form == ("edge_index",):
            yield from arrays.pairs("edge_index")
            return
        one, other = (arrays.vector(name) for name in form)
        if form == ("src", "dst"):
            if len(one) != len(other):
                raise GraphError(f"{arrays.path}: src has {len(one)} ids, dst {len(other)}")
            for first in range(0, len(one), 1 << 22):
                part = slice(first, first + (1 << 22))
                yield one[part], other[part]
            return
        check_csr(one, len(other), arrays.path)
        if len(one) != num_vertices + 1:
            raise GraphError(
                f"{arrays.source('indptr')}: {len(one)} offsets for {num_vertices} vertices, "
                f"needed are {num_vertices + 1}"
            )
        for owners, listed in csr_edges(one, other):
            yield (listed, owners) if self.lists == "csc" else (owners, listed)

    def _read_labels(self, arrays: ArrayFolder | NpzReader, writer: store.StoreWriter) -> None:
        name = _found(arrays, _LABELS)
        if name is None:
            _LOG.info("%s: has no labels (%s)", arrays.path, ", ".join(_LABELS))
            writer.set_unlabelled()
            return
        source = arrays.source(name)
        labels = arrays.labels(name, writer.num_vertices, kinds="biuf")
        found = read_labels(
            labels,
            count=writer.num_vertices,
            source=source,
            metric=self.metric,
            advice="dataset.metric=accuracy makes them classes",
        )
        writer.set_labels(
            found.values, num_classes=found.num_classes, metric=found.metric, source=source
        )
        if self.split == "published":
            count = f"{writer.num_vertices} vertices"
            parts = [_part(arrays, names, writer.num_vertices, count) for names in _SPLIT]
            writer.set_split(*parts, source=arrays.path)

    def _read_edge_labels(self, arrays: ArrayFolder | NpzReader, writer: store.StoreWriter) -> None:
        name = _found(arrays, _EDGE_LABELS)
        if name is None:
            return
        labels = arrays.labels(name, _num_edges(arrays, _edge_form(arrays)), kinds="biuf")
        writer.set_edge_labels(labels, source=arrays.source(name))
        if self.split == "published":
            count = f"{len(labels)} edges"
            parts = [_part(arrays, names, len(labels), count) for names in _EDGE_SPLIT]
            writer.set_edge_split(*parts, source=arrays.path)


def _part(
    arrays: ArrayFolder | NpzReader, names: tuple[str, ...], length: int, entries: str
) -> Array:
    name = _found(arrays, names)
    if name is None:
        raise GraphError(
            f"{arrays.path}: has no {' or '.join(names)}; dataset.split=random draws a split"
        )
    values = arrays.vector(name, kinds="b" if name.endswith("mask") else "iu")
    if name.endswith("mask"):
        if len(values) != length:
            raise GraphError(f"{arrays.source(name)}: {len(values)} entries for {entries}")
        values = np.flatnonzero(values)
    if not len(values):
        raise GraphError(
            f"{arrays.source(name)}: the split is empty; training needs all three parts, and "
            "dataset.split=random draws them"
        )
    return values


def _stored(dtype: np.dtype[Any]) -> str:
    """Return the entry of ``FEATURE_DTYPES`` that features of this type are stored as."""
    if dtype.kind == "b":
        return "uint8"
    return str(dtype) if str(dtype) in ("float32", "float16", "uint8") else "float32"


def _found(arrays: ArrayFolder | NpzReader, names: tuple[str, ...]) -> str | None:
    """Return which of the accepted names exists, or None; two of them are refused."""
    found = [name for name in names if name in arrays]
    if len(found) > 1:
        raise GraphError(f"{arrays.path}: has both {found[0]} and {found[1]}, allowed is one")
    return found[0] if found else None


def _num_vertices(arrays: ArrayFolder | NpzReader) -> int:
    """Return the number of vertices of a graph without features.

    Raises:
        GraphError: there are neither labels nor ``indptr``, which have an entry for each vertex.
    """
    labels = _found(arrays, _LABELS)
    if labels is not None:
        return arrays.header(labels, axes=(1, 2), kinds="biuf").shape[0]
    if _edge_form(arrays) == ("indptr", "indices"):
        return arrays.header("indptr", axes=1, kinds="iu").shape[0] - 1
    names = ", ".join((*_FEATURES, *_LABELS, "indptr and indices"))
    raise GraphError(_missing(arrays, "array with a row for each vertex", names))


def _edge_form(arrays: ArrayFolder | NpzReader) -> tuple[str, ...]:
    found = [form for form in _EDGES if all(name in arrays for name in form)]
    if len(found) > 1:
        raise GraphError(
            f"{arrays.path}: has edges both as {' and '.join(found[0])} and as "
            f"{' and '.join(found[1])}, allowed is one"
        )
    if not found:
        names = ", ".join(" and ".join(form) for form in _EDGES)
        raise GraphError(_missing(arrays, "edges", names))
    return found[0]


def _num_edges(arrays: ArrayFolder | NpzReader, form: tuple[str, ...]) -> int:
    return arrays.header(form[-1], axes=len(form) % 2 + 1, kinds="iu").shape[-1]


class _RowChunks:
    """Rows that come in chunks, taken in pieces of any length."""

    def __init__(self, chunks: Iterator[Array]) -> None:
        self._chunks = chunks
        self._left: list[Array] = []

    def take(self, num_rows: int) -> Array:
        """Return the next ``num_rows``, of which there are enough."""
        found = self._left
        while sum(map(len, found)) < num_rows or not found:
            found.append(next(self._chunks))
        whole = found[0] if len(found) == 1 else np.concatenate(found)
        self._left = [whole[num_rows:]]
        return whole[:num_rows]


def _num_edge_features(arrays: ArrayFolder | NpzReader, num_edges: int) -> int:
    """Return how many features edges have, 0 without; refuse another number of rows."""
    name = _found(arrays, _EDGE_FEATURES)
    if name is None:
        return 0
    shape = arrays.header(name, axes=(1, 2), kinds="biuf").shape
    if shape[0] != num_edges:
        raise GraphError(
            f"{arrays.source(name)}: {shape[0]} rows of features for {num_edges} edges"
        )
    width = shape[1] if len(shape) == 2 else 1
    checks.check_num_features(width, arrays.source(name))
    return width


def _edge_rows(arrays: ArrayFolder | NpzReader) -> Generator[Array]:
    """Yield rows of the features of edges in chunks; nothing without features."""
    name = _found(arrays, _EDGE_FEATURES)
    if name is None:
        return
    if len(arrays.header(name, axes=(1, 2), kinds="biuf").shape) == 1:
        yield arrays.vector(name, kinds="biuf")[:, None]
    else:
        yield from arrays.rows(name, kinds="biuf")


def _missing(arrays: ArrayFolder | NpzReader, what: str, accepted: str) -> str:
    there = ", ".join(sorted(arrays.names)) or "no array"
    return f"{arrays.path}: has no {what}; accepted are {accepted}, there is {there}"


def _source(arrays: ArrayFolder | NpzReader, form: tuple[str, ...], *others: str | None) -> str:
    names = [*form, *filter(None, others)]
    return f"{arrays.path} ({', '.join(names)})"
