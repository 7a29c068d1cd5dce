"""Writers of edge columns (ends and features, in input order) and of vertex features."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, track
from gnnscale.core.artifact.files import check_space
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter, check_array, map_npy
from gnnscale.core.types import BoolArray, Float32Array
from gnnscale.data import validation
from gnnscale.data.storage.standardize import MAGNITUDE_OF_LAYERS, ColumnScaling, Spread
from gnnscale.graph.dtypes import FEATURE_DTYPES, MAX_QUANTIZED, quantized, row_length
from gnnscale.graph.store_format import EDGE_ENDS, EDGE_FEATURES, MAX_EDGE_ROWS

_SCALED = "scaled.npy"


class PublishedEdges:
    """Writer of ``edge_ends.npy`` and, for edges with features, ``edge_features.npy``.

    ``first`` are features ``[n, num_edge_features]``, which determine the width and are not written
    yet. None: edges have no features.
    """

    def __init__(
        self, folder: Path, dtype: np.dtype[Any], first: Array | None, source: object
    ) -> None:
        self.num_edges = 0  #: edges written so far
        self.num_features = 0  #: length of a feature row; 0 without features
        self.source = source
        self.spread = Spread((MAGNITUDE_OF_LAYERS,))  #: magnitudes of the feature columns
        self._folder = folder
        self._num_zeros = 0
        if first is not None:
            check_array(first, axes=2, kinds="biuf", source=f"{source}: features of edges")
            validation.check_num_features(first.shape[1], f"{source}: edges")
            self.num_features = int(first.shape[1])
        self._files: dict[str, NpyWriter] = {}
        with ExitStack() as stack:
            self._open(stack, folder, EDGE_ENDS, dtype, 2)
            if self.num_features:
                self._open(stack, folder, EDGE_FEATURES, np.dtype(np.float32), self.num_features)
            what = "writing edges and their features" if self.num_features else "writing edges"
            self._advance = stack.enter_context(track(what, unit="edges"))
            self._stack = stack.pop_all()

    def _open(
        self, stack: ExitStack, folder: Path, name: str, dtype: np.dtype[Any], width: int
    ) -> None:
        self._files[name] = stack.enter_context(NpyWriter(folder / f"{name}.npy", dtype, (width,)))

    def append(self, src: Array, dst: Array, features: Array | None, source: object) -> None:
        """Write the next edges ``[n]`` and their features ``[n, num_features]``."""
        first, last = self.num_edges, self.num_edges + len(src)
        if last >= MAX_EDGE_ROWS:  # a row of zeros may follow
            raise GraphError(
                f"{source}: expected up to {MAX_EDGE_ROWS - 1} edges with features or labels, got "
                f"{last}"
            )
        if features is not None:
            form = {"num_edges": len(src), "num_features": self.num_features}
            rows = validation.edge_features(features, first=first, source=source, **form)
            self._files[EDGE_FEATURES].append(rows)
            self.spread.add(rows)
        self._files[EDGE_ENDS].append(np.stack([src, dst], axis=1))
        self.num_edges = last
        self._advance(len(src))

    def finish(self, *, num_zeros: int) -> dict[str, ArrayEntry]:
        """Append rows of zeros to the features; return the entries of ``meta.json``."""
        self._num_zeros = num_zeros
        if self.num_features:
            zeros = np.zeros((num_zeros, self.num_features), np.float32)
            self._files[EDGE_FEATURES].append(zeros)
        entries = {name: file.close() for name, file in self._files.items()}
        self.close()
        return entries

    def features(self) -> Array:
        """Return the features without the appended zeros, mapped; after ``finish``."""
        return map_npy(self._folder / f"{EDGE_FEATURES}.npy")[: self.num_edges]

    def scale(self, scaling: ColumnScaling) -> ArrayEntry:
        """Standardize the features in place; appended zeros remain, and equal the mean."""
        rows, source = self.features(), f"{self.source}: scaled"
        check_space(f"{source} features of {len(rows)} edges", self._folder, disk=rows.nbytes)
        scaled, first = self._folder / _SCALED, 0
        with NpyWriter(scaled, np.dtype(np.float32), (self.num_features,)) as file:
            for part in scaling.scaled(rows):
                validation.check_features(part, first, source, "edge")
                file.append(part)
                first += len(part)
            file.append(np.zeros((self._num_zeros, self.num_features), np.float32))
            entry = file.close()
        scaled.replace(self._folder / f"{EDGE_FEATURES}.npy")
        return entry

    def close(self) -> None:
        """Close the files, finished or not."""
        self._stack.close()


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """Conversion of feature rows from the raw files to the stored form."""

    dtype: str  #: stored type, one of ``FEATURE_DTYPES``
    #: whether the user chose ``dtype``: then a value out of range is a ConfigError
    is_user_choice: bool = False
    normalize: bool = False  #: whether each row is divided by its sum


def write_features(
    path: Path,
    chunks: Iterable[Array],
    *,
    shape: tuple[int, int],
    encoding: FeatureEncoding,
    source: object,
) -> tuple[ArrayEntry, float]:
    """Write feature rows ``chunks`` of all vertices to ``path``, checked.

    Returns the entry of ``meta.json``, and the largest magnitude before the conversion. Raises
    ConfigError if the type that the user chose cannot hold a value.
    """
    num_vertices, num_features = shape
    first, largest = 0, 0.0
    with (
        NpyWriter(
            path, FEATURE_DTYPES[encoding.dtype], (row_length(encoding.dtype, num_features),)
        ) as writer,
        track("writing features", num_vertices, "vertices") as advance,
    ):
        for rows in chunks:
            if rows.shape[1:] != (num_features,):
                raise GraphError(
                    f"{source}: features from vertex {first} on: expected {num_features} a row, "
                    f"got {list(rows.shape)}"
                )
            if first + len(rows) > num_vertices:  # refused before the disk is full
                raise GraphError(
                    f"{source}: {first + len(rows)} feature rows for {num_vertices} vertices"
                )
            largest = max(largest, validation.check_features(rows, first, source))
            writer.append(_encoded(rows, encoding, first, source))
            first += len(rows)
            advance(len(rows))
        if first != num_vertices:
            raise GraphError(f"{source}: {first} feature rows for {num_vertices} vertices")
        return writer.close(), largest


def _encoded(rows: Array, encoding: FeatureEncoding, first: int, source: object) -> Array:
    """Return ``rows`` in the stored form; refuse values that the stored type cannot hold."""
    if encoding.normalize:
        rows = _row_normalized(rows)
    scaled = encoding.dtype in MAX_QUANTIZED
    encoded, exact = _converted(rows, "float32" if scaled else encoding.dtype)
    if exact.all():
        return quantized(encoded, encoding.dtype) if scaled else encoded
    row, column = np.argwhere(~exact)[0]
    reason = (
        f"{source}: feature {column} of vertex {first + row}: expected a value of "
        f"{encoding.dtype}, got {rows[row, column]}"
    )
    if encoding.is_user_choice:
        raise ConfigError(f"dataset.feature_dtype={encoding.dtype}: {reason}")
    raise GraphError(reason)


def _row_normalized(rows: Array) -> Float32Array:
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are refused later
        rows = rows.astype(np.float32)
        sums = rows.sum(axis=1, keepdims=True)
        np.divide(rows, sums, out=rows, where=sums != 0)
    return rows


def _converted(rows: Array, dtype: str) -> tuple[Array, BoolArray]:
    """Return ``rows`` as ``dtype``, and a mask of the values that ``dtype`` can hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            # Round half to even, as hardware does.
            bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
            encoded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            return encoded, (encoded & 0x7F80) != 0x7F80  # exponent of infinity
        encoded = rows.astype(FEATURE_DTYPES[dtype], copy=False)
        return encoded, encoded == rows if dtype == "uint8" else np.isfinite(encoded)
