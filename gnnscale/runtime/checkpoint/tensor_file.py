"""Nested plain values and tensors as the bytes of one safetensors file.

A file of that format holds named tensors and nothing that could run. The values around the tensors
are JSON, kept as one more tensor of bytes. JSON has no tuples, no tensors and no numbers as keys:
each of these, and every mapping, is written as an object with one member that tells what it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

__all__ = ["TensorFileError", "pack", "packed", "unpack"]

_VALUES = "values"
#: What the format calls types of tensors.
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class TensorFileError(ValueError):
    """Bytes are not what ``pack`` makes. The message is one line."""


def pack(content: Any) -> bytes:
    """Return ``content`` as bytes: ``unpack`` gives it back exactly.

    Args:
        content: None, bool, int, float, str, tensors, and lists, tuples and mappings of these.
            Keys are text or numbers. Tensors that share memory are written one by one.

    Raises:
        TypeError: it holds something else.
    """
    return b"".join(packed(content))


def packed(content: Any) -> Iterator[bytes | memoryview]:
    """Yield the bytes of ``pack`` in parts: tensors in host memory go to a file without a copy.

    That would hold Python's lock, for which the thread that trains would wait.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_described(content, tensors), separators=(",", ":")).encode()
    tensors[_VALUES] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    # The widest come first, so that each lies at a multiple of its width.
    ordered = sorted(tensors.items(), key=lambda pair: -pair[1].itemsize)
    header, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        dtype, shape = _DTYPES.get(tensor.dtype), list(tensor.shape)
        if dtype is None:
            raise TypeError(f"a tensor of {tensor.dtype} has no place in a file")
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)
    yield len(told).to_bytes(8, "little") + told
    for _, tensor in ordered:
        if tensor.numel():
            yield tensor.reshape(-1).view(torch.uint8).numpy().data


def unpack(content: bytes) -> Any:
    """Return what ``pack`` was given.

    Raises:
        TensorFileError: the bytes are truncated, changed, or something else from the start.
    """
    try:
        tensors = safetensors.torch.load(content)
    # Whatever a damaged header brings about in safetensors, or a type of its that torch has not.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TensorFileError(reason) from None
    text = tensors.pop(_VALUES, None)
    if text is None or text.dtype != torch.uint8 or text.ndim != 1:
        raise TensorFileError("no values beside its tensors")
    try:
        return _restored(json.loads(text.numpy().tobytes()), tensors)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise TensorFileError("its values are damaged") from None
    # Numbers of thousands of digits.
    except ValueError as error:
        raise TensorFileError(str(error).splitlines()[0]) from None


def _described(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return ``value`` for JSON, with its tensors moved to ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_described(each, tensors) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_described(each, tensors) for each in value]}
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"keys are neither text nor numbers: {list(value)[:3]}")
        return {"mapping": [[key, _described(each, tensors)] for key, each in value.items()]}
    raise TypeError(f"neither a tensor nor a plain value: {type(value).__name__}")


def _restored(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Undo ``_described``.

    Raises:
        TensorFileError: ``value`` is none of its results.
    """
    if isinstance(value, list):
        return [_restored(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind == "tensor" and isinstance(content, str) and content in tensors:
        return tensors[content]
    if kind == "tuple" and isinstance(content, list):
        return tuple(_restored(each, tensors) for each in content)
    if kind == "mapping" and isinstance(content, list) and all(map(_is_member, content)):
        return {key: _restored(each, tensors) for key, each in content}
    raise TensorFileError("its values are damaged")


def _is_member(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (str, int))
