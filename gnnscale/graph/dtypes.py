"""The types in which features are stored, and rows of whole numbers with a scale (int8, int4)."""

from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, UInt8Array

#: How features may be stored, and the NumPy type of the array that carries them. bfloat16 has no
#: NumPy type; its bits are stored as uint16. A row of int8 or int4 is bytes.
FEATURE_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.uint8),
    "int4": np.dtype(np.uint8),
}
#: The largest whole number of the types whose rows have a scale each.
MAX_QUANTIZED = {"int8": 127, "int4": 7}
#: A row of these begins with its scale, float32.
SCALE_BYTES = 4


def row_length(dtype: str, num_features: int) -> int:
    """Return how many elements of ``FEATURE_DTYPES[dtype]`` carry a row of ``num_features``."""
    if dtype == "int8":
        return SCALE_BYTES + num_features
    return SCALE_BYTES + (num_features + 1) // 2 if dtype == "int4" else num_features


def row_bytes(dtype: str, num_features: int) -> int:
    """Return the bytes of a row of ``num_features``, its scale included."""
    return row_length(dtype, num_features) * FEATURE_DTYPES[dtype].itemsize


def quantized(rows: Float32Array, dtype: str) -> UInt8Array:
    """Return finite ``rows`` ``[n, f]`` as rows of whole numbers, symmetric around 0.

    A row is its scale, max|x| / 127 (int8) or max|x| / 7 (int4), and then x / scale, rounded to the
    nearest, ties to even; so no value moves by more than half of the scale. The scale is float32,
    0 in a row of zeros and not subnormal in others. Of two int4 in a byte, the first is in the
    lower half; the last upper half of an odd row is 0.

    Args:
        dtype: ``int8`` or ``int4``.

    Returns:
        ``[n, row_length(dtype, f)]`` uint8.
    """
    most, limits = MAX_QUANTIZED[dtype], np.finfo(np.float32)
    # Beyond this, the largest number times the scale would overflow.
    largest = np.nextafter(limits.max / np.float32(most), np.float32(0))
    peaks = np.abs(rows).max(axis=1, initial=0)
    scales = np.clip(peaks / np.float32(most), limits.tiny, largest)
    # float32 would round some quotients to a tie.
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
    """Return ``[n]`` the scales of rows of int8 or int4."""
    return np.ascontiguousarray(encoded[:, :SCALE_BYTES]).view("<f4")[:, 0].astype(np.float32)


def numbers_of(encoded: UInt8Array, dtype: str, num_features: int) -> Array:
    """Return ``[n, num_features]`` int8, the whole numbers of rows of int8 or int4."""
    numbers = np.ascontiguousarray(encoded[:, SCALE_BYTES:])
    if dtype == "int8":
        return numbers.view(np.int8)
    halves = np.empty((len(numbers), 2 * numbers.shape[1]), np.int8)
    halves[:, ::2], halves[:, 1::2] = numbers & 15, numbers >> 4
    return (halves[:, :num_features] ^ 8) - 8


def as_float32(rows: Array, dtype: str, num_features: int) -> Float32Array:
    """Return stored ``rows`` of the type ``dtype`` as ``[n, num_features]`` float32."""
    if dtype in MAX_QUANTIZED:
        numbers = numbers_of(rows, dtype, num_features).astype(np.float32)
        return numbers * scales_of(rows)[:, None]
    if dtype == "bfloat16":  # the upper half of a float32
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)


def finite(rows: Array, dtype: str) -> BoolArray:
    """Return which elements of stored ``rows`` are finite.

    Of int8 and int4 it is one column: whether the row's scale is finite, not negative, and small
    enough for its whole numbers.
    """
    if dtype in MAX_QUANTIZED:
        scales = scales_of(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            products = scales * np.float32(MAX_QUANTIZED[dtype])
        return np.asarray(np.isfinite(products) & (scales >= 0))[:, None]
    # An exponent with all bits set is of no finite number.
    found = (rows & 0x7F80) != 0x7F80 if dtype == "bfloat16" else np.isfinite(rows)
    return np.asarray(found)
