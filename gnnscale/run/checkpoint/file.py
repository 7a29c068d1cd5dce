"""Checkpoints: atomic files that hold all a run needs to end as if it had never stopped.

A checkpoint is a safetensors file, which holds named tensors and nothing that could run. The values
around the tensors are JSON, kept as one more tensor of bytes. It has the name of a tensor in place
of it, marked by a character that no option and no name holds.

The last four bytes are the CRC-32 of all bytes before, the header included, as one more tensor. It
finds every single flipped bit, and damage of up to 32 bits in a row for certain; other damage stays
unnoticed once in 4 billion times.
"""

from __future__ import annotations

import json
import logging
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor

from gnnscale.core import ConfigError, files, one_line, shown
from gnnscale.core.config.typed import differences
from gnnscale.core.config.yaml_file import read_regular

if TYPE_CHECKING:
    from torch import nn


log = logging.getLogger(__name__)

_VALUES, _CHECKSUM = "values", "crc32"
_CHECKSUM_BYTES = 4
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


def packed(content: Any, *, checksum: bool = False) -> Iterator[bytes | memoryview]:
    """Yield the bytes of ``pack`` in parts: tensors in host memory go to a file without a copy.

    That would hold Python's lock, for which the thread that trains would wait.

    Args:
        checksum: end with the CRC-32 of all bytes, of which ``is_whole`` is true.
    """
    parts = _packed(content, checksum=checksum)
    if not checksum:
        yield from parts
        return
    crc32 = 0
    for part in parts:
        crc32 = zlib.crc32(part, crc32)
        yield part
    yield crc32.to_bytes(_CHECKSUM_BYTES, "little")


def is_whole(content: bytes) -> bool:
    """Whether bytes end with the CRC-32 of all before."""
    found = zlib.crc32(memoryview(content)[:-_CHECKSUM_BYTES])
    return found == int.from_bytes(content[-_CHECKSUM_BYTES:], "little")


def _packed(content: Any, *, checksum: bool) -> Iterator[bytes | memoryview]:
    """Yield the parts of ``packed`` but for the checksum, which the header declares."""
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
    declared = [*ordered]
    if checksum:
        declared.append((_CHECKSUM, torch.empty(_CHECKSUM_BYTES, dtype=torch.uint8)))
    header, end = {}, 0
    for name, tensor in declared:
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
    return _unpacked(content)[0]


def _unpacked(content: bytes) -> tuple[Any, bool]:
    """Return what ``unpack`` does, and whether the header declares a checksum."""
    try:
        tensors = safetensors.torch.load(content)
    # Whatever a damaged header brings about in safetensors, or a type of its that torch has not.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TensorFileError(reason) from None
    has_checksum = tensors.pop(_CHECKSUM, None) is not None
    text = tensors.pop(_VALUES, None)
    if text is None or text.dtype != torch.uint8 or text.ndim != 1:
        raise TensorFileError("no values beside its tensors")
    try:
        hook = partial(_restored, tensors=tensors)
        return json.loads(text.numpy().tobytes(), object_hook=hook), has_checksum
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
FORMAT_VERSION = 6
#: The same content without a checksum, which earlier releases wrote. No single flipped bit makes
#: one of these of the current version: the digits differ in two bits, and the header declares none.
UNCHECKED_VERSION = 5

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
ADDED_OPTIONS: dict[str, Any] = {
    "drop_last": False,
    "model.input_dropout": 0.0,
    "dataset.edge_split_by": "pair",
    "task.directed": False,
}
#: Bytes of a checkpoint beside its tensors; it has the epochs that ``metrics.jsonl`` has not.
_MAX_VALUES_BYTES = 1 << 30


def save_checkpoint(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``file``, atomically.

    Raises:
        OSError: the disk is full or the directory not writable; ``file`` is as it was before.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = packed({"format_version": FORMAT_VERSION, **content}, checksum=True)
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
        ConfigError: the bytes are truncated, changed, no checkpoint, or of another version.
    """
    if content is None:
        content = read_checkpoint(file, limit=sys.maxsize)
    try:
        saved, has_checksum = _unpacked(content)
    except TensorFileError as error:
        reason = one_line(error, 200)
        raise ConfigError(f"{file}: not a readable checkpoint, truncated? ({reason})") from None
    version = saved.get("format_version") if isinstance(saved, dict) else None
    if has_checksum and not is_whole(content):
        raise _damaged(file)
    if version == FORMAT_VERSION and not has_checksum:
        raise _damaged(file)
    if not isinstance(saved, dict) or version not in (FORMAT_VERSION, UNCHECKED_VERSION):
        raise ConfigError(
            f"{file}: checkpoint format {shown(version)}, this release reads {UNCHECKED_VERSION} "
            f"and {FORMAT_VERSION}"
        )
    if not has_checksum:
        log.info(f"{file}: written by an earlier release, without a checksum")
    return saved


#: Explains why the divided edges of an older run of link prediction may differ, or the rows that
#: are made of them.
_DIVIDED = (
    "; up to release 0.2 the reverse of a held-out edge could send messages on a graph with some "
    "mutual edges, and features=degrees and projections were made of held-out edges too, now "
    "neither is so: train such a run again"
)


def _damaged(file: Path) -> ConfigError:
    return ConfigError(
        f"{file}: not a readable checkpoint, its bytes are not those of its checksum; the file is "
        "damaged, and another copy of it is needed"
    )


def check_same_graph(
    file: Path,
    saved: Mapping[str, Any],
    *,
    graph: Mapping[str, Any],
    option: str,
    divided: bool = False,
) -> None:
    """Refuse weights of another graph.

    Args:
        saved: name, sizes and content hash of its graph.
        option: the option that named the run.
        divided: whether the graph is one without the edges that a task holds out.

    Raises:
        ConfigError: naming the first difference, and both values.
    """
    for what, new, old in differences(graph, saved):
        why = _DIVIDED if divided and what in ("num_edges", "content") else ""
        raise ConfigError(
            f"{option}: the graph's {shown(what)} is {shown(new)}, "
            f"but {file} was written with {shown(old)}{why}"
        )
