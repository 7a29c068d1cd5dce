"""Checkpoints: atomic files that hold all a run needs to end as if it had never stopped.

A checkpoint is a safetensors file, which holds named tensors and nothing that could run. The values
around the tensors are JSON, kept as one more tensor of bytes. It has the name of a tensor in place
of it, marked by a character that no option and no name holds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor

from gnnscale.core import ConfigError, files, one_line, shown
from gnnscale.options.config import differences
from gnnscale.options.file import read_regular
from gnnscale.runtime.checkpoint import BEST as BEST
from gnnscale.runtime.checkpoint import LAST as LAST

if TYPE_CHECKING:
    from torch import nn


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
    start = json.dumps(header, separators=(",", ":")).encode()
    start += b" " * (-len(start) % 8)
    yield len(start).to_bytes(8, "little") + start
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


#: Bumped when the contents of a checkpoint change their meaning.
FORMAT_VERSION = 5

#: Options that may differ between a run and its resumption: they change how long it trains, or
#: where it finds things, not what it computes.
FREE_OPTIONS: tuple[str, ...] = (
    *("epochs", "num_threads", "resume", "cache_plan", "cache_planner", "dataset.raw"),
    *("dataset.store", "device_plan", "features", "predictions", "logger", "observers"),
    *("runtime.checkpoint", "runtime.checkpoint_every_s", "runtime.deterministic", "runtime.drm"),
    *("runtime.patience", "runtime.prefetch", "runtime.prefetch_depth", "runtime.stall_limit_s"),
    "sampler.memory_bytes",
)
#: Those of them that plans follow from, and with them the order in which numbers are added up.
PLAN_OPTIONS = (
    *("num_threads", "cache_plan", "cache_planner", "device_plan", "features"),
    *("runtime.drm", "runtime.prefetch", "runtime.prefetch_depth"),
)
#: Options that earlier releases had not, with the values of what they did.
ADDED_OPTIONS: dict[str, Any] = {"drop_last": False, "model.input_dropout": 0.0}
#: Bytes of a checkpoint beside its tensors; it has the epochs that ``metrics.jsonl`` has not.
_MAX_VALUES_BYTES = 1 << 30


def save_checkpoint(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``file``, atomically.

    Raises:
        OSError: the disk is full or the directory not writable; ``file`` is as it was before.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = packed({"format_version": FORMAT_VERSION, **content})
    files.write_atomically(file, parts, durable=True)


def max_bytes(model: nn.Module) -> int:
    """Return how large a checkpoint of ``model`` may be: weights twice, two moments, records."""
    tensors = model.state_dict().values()
    num_bytes: int = sum(each.numel() * each.element_size() for each in tensors)
    return 8 * num_bytes + _MAX_VALUES_BYTES


def read_checkpoint(file: Path, *, limit: int) -> bytes:
    """Return the bytes of a checkpoint, of which nothing is known yet.

    Raises:
        ConfigError: the file is missing, no regular file, cannot be read, or is larger than
            ``limit`` bytes.
    """
    try:
        return read_regular(file, limit=limit)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such checkpoint") from None
    except OSError as error:
        raise ConfigError(f"{file}: not a readable checkpoint ({error.strerror})") from None


def load_checkpoint(file: Path, content: bytes | None = None) -> dict[Any, Any]:
    """Return what a checkpoint holds; a file that cannot be trusted runs no code.

    Args:
        file: named in errors.
        content: its bytes; None for a trusted file, which is read however large.

    Raises:
        ConfigError: the bytes are truncated, no checkpoint, or of another version.
    """
    if content is None:
        content = read_checkpoint(file, limit=sys.maxsize)
    try:
        saved = unpack(content)
    except TensorFileError as error:
        reason = one_line(error, 200)
        raise ConfigError(f"{file}: not a readable checkpoint, truncated? ({reason})") from None
    version = saved.get("format_version") if isinstance(saved, dict) else None
    if version != FORMAT_VERSION or not isinstance(saved, dict):
        raise ConfigError(
            f"{file}: checkpoint format {shown(version)}, this release reads {FORMAT_VERSION}"
        )
    return saved


def check_same_graph(
    file: Path, saved: Mapping[str, Any], *, graph: Mapping[str, Any], option: str
) -> None:
    """Refuse weights of another graph.

    Args:
        saved: name, sizes and content hash of its graph.
        option: the option that named the run.

    Raises:
        ConfigError: naming the first difference, and both values.
    """
    for what, new, old in differences(graph, saved):
        raise ConfigError(
            f"{option}: the graph's {shown(what)} is {shown(new)}, "
            f"but {file} was written with {shown(old)}"
        )
