"""Rows of features as a store keeps them: their type, divided by their sums or not."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnscale.artifact.arrays import ArrayEntry, NpyWriter
from gnnscale.artifact.feature_types import FEATURE_DTYPES, MAX_QUANTIZED, quantized, row_length
from gnnscale.core import ConfigError, GraphError, track
from gnnscale.core.arrays import Array, BoolArray, Float32Array
from gnnscale.dataset import checks


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """How published rows become stored ones."""

    dtype: str  #: the entry of ``FEATURE_DTYPES`` that is stored
    #: whether the user chose it, who is then to choose another if it cannot hold a value
    asked_for: bool = False
    normalize: bool = False  #: divide each row by its sum


def write_features(
    path: Path,  # of the ``.npy`` file
    chunks: Iterable[Array],  # arrays ``[rows, num_features]``, together one row per vertex
    *,
    shape: tuple[int, int],  # number of vertices, number of features
    encoding: FeatureEncoding,  # how rows are stored
    source: object,  # named in errors
) -> tuple[ArrayEntry, float]:
    """Write the feature rows of all vertices in order.

    Return the entry of ``meta.json``, and the largest magnitude of the published numbers.

    Raises:
        ConfigError: the type that the user chose cannot hold a value.
        GraphError: too few or too many rows, rows of another length, or values that are not finite.
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
                    f"{source}: features from vertex {first} on are {list(rows.shape)}, "
                    f"not {num_features} a row"
                )
            if first + len(rows) > num_vertices:  # not after a disk full of them
                raise GraphError(
                    f"{source}: {first + len(rows)} feature rows for {num_vertices} vertices"
                )
            largest = max(largest, checks.check_features(rows, first, source))
            writer.append(_encoded(rows, encoding, first, source))
            first += len(rows)
            advance(len(rows))
        if first != num_vertices:
            raise GraphError(f"{source}: {first} feature rows for {num_vertices} vertices")
        return writer.close(), largest


def _encoded(rows: Array, encoding: FeatureEncoding, first: int, source: object) -> Array:
    """Return ``rows`` as they are stored; refuse values that the storage type cannot hold."""
    if encoding.normalize:
        rows = _row_normalized(rows)
    scaled = encoding.dtype in MAX_QUANTIZED
    encoded, held = _converted(rows, "float32" if scaled else encoding.dtype)
    if held.all():
        return quantized(encoded, encoding.dtype) if scaled else encoded
    row, column = np.argwhere(~held)[0]
    reason = (
        f"{source}: feature {column} of vertex {first + row} is {rows[row, column]}, "
        f"{encoding.dtype} cannot hold it"
    )
    if encoding.asked_for:
        raise ConfigError(f"dataset.feature_dtype={encoding.dtype}: {reason}")
    raise GraphError(reason)


def _row_normalized(rows: Array) -> Float32Array:
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
        rows = rows.astype(np.float32)
        sums = rows.sum(axis=1, keepdims=True)
        np.divide(rows, sums, out=rows, where=sums != 0)
    return rows


def _converted(rows: Array, dtype: str) -> tuple[Array, BoolArray]:
    """Return ``rows`` in the storage type ``dtype``, and which values it can hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            # Round to the nearest even, as hardware does.
            bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
            encoded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            return encoded, (encoded & 0x7F80) != 0x7F80  # exponent of infinity
        encoded = rows.astype(FEATURE_DTYPES[dtype], copy=False)
        return encoded, encoded == rows if dtype == "uint8" else np.isfinite(encoded)
