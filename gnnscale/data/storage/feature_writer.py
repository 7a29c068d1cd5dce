"""Vertex features of a graph store: encoded, perhaps standardized, in bounded memory."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, ConfigError, Float32Array, GraphError, IntArray, track
from gnnscale.core.artifact import ArrayEntry, NpyWriter, check_space, map_npy, write_array
from gnnscale.data import validation
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.standardize import (
    Spread,
    completed_rows,
    has_gaps,
    set_means,
    warn_of_large,
    warn_of_spread,
)
from gnnscale.graph.dtypes import FEATURE_DTYPES, MAX_QUANTIZED, quantized, row_bytes, row_length

_LOG = logging.getLogger(__name__)
CURE = "For training, dataset.standardize=true scales all alike"
_FEATURES, _UNFINISHED = "features.npy", "unfinished.npy"


class FeatureWriter:
    """Writer of the vertex features of a store; ``notes`` are entries for ``meta.json``.

    ``advises`` says whether to warn about features that impede training.
    """

    def __init__(
        self, path: Path, options: StoreOptions, notes: dict[str, Any], *, advises: bool
    ) -> None:
        self.entry: ArrayEntry | None = None  #: entry of ``meta.json``; None before it is written
        self.dtype = ""  #: stored type, one of ``FEATURE_DTYPES``
        self.num_vertices = self.num_features = 0  #: number of rows, and their length
        #: source of features in a temporary file, which ``finish`` completes by the split
        self.unfinished_source: object = None
        self._path = path
        self._options = options
        self._notes = notes
        self._advises = advises

    def write(
        self, chunks: Iterable[Array], shape: tuple[int, int], dtype: str, source: object
    ) -> None:
        """Write feature rows of all vertices, an array of this ``shape`` in ``chunks``.

        With the option ``standardize``, or empty cells, keep them for ``finish``. ``dtype``, an
        entry of ``FEATURE_DTYPES``, holds the values; the option ``feature_dtype`` overrides it.
        """
        validation.check_num_features(shape[1], source)
        normalize, chosen = self._options.normalize_features, self._options.feature_dtype
        self.num_vertices, self.num_features = shape
        columns = self._notes.get("columns", ())
        if normalize and has_gaps(columns):
            raise ConfigError(
                f"dataset.normalize_features=true: {source} has empty cells, which the sum of a "
                "row needs; set dataset.missing=drop"
            )
        if self._options.standardize or has_gaps(columns):
            self._write_file(_UNFINISHED, chunks, shape, "float32", source, normalize=normalize)
            self.unfinished_source = source
            return
        self.dtype = chosen or ("float32" if normalize and dtype == "uint8" else dtype)
        spread = Spread()
        watched = chunks if normalize else spread.watch(chunks)
        form = shape, self.dtype, source
        self.entry = self._write_file(_FEATURES, watched, *form, normalize=normalize)
        self._warn_of_spread(spread, source)

    def write_empty(self, num_vertices: int, source: object, *, edges_have_features: bool) -> None:
        """Write rows of length 0; ConfigError if an option that changes features is set.

        ``standardize`` may be set if ``edges_have_features``.
        """
        option_values = {
            "normalize_features": self._options.normalize_features or None,
            "standardize": (self._options.standardize and not edges_have_features) or None,
            "feature_dtype": self._options.feature_dtype,
        }
        for name, value in option_values.items():
            if value is not None:
                shown_value = str(value).lower() if value is True else value
                raise ConfigError(f"dataset.{name}={shown_value}: {source} has no features")
        self.entry = write_array(self._path / _FEATURES, np.zeros((num_vertices, 0), np.float32))
        self.dtype = "float32"
        _LOG.info(
            "%s: has no features; features=learned, degrees or projections trains without", source
        )

    def finish(self, train: IntArray | None) -> None:
        """Set the means of columns of a table over the vertices ``train`` (None: all).

        Write the features that ``write`` kept: empty cells filled with the means and, by the option
        ``standardize``, scaled to mean 0 and deviation 1 over ``train``.
        """
        columns = self._notes.get("columns", [])
        if self.unfinished_source is None:
            if columns:
                set_means(columns, map_npy(self._path / _FEATURES), train, self.dtype)
            return
        path, source = self._path / _UNFINISHED, self.unfinished_source
        spread, standardizes = Spread(), self._options.standardize
        chunks, scaling = completed_rows(map_npy(path), columns, train, standardizes=standardizes)
        if scaling is None:
            chunks = spread.watch(chunks)  # scaled columns are alike
        else:
            self._notes["scaling"] = asdict(scaling)
        self.dtype = self._options.feature_dtype or "float32"
        shape = self.num_vertices, self.num_features
        self.entry = self._write_file(_FEATURES, chunks, shape, self.dtype, source)
        path.unlink()
        self._warn_of_spread(spread, source)

    def _warn_of_spread(self, spread: Spread, source: object) -> None:
        if self._advises:
            warn_of_spread(spread, source, CURE, feature_names(self._notes.get("columns", ())))

    def _write_file(
        self,
        name: str,
        chunks: Iterable[Array],
        shape: tuple[int, int],
        dtype: str,
        source: object,
        *,
        normalize: bool = False,
    ) -> ArrayEntry:
        """Write feature rows of all vertices as ``dtype``; return their entry for ``meta.json``."""
        num_vertices, num_features = shape
        num_bytes = num_vertices * row_bytes(dtype, num_features)
        what = f"{source}: {num_features} features of {num_vertices} vertices"
        check_space(what, self._path, disk=num_bytes)
        first, largest = 0, 0.0
        form = FEATURE_DTYPES[dtype], (row_length(dtype, num_features),)
        is_user_choice = dtype == self._options.feature_dtype
        with (
            NpyWriter(self._path / name, *form) as writer,
            track("writing features", num_vertices, "vertices") as advance,
        ):
            for rows in chunks:
                if rows.shape[1:] != (num_features,):
                    raise GraphError(
                        f"{source}: features from vertex {first} on: expected {num_features} a "
                        f"row, got {list(rows.shape)}"
                    )
                last = first + len(rows)
                if last > num_vertices:  # refused before the disk is full
                    raise GraphError(f"{source}: {last} feature rows for {num_vertices} vertices")
                largest = max(largest, validation.check_features(rows, first, source))
                rows = _normalized(rows) if normalize else rows
                writer.append(_encoded(rows, dtype, first, source, is_user_choice=is_user_choice))
                advance(len(rows))
                first = last
            if first != num_vertices:
                raise GraphError(f"{source}: {first} feature rows for {num_vertices} vertices")
            if self._advises and name == _FEATURES and not normalize:
                warn_of_large(largest, source)
            return writer.close()


def feature_names(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each feature's column, of entries of ``meta.json``."""
    return [column["name"] for column in columns for _ in range(column["width"])]


def stored_type(dtype: np.dtype[Any], source: object) -> str:
    """Return the stored type of features of ``dtype``: itself, uint8 for booleans, or float32."""
    if dtype.kind == "b":
        return "uint8"
    if (name := str(dtype)) in ("float32", "float16", "uint8"):
        return name
    _LOG.info("%s: %s is stored as float32", source, name)
    return "float32"


def _normalized(rows: Array) -> Float32Array:
    """Return rows divided by their sums, as float32; a row with the sum 0 stays as it is."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are refused later
        divided = rows.astype(np.float32)
        sums = divided.sum(axis=1, keepdims=True)
        np.divide(divided, sums, out=divided, where=sums != 0)
    return divided


def _encoded(rows: Array, dtype: str, first: int, source: object, *, is_user_choice: bool) -> Array:
    """Return ``rows``, from vertex ``first`` on, as ``dtype`` stores them.

    A value that does not fit is a ConfigError if the user chose ``dtype``, else a GraphError.
    """
    scaled = dtype in MAX_QUANTIZED
    encoded, exact = _converted(rows, "float32" if scaled else dtype)
    if exact.all():
        return quantized(encoded, dtype) if scaled else encoded
    row, column = np.argwhere(~exact)[0]
    reason = (
        f"{source}: feature {column} of vertex {first + row}: expected a value of {dtype}, got "
        f"{rows[row, column]}"
    )
    if is_user_choice:
        raise ConfigError(f"dataset.feature_dtype={dtype}: {reason}")
    raise GraphError(reason)


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
