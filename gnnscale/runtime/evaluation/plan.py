"""Where exact inference keeps its hidden layers, what that takes of the disk, and how long."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gnnscale.config import ConfigError
from gnnscale.dataset.storage.space import size
from gnnscale.hardware import find_memory
from gnnscale.runtime.evaluation.file_rows import file_bytes

__all__ = ["InferencePlan", "disk_rate", "plan_layers"]

#: The part of the available memory that hidden layers may take, and bytes at most: a file beyond
#: that is read as fast from the page cache, which the system takes back where memory is short.
_HIDDEN_PART, _MAX_HIDDEN_BYTES = 0.6, 512 << 20
#: The part that sums over the edges of a layer in a file may take, and bytes at least.
_STREAM_PART, _MIN_STREAM_BYTES = 0.15, 64 << 20
#: Bytes at most where the files fit into this part of the available memory: reading them again
#: for more sums takes no disk.
_CACHED_PART, _MAX_CACHED_STREAM_BYTES = 0.5, 256 << 20
#: What is written to learn how fast the disk is.
_TRIED_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class InferencePlan:
    """Where hidden layers are kept.

    Attributes:
        in_file: for each hidden layer whether it goes to a temporary file.
        temporary_bytes: of the files that exist at once.
        memory_bytes: of the layers in memory that exist at once.
        stream_bytes: sums over the edges of a layer in a file may take so much, and so may the
            rows that are mapped meanwhile.
        cached: whether the system has room for the files beside, so that reading them takes no
            disk.
    """

    in_file: tuple[bool, ...]
    temporary_bytes: int
    memory_bytes: int
    stream_bytes: int
    cached: bool

    def check_disk(self) -> None:
        """Refuse a plan that needs more of the disk than is free.

        Raises:
            ConfigError: says what is needed, and what else could be done.
        """
        folder = Path(tempfile.gettempdir())
        if self.temporary_bytes > (free := shutil.disk_usage(folder).free):
            raise ConfigError(
                f"runtime.inference=exact: needs {size(self.temporary_bytes)} of temporary disk, "
                f"and {size(free)} are free in {folder}; TMPDIR=FOLDER takes another folder, "
                "runtime.inference=sampled needs none"
            )


def plan_layers(
    layers: Sequence[tuple[int, int]], *, hidden_bytes: int | None, stream_bytes: int | None
) -> InferencePlan:
    """Decide where each hidden layer is kept.

    Args:
        layers: ``(rows, width)`` of each hidden layer.
        hidden_bytes: a layer of more goes to a file; None goes by the memory that is available,
            up to 512 MiB.
        stream_bytes: of ``InferencePlan``; likewise.
    """
    available = find_memory().available
    sizes = [4 * rows * width for rows, width in layers]
    if hidden_bytes is None:
        most = min(int(available * _HIDDEN_PART), _MAX_HIDDEN_BYTES)
        # A layer is read while the next one is written.
        hidden_bytes = most if _adjacent(sizes) <= most else most // 2
    in_file = tuple(each > hidden_bytes for each in sizes)
    files = [
        file_bytes(*layer) if filed else 0 for layer, filed in zip(layers, in_file, strict=True)
    ]
    kept = [0 if filed else each for each, filed in zip(sizes, in_file, strict=True)]
    temporary_bytes = _adjacent(files)
    cached = temporary_bytes <= available * _CACHED_PART
    if stream_bytes is None:
        stream_bytes = int(available * _STREAM_PART)
        if cached:
            stream_bytes = min(stream_bytes, _MAX_CACHED_STREAM_BYTES)
        stream_bytes = max(stream_bytes, _MIN_STREAM_BYTES)
    return InferencePlan(
        in_file=in_file,
        temporary_bytes=temporary_bytes,
        memory_bytes=_adjacent(kept),
        stream_bytes=stream_bytes,
        cached=cached,
    )


def _adjacent(sizes: Sequence[int]) -> int:
    """Return the most that two layers after another take together."""
    return max((a + b for a, b in pairwise([0, *sizes])), default=0)


def disk_rate() -> float:
    """Return bytes a second that the disk of temporary files writes, by trying."""
    with tempfile.TemporaryFile(prefix="gnnscale-inference-") as file:
        start = time.perf_counter()
        file.write(bytes(_TRIED_BYTES))
        file.flush()
        os.fdatasync(file.fileno())
        return _TRIED_BYTES / (time.perf_counter() - start)
