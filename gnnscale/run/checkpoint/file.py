"""Checkpoint files, which hold everything that a stopped run needs to resume.

A checkpoint is a safetensors file without code. A tensor of bytes has its plain values as JSON, in
which a marked name stands for a tensor. The last tensor is the CRC-32 of all preceding bytes, the
header included: it detects every flipped bit and damage of up to 32 consecutive bits.
"""

import json
import logging
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from gnnscale.core import ConfigError, brief, files, one_line
from gnnscale.core.config import differences, read_regular
from gnnscale.nn.learned_embeddings import LearnedEmbedding

log = logging.getLogger(__name__)

_VALUES, _CHECKSUM = "values", "crc32"
_CHECKSUM_BYTES = 4
#: First character of a tensor's name in JSON.
_MARK = "\0"
#: Names of dtypes in safetensors.
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
    """Error for bytes that are no result of ``pack``, with a message of one line."""


def pack(content: Any) -> bytes:
    """Return ``content`` as bytes for ``unpack``.

    ``content`` has JSON values, tensors in dicts, and dataclasses of both; TypeError for other
    types. Tensors that share memory are written separately.
    """
    return b"".join(packed(content))


def packed(content: Any, *, checksum: bool = False) -> Iterator[bytes | memoryview]:
    """Yield the bytes of ``pack`` in parts without copies; with ``checksum``, also a CRC-32."""
    crc32 = 0
    for part in _packed(content, checksum=checksum):
        crc32 = zlib.crc32(part, crc32) if checksum else 0
        yield part
    if checksum:
        yield crc32.to_bytes(_CHECKSUM_BYTES, "little")


def is_whole(content: bytes) -> bool:
    """Whether ``content`` ends with the CRC-32 of the preceding bytes."""
    checksum = zlib.crc32(memoryview(content)[:-_CHECKSUM_BYTES])
    return checksum == int.from_bytes(content[-_CHECKSUM_BYTES:], "little")


def _packed(content: Any, *, checksum: bool) -> Iterator[bytes | memoryview]:
    """Yield the parts of ``packed`` without the checksum, which the header declares, if any."""
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
    # The widest dtypes come first, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda pair: -pair[1].itemsize)
    declared = [*ordered]
    if checksum:
        declared.append((_CHECKSUM, torch.empty(_CHECKSUM_BYTES, dtype=torch.uint8)))
    header, end = {}, 0
    for name, tensor in declared:
        begin, end = end, end + tensor.nbytes
        dtype, shape = _DTYPES.get(tensor.dtype), list(tensor.shape)
        if dtype is None:
            raise TypeError(f"dtype of a tensor: expected one of {[*_DTYPES]}, got {tensor.dtype}")
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    start = json.dumps(header, separators=(",", ":")).encode()
    start += b" " * (-len(start) % 8)
    yield len(start).to_bytes(8, "little") + start
    for _, tensor in ordered:
        if tensor.numel():
            yield tensor.reshape(-1).view(torch.uint8).numpy().data


def unpack(content: bytes) -> Any:
    """Return the values in a result of ``pack``, tuples as lists and dataclasses as dicts."""
    return _unpack(content)[0]


def _unpack(content: bytes) -> tuple[Any, bool]:
    """Return the values that ``pack`` wrote into ``content``, and whether it has a checksum."""
    try:
        tensors = safetensors.torch.load(content)
    # A damaged header may raise any error in safetensors, or name a dtype that torch lacks.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TensorFileError(reason) from None
    has_checksum = tensors.pop(_CHECKSUM, None) is not None
    text = tensors.pop(_VALUES, None)
    if text is None or text.dtype != torch.uint8 or text.ndim != 1:
        raise TensorFileError("no values beside its tensors")
    try:
        hook = partial(_restore_tensors, tensors=tensors)
        return json.loads(text.numpy().tobytes(), object_hook=hook), has_checksum
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise TensorFileError("its values are damaged") from None
    # Raised for numbers of thousands of digits.
    except ValueError as error:
        raise TensorFileError(str(error).splitlines()[0]) from None


def _restore_tensors(members: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return ``members`` of a JSON object with tensors in place of their (marked) names."""
    for key, value in members.items():
        if isinstance(value, str) and value[:1] == _MARK:
            members[key] = tensors.get(value[1:], value)
    return members


#: Version of the content of a checkpoint, incremented when its meaning changes.
FORMAT_VERSION = 6
#: Version without a checksum, written by earlier releases. No single flipped bit turns a current
#: file into one: the digits differ in two bits, and the current header declares a checksum.
UNCHECKED_VERSION = 5

#: Options that may change when a run resumes: they affect its length, paths and speed, and not the
#: computation.
FREE_OPTIONS: tuple[str, ...] = (
    *("epochs", "num_threads", "resume", "cache_plan", "cache_planner", "dataset.raw"),
    *("dataset.store", "device_plan", "features", "predictions", "logger", "observers"),
    *("runtime.checkpoint", "runtime.checkpoint_every_s", "runtime.deterministic", "runtime.drm"),
    *("runtime.patience", "runtime.prefetch", "runtime.prefetch_depth", "runtime.stall_limit_s"),
    *("sampler.memory_bytes", "threshold"),
)
#: Free options that determine the plan, and thus the order of floating-point sums.
PLAN_OPTIONS = (
    *("num_threads", "cache_plan", "cache_planner", "device_plan", "features"),
    *("runtime.drm", "runtime.prefetch", "runtime.prefetch_depth"),
)
#: Options that earlier releases lacked, with the values that correspond to their behavior.
ADDED_OPTIONS: dict[str, Any] = {
    "drop_last": False,
    "model.input_dropout": 0.0,
    "dataset.edge_split_by": "pair",
    "task.directed": False,
}
#: Maximum bytes of the plain values, such as epochs that ``metrics.jsonl`` lacks.
_MAX_VALUES_BYTES = 1 << 30


def save_checkpoint(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` with format version and CRC-32 to ``file``, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = packed({"format_version": FORMAT_VERSION, **content}, checksum=True)
    files.write_atomically(file, parts, durable=True)


def max_bytes(model: nn.Module) -> int:
    """Return the maximum bytes of a checkpoint: eight times the weights, and 1 GiB of values."""
    tensors = model.state_dict().values()
    num_bytes: int = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return 8 * num_bytes + _MAX_VALUES_BYTES


def read_checkpoint(file: Path, *, limit: int) -> bytes:
    """Return the unchecked bytes of a regular file of at most ``limit`` bytes; else ConfigError."""
    try:
        return read_regular(file, limit=limit)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such checkpoint") from None
    except OSError as error:
        raise ConfigError(f"{file}: not a readable checkpoint ({error.strerror})") from None


def load_checkpoint(file: Path, content: bytes | None = None) -> dict[Any, Any]:
    """Return the content of a checkpoint; an untrusted file runs no code.

    ``content`` has the bytes of ``file``; None reads a trusted file of any size. ConfigError if the
    bytes are truncated, damaged, no checkpoint, or of an unknown version.
    """
    if content is None:
        content = read_checkpoint(file, limit=sys.maxsize)
    try:
        saved, has_checksum = _unpack(content)
    except TensorFileError as error:
        reason = one_line(error, 200)
        raise ConfigError(f"{file}: not a readable checkpoint, truncated? ({reason})") from None
    version = saved.get("format_version") if isinstance(saved, dict) else None
    intact = is_whole(content) if has_checksum else version != FORMAT_VERSION
    if not intact:
        raise ConfigError(
            f"{file}: not a readable checkpoint, its bytes are not those of its checksum; the file "
            "is damaged, restore it from a copy"
        )
    if not isinstance(saved, dict) or version not in (FORMAT_VERSION, UNCHECKED_VERSION):
        raise ConfigError(
            f"{file}: expected checkpoint format {UNCHECKED_VERSION} or {FORMAT_VERSION}, got "
            f"{brief(version)}"
        )
    if not has_checksum:
        log.info(f"{file}: written by an earlier release, without a checksum")
    return saved


#: Hint of differing edges or structural features in older runs of link prediction.
_DIVIDED = (
    "; up to release 0.2 the reverse of a held-out edge could send messages on a graph with some "
    "mutual edges, and features=degrees and projections were made of held-out edges too, now "
    "neither is so: train such a run again"
)


def check_same_graph(
    file: Path,
    saved: Mapping[str, Any],
    *,
    graph: Mapping[str, Any],
    option: str,
    divided: bool = False,
) -> None:
    """Raise ConfigError if ``saved``, the identity of a checkpoint's graph, is not ``graph``.

    ``divided``: the run holds out edges of link prediction; the error then explains older releases.
    """
    for field, new, old in differences(graph, saved):
        hint = _DIVIDED if divided and field in ("num_edges", "content") else ""
        raise ConfigError(
            f"{option}: the graph's {brief(field)} is {brief(new)}, "
            f"but {file} was written with {brief(old)}{hint}"
        )


def check_weights(file: Path, weights: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return ``weights`` as a dict; ConfigError if they do not fit ``model``."""
    expected = model.state_dict()
    if not isinstance(weights, Mapping) or weights.keys() != expected.keys():
        raise ConfigError(f"{file}: not weights of this model (parameter names differ)")
    for name, tensor in expected.items():
        stored = weights[name]
        if not isinstance(stored, Tensor):
            value = brief(stored)
        elif (stored.shape, stored.dtype) != (tensor.shape, tensor.dtype):
            value = _describe(stored, other=tensor)
        else:
            continue
        raise ConfigError(
            f"{file}: not weights of this model ({name}: expected "
            f"{_describe(tensor, other=stored)}, got {value})"
        )
    return dict(weights)


def _describe(tensor: Tensor, *, other: Any) -> str:
    """Return the shape of ``tensor``, and its dtype if that of ``other`` differs."""
    shape = str(list(tensor.shape))
    if isinstance(other, Tensor) and other.dtype != tensor.dtype:
        return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"
    return shape


def check_optimizer_state(
    state: Mapping[int, Mapping[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    names: frozenset[str],
    embedding: LearnedEmbedding | None,
) -> None:
    """Raise ValueError for an optimizer state of other names, shapes or dtypes.

    ``state`` is by parameter index, ``names`` name a parameter's state tensors. Learned rows
    (``embedding``) have other state tensors.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, tensors in state.items():
        if not 0 <= number < len(parameters):
            raise ValueError("the optimizer's state is another's")
        parameter = parameters[number]
        if embedding is not None and parameter is embedding.weight:
            shapes = embedding.state_shapes
        else:
            shapes = {name: () if name == "step" else tuple(parameter.shape) for name in names}
        if tensors and tensors.keys() != shapes.keys():
            raise ValueError("the optimizer's state is another's")
        for name, tensor in tensors.items():
            dtype = torch.float32 if name == "step" else parameter.dtype
            if (tuple(tensor.shape), tensor.dtype) != (shapes[name], dtype):
                raise ValueError(f"the optimizer's {name} is {list(tensor.shape)}")
