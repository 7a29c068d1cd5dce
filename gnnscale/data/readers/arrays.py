"""A user's graph as NumPy arrays: a folder of .npy files, or one .npz file."""

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np

from gnnscale.core import Array, GraphError, IntArray, check_choice
from gnnscale.core.artifact.npy import row_slices
from gnnscale.data import base, validation
from gnnscale.data.formats.npz import ArrayFolder, NpzReader, open_arrays
from gnnscale.data.formats.sparse import check_csr, csr_edges
from gnnscale.data.storage.feature_writer import stored_type
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.validation import PART_NAMES, part_ids
from gnnscale.graph import row_bytes
from gnnscale.graph.store_format import METRICS

_LOG = logging.getLogger(__name__)

#: Accepted names of each array.
_FEATURES = ("features", "x", "feat")
_LABELS = ("labels", "y", "label")
_WEIGHTS = ("edge_weights", "edge_weight")
_EDGE_FEATURES = ("edge_features", "edge_attr", "edge_feat")
_EDGE_LABELS = ("edge_labels", "edge_y")
_GROUPS = ("groups",)

_EDGE_SPLIT = tuple(tuple(f"edge_{name}" for name in names) for names in PART_NAMES)

#: The three forms of edges, each a tuple of arrays.
_EDGES = (("edge_index",), ("src", "dst"), ("indptr", "indices"))
_FORMS = (_FEATURES, _LABELS, _WEIGHTS, _EDGE_FEATURES, _EDGE_LABELS, _GROUPS)
_NAMES = {name for names in (*_FORMS, *PART_NAMES, *_EDGE_SPLIT, *_EDGES) for name in names}
#: Contents of ``indptr`` and ``indices``: in-neighbors, or out-neighbors.
_LISTS = ("csc", "csr")
_Edges = Generator[tuple[Array, Array]]
_Reader: TypeAlias = ArrayFolder | NpzReader


@dataclass(frozen=True, kw_only=True)
class Arrays(base.Dataset):
    """Array ``edge_index`` and, optionally, ``features``, ``labels``, a split and edge data.

    ``docs/your-graph.md`` lists the accepted names. Arrays of a folder are mapped and read in
    slices.

    Attributes:
        lists: ``csc`` if ``indptr`` and ``indices`` hold in-neighbors, ``csr`` if out-neighbors.
        metric: one of ``METRICS``. None: the default of the labels.
        mask: column of masks ``[num_vertices, k]``. None: masks are ``[num_vertices]``.
        edge_split_by: unit of a random split of edges: ``pair`` has all edges between two vertices
            in one part, ``edge`` splits edge by edge.
    """

    lists: str = "csc"
    metric: str | None = None
    mask: int | None = None
    edge_split_by: str = "pair"

    _is_users: ClassVar[bool] = True
    _raw_form: ClassVar[str] = "the .npz file or the folder of .npy files"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.lists", self.lists, _LISTS)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        if self.metric is not None:
            check_choice("dataset.metric", self.metric, METRICS)

    def raw_files(self) -> list[Path]:
        """Return the .npz file, or those .npy files of the folder that have accepted names."""
        path = self.raw_path()
        if not path.is_dir():
            return [path]
        files = [path / f"{name}.npy" for name in sorted(_NAMES)]
        return [file for file in files if file.exists()]

    def read(self, writer: StoreWriter) -> None:
        """Push the edges, features, labels and splits in the user's arrays into ``writer``."""
        with open_arrays(self.raw_path()) as arrays:
            unread = sorted(set(arrays.names) - _NAMES)
            if unread:
                _LOG.info("%s: not read: %s", arrays.path, ", ".join(unread))
            writer.edges.counts_repeated = True
            writer.edges.lists_edges = _array_name(arrays, _EDGE_LABELS) is not None
            features = _array_name(arrays, _FEATURES)
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
                writer.set_unlabeled()

    @property
    def _splits_by_pair(self) -> bool:
        return self.edge_split_by == "pair"

    def _read_with_features(self, arrays: _Reader, writer: StoreWriter, features: str) -> None:
        """Set the number of vertices to the rows of the array called ``features``.

        Then push the edges, then that array as features.
        """
        header, source = arrays.header(features, axes=2, kinds="biuf"), arrays.source(features)
        num_vertices, num_features = header.shape
        dtype = stored_type(header.dtype, source)
        self._check_needs(arrays, writer, num_vertices, num_features, dtype)
        writer.set_num_vertices(num_vertices, source=source)
        self._read_edges(arrays, writer)
        # Closed here, since a generator of rows keeps the archive open.
        with closing(arrays.rows(features, kinds="biuf")) as rows:
            writer.write_features(rows, num_features=num_features, dtype=dtype, source=source)

    def _check_needs(
        self,
        arrays: _Reader,
        writer: StoreWriter,
        num_vertices: int,
        num_features: int,
        dtype: str,
    ) -> None:
        """Log the memory and disk that writing the store takes; NoSpaceError: less is free."""
        num_edges = _num_edges(arrays, _edge_form(arrays))
        labels = _array_name(arrays, _LABELS)
        width = _num_edge_features(arrays, num_edges)
        has_labels = _array_name(arrays, _EDGE_LABELS) is not None
        weighted = _array_name(arrays, _WEIGHTS) is not None
        row = arrays.header(labels, axes=(1, 2), kinds="biuf").shape[1:] if labels else ()
        # Labels, and both ends, label and split of an edge.
        label_bytes = int(np.prod(row)) if row else 8
        self.check_space(
            arrays.path,
            writer.path,
            num_vertices=num_vertices,
            num_edges=num_edges,
            vertex_bytes=row_bytes(self.feature_dtype or dtype, num_features) + label_bytes,
            edge_bytes=4 * weighted + 4 * (width > 0),
            row_bytes=4 * width + 28 * (width > 0 or has_labels),
        )

    def _read_edges(self, arrays: _Reader, writer: StoreWriter) -> None:
        form = _edge_form(arrays)
        name = _array_name(arrays, _WEIGHTS)
        weights = None if name is None else arrays.vector(name, kinds="iuf")
        num_edges = _num_edges(arrays, form)
        if weights is not None and len(weights) != num_edges:
            raise GraphError(f"{arrays.path}/{name}: {len(weights)} weights for {num_edges} edges")
        width = _num_edge_features(arrays, num_edges)
        names = filter(None, (*form, name, _array_name(arrays, _EDGE_FEATURES)))
        source, first = f"{arrays.path} ({', '.join(names)})", 0
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

    def _edges(self, arrays: _Reader, form: tuple[str, ...], num_vertices: int) -> _Edges:
        if form == ("edge_index",):
            yield from arrays.pairs("edge_index")
            return
        first_array, second_array = (arrays.vector(name) for name in form)
        if form == ("src", "dst"):
            if len(first_array) != len(second_array):
                raise GraphError(
                    f"{arrays.path}: src has {len(first_array)} ids, dst {len(second_array)}"
                )
            for first in range(0, len(first_array), 1 << 22):
                part = slice(first, first + (1 << 22))
                yield first_array[part], second_array[part]
            return
        check_csr(first_array, len(second_array), arrays.path)
        if len(first_array) != num_vertices + 1:
            raise GraphError(
                f"{arrays.source('indptr')}: expected {num_vertices + 1} offsets for "
                f"{num_vertices} vertices, got {len(first_array)}"
            )
        for owners, listed in csr_edges(first_array, second_array):
            yield (listed, owners) if self.lists == "csc" else (owners, listed)

    def _read_labels(self, arrays: _Reader, writer: StoreWriter) -> None:
        name = _array_name(arrays, _LABELS)
        if name is None:
            _LOG.info("%s: has no labels (%s)", arrays.path, ", ".join(_LABELS))
            writer.set_unlabeled()
            return
        source = arrays.source(name)
        labels = arrays.labels(name, writer.num_vertices, kinds="biuf")
        writer.set_labels(labels, metric=self.metric, source=source)
        if self.split == "published":
            parts = _parts(arrays, PART_NAMES, writer.num_vertices, "vertex", self.mask)
            writer.set_split(*parts, source=arrays.path)
            if _GROUPS[0] in arrays:
                _LOG.info("%s: not read: groups, which divide a random split", arrays.path)
        elif _GROUPS[0] in arrays:
            writer.groups = _groups(arrays, writer.num_vertices)

    def _read_edge_labels(self, arrays: _Reader, writer: StoreWriter) -> None:
        name = _array_name(arrays, _EDGE_LABELS)
        if name is None:
            return
        labels = arrays.labels(name, _num_edges(arrays, _edge_form(arrays)), kinds="biuf")
        writer.set_edge_labels(labels, source=arrays.source(name))
        if self.split == "published":
            parts = _parts(arrays, _EDGE_SPLIT, len(labels), "edge", self.mask)
            writer.set_edge_split(*parts, source=arrays.path)


def _parts(
    arrays: _Reader,
    names_of_parts: Sequence[tuple[str, ...]],
    count: int,
    of: str,
    mask: int | None,
) -> list[IntArray]:
    """Return the ids of training, validation and test; a missing array is an empty part.

    ``mask`` is the column to read of masks ``[count, k]``. GraphError: training is missing.
    """
    names = [_array_name(arrays, synonyms) for synonyms in names_of_parts]
    if names[0] is None:
        raise GraphError(
            f"{arrays.path}: has no {' or '.join(names_of_parts[0])}; dataset.split=random "
            "draws a split"
        )
    parts: list[IntArray] = [np.empty(0, np.int64) for _ in names]
    for number, name in enumerate(names):
        if name is not None:
            parts[number] = part_ids(
                arrays.labels(name, count, kinds="biu"),
                count,
                arrays.source(name),
                column=mask,
                option="dataset.mask",
                of=of,
                is_mask=name.endswith("mask"),
            )
    return parts


def _groups(arrays: _Reader, num_vertices: int) -> Array:
    """Return the group of each vertex, of a random split; GraphError: not ``[num_vertices]``."""
    groups = arrays.vector(_GROUPS[0], kinds="iu")
    if len(groups) != num_vertices:
        source = arrays.source(_GROUPS[0])
        raise GraphError(f"{source}: {len(groups)} groups for {num_vertices} vertices")
    return groups


def _array_name(arrays: _Reader, names: tuple[str, ...]) -> str | None:
    """Return which of ``names``, synonyms of one array, exists, or None; GraphError: two exist."""
    existing = [name for name in names if name in arrays]
    if len(existing) > 1:
        raise GraphError(
            f"{arrays.path}: expected one of {existing[0]} and {existing[1]}, got both"
        )
    return existing[0] if existing else None


def _num_vertices(arrays: _Reader) -> int:
    """Return the number of labels or, without labels, of lists in ``indptr``.

    It is the number of vertices of a graph without features. GraphError: neither exists.
    """
    labels = _array_name(arrays, _LABELS)
    if labels is not None:
        return arrays.header(labels, axes=(1, 2), kinds="biuf").shape[0]
    if _edge_form(arrays) == ("indptr", "indices"):
        return arrays.header("indptr", axes=1, kinds="iu").shape[0] - 1
    names = ", ".join((*_FEATURES, *_LABELS, "indptr and indices"))
    raise GraphError(_missing(arrays, "array with a row per vertex", names))


def _edge_form(arrays: _Reader) -> tuple[str, ...]:
    forms = [form for form in _EDGES if all(name in arrays for name in form)]
    if len(forms) > 1:
        raise GraphError(
            f"{arrays.path}: expected one form of edges, got {' and '.join(forms[0])} as well as "
            f"{' and '.join(forms[1])}"
        )
    if not forms:
        names = ", ".join(" and ".join(form) for form in _EDGES)
        raise GraphError(_missing(arrays, "array of edges", names))
    return forms[0]


def _num_edges(arrays: _Reader, form: tuple[str, ...]) -> int:
    return arrays.header(form[-1], axes=len(form) % 2 + 1, kinds="iu").shape[-1]


class _RowChunks:
    """Buffer over an iterator of chunks of rows, from which any number of rows can be taken."""

    def __init__(self, chunks: Iterator[Array]) -> None:
        self._chunks = chunks
        self._remainder: list[Array] = []

    def take(self, num_rows: int) -> Array:
        """Return the next ``num_rows`` rows; as many must remain."""
        chunks = self._remainder
        while sum(map(len, chunks)) < num_rows or not chunks:
            chunks.append(next(self._chunks))
        whole = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        self._remainder = [whole[num_rows:]]
        return whole[:num_rows]


def _num_edge_features(arrays: _Reader, num_edges: int) -> int:
    """Return the length of an edge feature row, 0 if edges have no features.

    GraphError unless there is a row for each of ``num_edges`` edges.
    """
    name = _array_name(arrays, _EDGE_FEATURES)
    if name is None:
        return 0
    shape = arrays.header(name, axes=(1, 2), kinds="biuf").shape
    if shape[0] != num_edges:
        raise GraphError(
            f"{arrays.source(name)}: {shape[0]} rows of features for {num_edges} edges"
        )
    width = shape[1] if len(shape) == 2 else 1
    validation.check_num_features(width, arrays.source(name))
    return width


def _edge_rows(arrays: _Reader) -> Generator[Array]:
    """Yield the edge features in slices ``[n, num_edge_features]``; nothing without features."""
    name = _array_name(arrays, _EDGE_FEATURES)
    if name is None:
        return
    if len(arrays.header(name, axes=(1, 2), kinds="biuf").shape) == 1:
        yield arrays.vector(name, kinds="biuf")[:, None]
    else:
        yield from arrays.rows(name, kinds="biuf")


def _missing(arrays: _Reader, what: str, accepted: str) -> str:
    existing = ", ".join(sorted(arrays.names)) or "no array"
    return f"{arrays.path}: expected an {what} ({accepted}), got {existing}"
