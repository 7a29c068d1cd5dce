"""Checkpoints: atomic files that hold all a run needs to end as if it had never stopped."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gnnscale.config import ConfigError, differences

__all__ = [
    "BEST",
    "FORMAT_VERSION",
    "LAST",
    "check_same_run",
    "load_checkpoint",
    "remove_unfinished",
    "save_checkpoint",
]

#: Bumped when the contents of a checkpoint change their meaning.
FORMAT_VERSION = 1
#: Everything after the last finished epoch, relative to the run directory.
LAST = Path("checkpoints") / "last.pt"
#: The weights with the best validation metric, relative to the run directory.
BEST = Path("checkpoints") / "best.pt"

#: Options that may differ between a run and its resumption: they change how long it goes on, or
#: where it finds things, not what it computes.
_FREE_OPTIONS: tuple[str, ...] = (
    "epochs",
    "num_threads",
    "resume",
    "dataset.raw",
    "dataset.store",
    "device_plan",
    "runtime.checkpoint",
    "runtime.drm",
    "runtime.patience",
    "runtime.port",
    "runtime.prefetch",
    "runtime.prefetch_depth",
)


def save_checkpoint(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``file``, whole or not at all.

    Raises:
        OSError: the disk is full or the directory not writable; ``file`` is as it was before.
    """
    buffer = io.BytesIO()
    torch.save({"format_version": FORMAT_VERSION, **content}, buffer)
    file.parent.mkdir(parents=True, exist_ok=True)
    # One fixed name, so that what a killed run left behind is overwritten by the next.
    temporary = _unfinished(file)
    try:
        with temporary.open("wb") as stream:
            stream.write(buffer.getbuffer())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished(directory: Path) -> None:
    """Remove what a process that was killed while it wrote a checkpoint left behind."""
    for file in (BEST, LAST):
        _unfinished(directory / file).unlink(missing_ok=True)


def _unfinished(file: Path) -> Path:
    return file.with_name(f".{file.name}.tmp")


def load_checkpoint(file: Path, content: bytes | None = None) -> dict[str, Any]:
    """Read a checkpoint; a file that cannot be trusted runs no code.

    Args:
        file: named in errors.
        content: its bytes, where they have been read already.

    Raises:
        ConfigError: the file is missing, truncated, no checkpoint, or of another version.
    """
    try:
        source = file if content is None else io.BytesIO(content)
        saved = torch.load(source, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such checkpoint") from None
    # torch raises whatever its zip reader and unpickler happen to meet.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{file}: not a readable checkpoint, truncated? ({reason})") from None
    version = saved.get("format_version") if isinstance(saved, dict) else None
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{file}: checkpoint format {version!r}, this release reads {FORMAT_VERSION}"
        )
    return dict(saved)


def check_same_run(
    file: Path, saved: Mapping[str, Any], *, config: Mapping[str, Any], graph: Mapping[str, Any]
) -> None:
    """Refuse to resume under other options, or on another graph, than the checkpoint's.

    Args:
        file: the checkpoint, named in the error.
        saved: its content.
        config: options of the resuming run as plain values.
        graph: name and sizes of its graph.

    Raises:
        ConfigError: naming the first option that differs, and both values.
    """
    free = _FREE_OPTIONS
    if config.get("optimizer", {}).get("schedule") == "cosine":
        # The cosine runs over all epochs; with another number of them every step would differ.
        free = tuple(option for option in free if option != "epochs")
    for option, new, old in differences(config, saved["config"], ignore=free):
        raise ConfigError(f"resume: {option} is {new}, but {file} was written with {old}")
    for what, new, old in differences(graph, saved["graph"]):
        raise ConfigError(f"resume: the graph's {what} is {new}, but {file} was written with {old}")
