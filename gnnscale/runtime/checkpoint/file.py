"""Checkpoints: atomic files that hold all a run needs to end as if it had never stopped.

What writes and reads tensors is imported then: whoever only tidies up behind a run has no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gnnscale.core.errors import ConfigError, one_line, shown
from gnnscale.core.files import remove_unfinished, write_atomically
from gnnscale.options.config import differences
from gnnscale.options.file import read_regular

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "BEST",
    "FORMAT_VERSION",
    "FREE_OPTIONS",
    "LAST",
    "PLAN_OPTIONS",
    "check_same_graph",
    "check_same_run",
    "load_checkpoint",
    "max_bytes",
    "read_checkpoint",
    "remove_unfinished_checkpoints",
    "save_checkpoint",
]

#: Bumped when the contents of a checkpoint change their meaning.
FORMAT_VERSION = 5
#: Everything after the last step that was kept, relative to the run directory.
LAST = Path("checkpoints") / "last.safetensors"
#: The weights with the best validation metric, relative to the run directory.
BEST = Path("checkpoints") / "best.safetensors"

#: Options that may differ between a run and its resumption: they change how long it goes on, or
#: where it finds things, not what it computes.
FREE_OPTIONS: tuple[str, ...] = (
    "epochs",
    "num_threads",
    "resume",
    "cache_plan",
    "cache_planner",
    "dataset.raw",
    "dataset.store",
    "device_plan",
    "features",
    "predictions",
    "logger",
    "observers",
    "runtime.checkpoint",
    "runtime.checkpoint_every_s",
    "runtime.deterministic",
    "runtime.drm",
    "runtime.patience",
    "runtime.prefetch",
    "runtime.prefetch_depth",
    "runtime.stall_limit_s",
)
#: Those of them that plans follow from, and with them the order in which numbers are added up.
PLAN_OPTIONS = frozenset(
    (
        *("num_threads", "cache_plan", "cache_planner", "device_plan", "features"),
        *("runtime.drm", "runtime.prefetch", "runtime.prefetch_depth"),
    )
)
#: Bytes of a checkpoint beside its tensors; it has the epochs that ``metrics.jsonl`` has not.
_MAX_VALUES_BYTES = 1 << 30


def save_checkpoint(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``file``, atomically.

    Raises:
        OSError: the disk is full or the directory not writable; ``file`` is as it was before.
    """
    from gnnscale.runtime.checkpoint.tensor_file import packed

    file.parent.mkdir(parents=True, exist_ok=True)
    parts = packed({"format_version": FORMAT_VERSION, **content})
    write_atomically(file, parts, durable=True)


def remove_unfinished_checkpoints(directory: Path) -> None:
    """Remove what a process that was killed while it wrote a checkpoint left behind."""
    for file in (BEST, LAST):
        remove_unfinished(directory / file)


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
        content: its bytes; None for a file of one's own, which is read however large.

    Raises:
        ConfigError: the bytes are truncated, no checkpoint, or of another version.
    """
    from gnnscale.runtime.checkpoint.tensor_file import TensorFileError, unpack

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


class Saved(Protocol):
    """The part of a checkpoint by which it recognises its run."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's options as plain values."""

    @property
    def graph(self) -> Mapping[str, Any]:
        """Name and sizes of its graph."""


def check_same_run(
    file: Path, saved: Saved, *, config: Mapping[str, Any], graph: Mapping[str, Any]
) -> None:
    """Refuse to resume under other options, or on another graph, than the checkpoint's.

    With ``runtime.deterministic`` before and now, options that plans follow from stay too.

    Args:
        file: the checkpoint, named in the error.
        saved: its content.
        config: options of the resuming run as plain values.
        graph: name and sizes of its graph.

    Raises:
        ConfigError: naming the first option that differs, and both values.
    """
    free = FREE_OPTIONS
    if config.get("optimizer", {}).get("schedule") == "cosine":
        # The cosine runs over all epochs; with another number of them every step would differ.
        free = tuple(option for option in free if option != "epochs")
    if _repeats(config) and _repeats(saved.config):
        free = tuple(option for option in free if option not in PLAN_OPTIONS)
    for option, new, old in differences(config, saved.config, ignore=free):
        raise ConfigError(
            f"resume: {shown(option)} is {shown(new)}, but {file} was written with {shown(old)}"
        )
    check_same_graph(file, saved.graph, graph=graph, option="resume")


def _repeats(options: Mapping[str, Any]) -> bool:
    """Whether a run with these options repeats bit for bit."""
    runtime = options.get("runtime")
    return isinstance(runtime, Mapping) and runtime.get("deterministic") is True


def check_same_graph(
    file: Path, saved: Mapping[str, Any], *, graph: Mapping[str, Any], option: str
) -> None:
    """Refuse weights of another graph.

    Args:
        file: the checkpoint, named in the error.
        saved: name, sizes and content hash of its graph.
        graph: those of the graph at hand.
        option: the option that named the run.

    Raises:
        ConfigError: naming the first difference, and both values.
    """
    for what, new, old in differences(graph, saved):
        raise ConfigError(
            f"{option}: the graph's {shown(what)} is {shown(new)}, "
            f"but {file} was written with {shown(old)}"
        )
