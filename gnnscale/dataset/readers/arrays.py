"""Somebody's own graph as NumPy arrays: a folder of .npy files, or one .npz file."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import check_choice
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.checks import class_labels, is_regression
from gnnscale.dataset.formats.array_folder import ArrayFolder, open_arrays
from gnnscale.dataset.formats.npz import NpzReader
from gnnscale.dataset.formats.sparse import check_csr, csr_edges
from gnnscale.dataset.readers.arrays_needs import Needs
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import METRICS, GraphError

__all__ = ["Arrays"]

_LOG = logging.getLogger(__name__)
#: What each array may be called.
_FEATURES = ("features", "x", "feat")
_LABELS = ("labels", "y", "label")
_WEIGHTS = ("edge_weights", "edge_weight")
_SPLIT = (
    ("train_mask", "train_idx"),
    ("valid_mask", "val_mask", "valid_idx", "val_idx"),
    ("test_mask", "test_idx"),
)
#: The three forms of edges, each the arrays that it takes.
_EDGES = (("edge_index",), ("src", "dst"), ("indptr", "indices"))
_NAMES = {name for names in (_FEATURES, _LABELS, _WEIGHTS, *_SPLIT, *_EDGES) for name in names}
#: Which lists ``indptr`` and ``indices`` are: of in-neighbours, or of out-neighbours.
_LISTS = ("csc", "csr")
_Edges = Generator[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, kw_only=True)
class Arrays(Dataset):
    """Arrays ``features``, ``edge_index`` and perhaps ``labels``, a split and ``edge_weights``.

    Each has a few accepted names; see ``docs/your-graph.md``. Features and edges of a folder are
    mapped and read in slices.

    Attributes:
        lists: whether ``indptr`` and ``indices`` hold in-neighbours (``csc``) or out-neighbours
            (``csr``).
        metric: one of ``METRICS``; None for what goes with the labels.
    """

    lists: str = "csc"
    metric: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.lists", self.lists, _LISTS)
        if self.metric is not None:
            check_choice("dataset.metric", self.metric, METRICS)

    def raw_files(self) -> list[Path]:
        """Return the archive, or the files that are read."""
        path = self.raw_path()
        if not path.is_dir():
            return [path]
        files = [path / f"{name}.npy" for name in sorted(_NAMES)]
        return [file for file in files if file.exists()]

    def read(self, writer: StoreWriter) -> None:
        """Push the graph."""
        with open_arrays(self.raw_path()) as arrays:
            others = sorted(set(arrays.names) - _NAMES)
            if others:
                _LOG.info("%s: not read: %s", arrays.path, ", ".join(others))
            features = _needed(arrays, "features", _FEATURES)
            header = arrays.header(features, axes=2, kinds="biuf")
            num_vertices, num_features = header.shape
            dtype = _stored(header.dtype)
            self._tell_needs(arrays, writer, num_vertices, num_features, dtype)
            writer.set_num_vertices(num_vertices, source=arrays.source(features))
            if header.dtype.kind != "b" and dtype != str(header.dtype):
                _LOG.info("%s: %s is stored as %s", arrays.source(features), header.dtype, dtype)
            self._read_edges(arrays, writer)
            # An archive's file stays open as long as one of its arrays is read.
            with closing(arrays.rows(features, kinds="biuf")) as rows:
                writer.write_features(
                    rows, num_features=num_features, dtype=dtype, source=arrays.source(features)
                )
            self._read_labels(arrays, writer)

    def _tell_needs(
        self,
        arrays: ArrayFolder | NpzReader,
        writer: StoreWriter,
        num_vertices: int,
        num_features: int,
        dtype: str,
    ) -> None:
        """Say what preparing takes at most, and refuse what is not there."""
        num_edges = _num_edges(arrays, _edge_form(arrays))
        labels = _found(arrays, _LABELS)
        row = arrays.header(labels, axes=(1, 2), kinds="biuf").shape[1:] if labels else ()
        needs = Needs(
            num_vertices=num_vertices,
            num_edges=num_edges * (2 if self.undirected else 1)
            + (num_vertices if self.self_loops == "add" else 0),
            num_features=num_features,
            feature_dtype=self.feature_dtype or dtype,
            label_bytes=int(np.prod(row)) if row else 8,
            weighted=_found(arrays, _WEIGHTS) is not None,
            memory_bytes=self.memory_bytes,
        )
        needs.check(arrays.path, writer.path)

    def _read_edges(self, arrays: ArrayFolder | NpzReader, writer: StoreWriter) -> None:
        form = _edge_form(arrays)
        name = _found(arrays, _WEIGHTS)
        weights = None if name is None else arrays.vector(name, kinds="iuf")
        num_edges = _num_edges(arrays, form)
        if weights is not None and len(weights) != num_edges:
            raise GraphError(f"{arrays.path}/{name}: {len(weights)} weights for {num_edges} edges")
        first = 0
        with closing(self._edges(arrays, form, writer.num_vertices)) as slices:
            for src, dst in slices:
                last = first + len(src)
                part = None if weights is None else weights[first:last]
                writer.add_edges(src, dst, weights=part, source=_source(arrays, form, name))
                first = last

    def _edges(
        self, arrays: ArrayFolder | NpzReader, form: tuple[str, ...], num_vertices: int
    ) -> _Edges:
        """Yield sources and destinations in slices."""
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

    def _read_labels(self, arrays: ArrayFolder | NpzReader, writer: StoreWriter) -> None:
        name = _found(arrays, _LABELS)
        if name is None:
            _LOG.info("%s: has no labels (%s)", arrays.path, ", ".join(_LABELS))
            writer.set_unlabelled()
            return
        source = arrays.source(name)
        labels = arrays.labels(name, writer.num_vertices, kinds="biuf")
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if is_regression(labels, self.metric):
            metric = "rmse"
            _LOG.info("%s: %s labels are targets of regression, as float32", source, labels.dtype)
        else:
            labels = _classes(labels, self.metric, source)
            metric = self.metric or ("micro_f1" if labels.ndim == 2 else "accuracy")
        writer.set_labels(labels, metric=metric, source=source)
        if self.split == "published":
            parts = [_part(arrays, names, writer.num_vertices) for names in _SPLIT]
            writer.set_split(*parts, source=arrays.path)


def _classes(labels: NDArray[Any], metric: str | None, source: object) -> NDArray[Any]:
    """Return classes, or zeros and ones where a vertex may have several."""
    if labels.ndim == 1:
        if labels.dtype.kind == "f":
            return class_labels(labels, source)
        return labels.astype(np.int64) if labels.dtype.kind == "b" else labels
    one_hot = metric in (None, "accuracy") and all(
        ((part == 0) | (part == 1)).all() and (part.sum(axis=1) == 1).all()
        for part in np.array_split(labels, max(1, labels.size >> 20))
    )
    if not one_hot:
        return labels
    _LOG.info("%s: every row has a single one, so that a vertex has one class", source)
    classes: NDArray[np.int64] = labels.argmax(axis=1)
    return classes


def _part(
    arrays: ArrayFolder | NpzReader, names: tuple[str, ...], num_vertices: int
) -> NDArray[Any]:
    """Return the ids of one part of the split."""
    name = _found(arrays, names)
    if name is None:
        raise GraphError(
            f"{arrays.path}: has no {' or '.join(names)}; dataset.split=random draws a split"
        )
    values = arrays.vector(name, kinds="b" if name.endswith("mask") else "iu")
    if not name.endswith("mask"):
        return values
    if len(values) != num_vertices:
        raise GraphError(
            f"{arrays.source(name)}: {len(values)} entries for {num_vertices} vertices"
        )
    return np.flatnonzero(values)


def _stored(dtype: np.dtype[Any]) -> str:
    """Return the entry of ``FEATURE_DTYPES`` that features of this type are stored as."""
    if dtype.kind == "b":
        return "uint8"
    return str(dtype) if str(dtype) in ("float32", "float16", "uint8") else "float32"


def _found(arrays: ArrayFolder | NpzReader, names: tuple[str, ...]) -> str | None:
    """Return which of the accepted names there is, None for none; two of them are refused."""
    found = [name for name in names if name in arrays]
    if len(found) > 1:
        raise GraphError(f"{arrays.path}: has both {found[0]} and {found[1]}, allowed is one")
    return found[0] if found else None


def _needed(arrays: ArrayFolder | NpzReader, what: str, names: tuple[str, ...]) -> str:
    name = _found(arrays, names)
    if name is None:
        raise GraphError(_missing(arrays, what, ", ".join(names)))
    return name


def _edge_form(arrays: ArrayFolder | NpzReader) -> tuple[str, ...]:
    """Return the arrays that the edges are in."""
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


def _missing(arrays: ArrayFolder | NpzReader, what: str, accepted: str) -> str:
    there = ", ".join(sorted(arrays.names)) or "no array"
    return f"{arrays.path}: has no {what}; accepted are {accepted}, there is {there}"


def _source(arrays: ArrayFolder | NpzReader, form: tuple[str, ...], weights: str | None) -> str:
    names = [*form, *((weights,) if weights else ())]
    return f"{arrays.path} ({', '.join(names)})"
