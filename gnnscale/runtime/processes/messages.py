"""What a worker process is started with, and what it says when it fails."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnscale.plan.registry import DeviceKind
from gnnscale.runtime.checkpoint.artefacts import Artefact
from gnnscale.runtime.settings import TrainConfig

__all__ = ["OUT_OF_MEMORY", "Failure", "WorkerTask"]

#: Exit status of a worker that has no memory left to say so.
OUT_OF_MEMORY = errno.ENOMEM


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """What a worker is started with.

    Attributes:
        config: the run's options.
        directory: the run directory.
        options: ``config`` as plain values.
        rank: its device's position in the plan.
        size: number of workers.
        meeting: the file by which they find each other; None for a worker without others.
        pulses: the file in which each tells how far it has come.
        backend: torch.distributed's.
        artefacts: what the launching process has made for the run.
        kinds: devices that the launching process has registered beside the built-in ones.
    """

    config: TrainConfig
    directory: Path
    options: dict[str, Any]
    rank: int
    size: int
    meeting: Path | None
    pulses: Path
    backend: str
    artefacts: tuple[Artefact, ...]
    kinds: tuple[DeviceKind, ...]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a worker ends before its time.

    Attributes:
        kind: ``user`` for what the user can mend, ``peer`` where another worker is to blame,
            ``memory`` for memory that ran out, ``error`` for everything else.
        message: one line.
        trace: the traceback.
    """

    kind: str
    message: str
    trace: str
