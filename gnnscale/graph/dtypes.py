"""Data types of stored features, and quantization to int8 and int4 with a scale for each row."""

from typing import Any, Literal

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, UInt8Array

#: Names of the element types of features.
FeatureDtype = Literal["float32", "float16", "bfloat16", "uint8", "int8", "int4"]

#: NumPy type of the stored array by feature type. bfloat16 is stored as uint16 bits, and a row of
#: int8 or int4 as bytes.
FEATURE_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.uint8),
    "int4": np.dtype(np.uint8),
}
#: Largest integer of the quantized types.
MAX_QUANTIZED = {"int8": 127, "int4": 7}
#: Bytes of the float32 scale at the beginning of a quantized row.
SCALE_BYTES = 4


def row_length(dtype: str, num_features: int) -> int:
    """Return the number of elements of a stored row, its scale included, for ``num_features``."""
    if dtype == "int8":
        return SCALE_BYTES + num_features
    return SCALE_BYTES + (num_features + 1) // 2 if dtype == "int4" else num_features


def row_bytes(dtype: str, num_features: int) -> int:
    """Return the bytes of a stored row of ``num_features``, its scale included."""
    return row_length(dtype, num_features) * FEATURE_DTYPES[dtype].itemsize


def quantized(rows: Float32Array, dtype: str) -> UInt8Array:
    """Return finite ``rows`` ``[n, f]`` quantized symmetrically around 0, a scale for each row.

    A row of the result, ``[n, row_length(dtype, f)]``, begins with the float32 scale, max|x| / 127
    (int8) or max|x| / 7 (int4), followed by x / scale rounded to nearest, ties to even: the error
    is at most scale / 2. The scale of a row of zeros is 0; other scales are normal numbers. A byte
    holds two int4, the first in its lower half; an odd row ends with a half of 0.
    """
    maximum, limits = MAX_QUANTIZED[dtype], np.finfo(np.float32)
    # With a larger scale, scale * maximum could overflow.
    largest = np.nextafter(limits.max / np.float32(maximum), np.float32(0))
    peaks = np.abs(rows).max(axis=1, initial=0)
    scales = np.clip(peaks / np.float32(maximum), limits.tiny, largest)
    # float64, since float32 would round some quotients to a tie.
    numbers = np.rint(rows / scales[:, None].astype(np.float64)).astype(np.int8)
    scales[peaks == 0] = 0
    encoded = np.empty((len(rows), row_length(dtype, rows.shape[1])), np.uint8)
    encoded[:, :SCALE_BYTES] = scales.astype("<f4")[:, None].view(np.uint8)
    if dtype == "int8":
        encoded[:, SCALE_BYTES:] = numbers.view(np.uint8)
    else:
        halves = numbers.view(np.uint8) & 15
        encoded[:, SCALE_BYTES:] = halves[:, ::2]
        encoded[:, SCALE_BYTES : SCALE_BYTES + rows.shape[1] // 2] |= halves[:, 1::2] << 4
    return encoded


def scales_of(encoded: UInt8Array) -> Float32Array:
    """Return the float32 scales ``[n]`` of encoded int8 or int4 rows."""
    return np.ascontiguousarray(encoded[:, :SCALE_BYTES]).view("<f4")[:, 0].astype(np.float32)


def numbers_of(encoded: UInt8Array, dtype: str, num_features: int) -> Array:
    """Return ``[n, num_features]`` int8: quantized numbers of int8 or int4 rows, unscaled."""
    numbers = np.ascontiguousarray(encoded[:, SCALE_BYTES:])
    if dtype == "int8":
        return numbers.view(np.int8)
    halves = np.empty((len(numbers), 2 * numbers.shape[1]), np.int8)
    halves[:, ::2], halves[:, 1::2] = numbers & 15, numbers >> 4
    return (halves[:, :num_features] ^ 8) - 8


def as_float32(rows: Array, dtype: str, num_features: int) -> Float32Array:
    """Return stored ``rows`` of the type ``dtype`` as ``[n, num_features]`` float32."""
    if dtype in MAX_QUANTIZED:
        return numbers_of(rows, dtype, num_features).astype(np.float32) * scales_of(rows)[:, None]
    if dtype == "bfloat16":  # the upper half of a float32
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)


def finite(rows: Array, dtype: str) -> BoolArray:
    """Return whether each element of stored ``rows`` is finite, ``[n, f]``.

    For int8 and int4 ``[n, 1]``: whether the row's scale is finite, not negative, and small enough
    for finite features.
    """
    if dtype in MAX_QUANTIZED:
        scales = scales_of(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            products = scales * np.float32(MAX_QUANTIZED[dtype])
        return np.asarray(np.isfinite(products) & (scales >= 0))[:, None]
    # All bits of the exponent are set for infinity and NaN.
    return np.asarray((rows & 0x7F80) != 0x7F80 if dtype == "bfloat16" else np.isfinite(rows))
