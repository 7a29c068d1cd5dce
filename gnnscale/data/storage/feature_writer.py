"""Vertex features of a graph store: encoded, perhaps standardized, in bounded memory."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, ConfigError, GraphError, IntArray, brief, track
from gnnscale.core.artifact import ArrayEntry, NpyWriter, check_space, map_npy, write_array
from gnnscale.data import validation
from gnnscale.data.storage import gaps
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.standardize import (
    ColumnScaling,
    Spread,
    row_slices,
    warn_of_large,
    warn_of_spread,
)
from gnnscale.graph.dtypes import FEATURE_DTYPES, MAX_QUANTIZED, quantized, row_bytes, row_length

_LOG = logging.getLogger(__name__)
_CURE = "For training, dataset.standardize=true scales all alike"
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
        self.num_features = 0  #: length of a row
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
        self.num_features = shape[1]
        columns = self._notes.get("columns", ())
        if normalize and gaps.has_gaps(columns):
            raise ConfigError(
                f"dataset.normalize_features=true: {source} has empty cells, which the sum of a "
                "row needs; set dataset.missing=drop"
            )
        if self._options.standardize or gaps.has_gaps(columns):
            encoding = FeatureEncoding(dtype="float32", normalize=normalize)
            self._write_file(_UNFINISHED, chunks, shape, encoding, source)
            self.unfinished_source = source
            return
        dtype = chosen or ("float32" if normalize and dtype == "uint8" else dtype)
        encoding = FeatureEncoding(
            dtype=dtype, is_user_choice=chosen is not None, normalize=normalize
        )
        spread = Spread()
        watched = chunks if normalize else spread.watch(chunks)
        self.entry = self._write_file(_FEATURES, watched, shape, encoding, source)
        self.dtype = dtype
        if self._advises:
            warn_of_columns(spread, source, self._notes.get("columns", ()))

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
                gaps.set_means(columns, map_npy(self._path / _FEATURES), train, self.dtype)
            return
        path, chosen = self._path / _UNFINISHED, self._options.feature_dtype
        gaps.set_means(columns, map_npy(path), train)
        if gaps.has_gaps(columns):
            gaps.fill_file(columns, path)
        rows, chunks = map_npy(path), row_slices(map_npy(path), None)
        spread = Spread()
        if self._options.standardize:
            scaling = ColumnScaling.of(rows, train)
            self._notes["scaling"] = asdict(scaling)
            chunks = scaling.scaled(rows)
        else:
            chunks = spread.watch(chunks)
        encoding = FeatureEncoding(dtype=chosen or "float32", is_user_choice=chosen is not None)
        self.entry = self._write_file(
            _FEATURES, chunks, rows.shape, encoding, self.unfinished_source
        )
        self.dtype = encoding.dtype
        path.unlink()
        if self._advises:  # scaled columns are alike
            warn_of_columns(spread, self.unfinished_source, columns)

    def _write_file(
        self,
        name: str,
        chunks: Iterable[Array],
        shape: tuple[int, ...],
        encoding: "FeatureEncoding",
        source: object,
    ) -> ArrayEntry:
        num_vertices, num_features = shape
        num_bytes = num_vertices * row_bytes(encoding.dtype, num_features)
        what = f"{source}: {num_features} features of {num_vertices} vertices"
        check_space(what, self._path, disk=num_bytes)
        entry, largest = write_features(
            self._path / name,
            chunks,
            shape=(num_vertices, num_features),
            encoding=encoding,
            source=source,
        )
        if self._advises and name == _FEATURES and not encoding.normalize:
            warn_of_large(largest, source)
        return entry


def warn_of_columns(
    spread: Spread, source: object, columns: Sequence[Mapping[str, Any]], *, of_edges: bool = False
) -> None:
    """Warn if a feature column has far larger numbers than most; ``spread`` has measured them.

    ``columns`` have ``name`` and ``width``, for the message. With ``of_edges``, also warn about
    numbers whose squares overflow float32.
    """
    if of_edges:  # of vertices, all rows are checked when they are written
        warn_of_large(spread.largest, source)

    def column_name(feature: int) -> str:
        end = 0
        for column in columns:
            end += column["width"]
            if feature < end:
                return brief(repr(column["name"])) + suffix
        return str(feature) + suffix

    suffix = " of edges" if of_edges else ""
    warn_of_spread(spread, source, column_name, _CURE)


def stored_type(dtype: np.dtype[Any], source: object) -> str:
    """Return the stored type of features of ``dtype``: itself, uint8 for booleans, or float32."""
    if dtype.kind == "b":
        return "uint8"
    if (name := str(dtype)) in ("float32", "float16", "uint8"):
        return name
    _LOG.info("%s: %s is stored as float32", source, name)
    return "float32"


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """Options of the conversion of feature rows from the raw files to the stored form."""

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
    """Write feature rows of all vertices; return their entry for ``meta.json``, and a magnitude.

    It is the largest of the raw values, or 0 for float16 rows.
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
    """Return ``rows`` in the stored form; ConfigError or GraphError: a value does not fit.

    It is ConfigError if the user chose the type. ``first`` is the first row's vertex, for errors.
    """
    if encoding.normalize:
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are refused later
            rows = rows.astype(np.float32)
            sums = rows.sum(axis=1, keepdims=True)
            np.divide(rows, sums, out=rows, where=sums != 0)
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
