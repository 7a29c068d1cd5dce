"""Nested plain values and tensors as the bytes of one safetensors file.

A file of that format holds named tensors and nothing that could run. The values around the tensors
are JSON, kept as one more tensor of bytes. It has the name of a tensor in place of it, marked by a
character that no option and no name holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

__all__ = ["TensorFileError", "pack", "packed", "unpack"]

_VALUES = "values"
#: The first character of a tensor's name in JSON.
_MARK = "\0"
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
    """Return ``content`` as bytes, for ``unpack``.

    Args:
        content: what JSON holds, tensors as members of dicts, and dataclasses of these. Tensors
            that share memory are written one by one.

    Raises:
        TypeError: it holds something else.
    """
    return b"".join(packed(content))


def packed(content: Any) -> Iterator[bytes | memoryview]:
    """Yield the bytes of ``pack`` in parts: tensors in host memory go to a file without a copy.

    That would hold Python's lock, for which the thread that trains would wait.
    """
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous()
            return _MARK + name
        if is_dataclass(value):
            return vars(value)
        raise TypeError(f"neither a tensor nor a plain value: {type(value).__name__}")

    text = json.dumps(content, separators=(",", ":"), default=plain).encode()
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
    """Return what ``pack`` was given, as JSON has it: lists for tuples, dicts with text for keys.

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
        hook = partial(_restored, tensors=tensors)
        return json.loads(text.numpy().tobytes(), object_hook=hook)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise TensorFileError("its values are damaged") from None
    # Numbers of thousands of digits.
    except ValueError as error:
        raise TensorFileError(str(error).splitlines()[0]) from None


def _restored(members: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Put tensors in the place of their names."""
    return {
        key: tensors.get(each[1:], each) if isinstance(each, str) and each[:1] == _MARK else each
        for key, each in members.items()
    }
