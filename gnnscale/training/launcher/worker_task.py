"""Data that the launching process and its workers exchange."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnscale.planner.registry import DeviceKind
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig

#: Replies of the launching process to a finished epoch.
STOP, CONTINUE = b"stop", b"continue"


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """Arguments of a worker process."""

    config: RunConfig  #: options of the run
    directory: Path  #: the run directory
    options: dict[str, Any]  #: ``config`` as plain values
    rank: int  #: position of the worker's device in the plan
    size: int  #: number of workers
    rendezvous: Path | None  #: file through which workers connect; None: there is one worker
    heartbeats: Path  #: file of all heartbeats
    backend: str  #: backend of torch.distributed
    artifacts: tuple[RunArtifact, ...]  #: artifacts made by the launching process
    kinds: tuple[DeviceKind, ...]  #: custom device kinds that the launching process has registered
    #: whether to profile memory for a few steps instead of training
    profiles_memory: bool = False
    #: whether an observer may end training, so that workers wait for its reply after each epoch
    may_stop: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason why a worker ends early."""

    #: ``user``: the user can fix it, ``peer``: another worker failed, ``memory``: out of memory,
    #: ``error``: any other error
    kind: str
    message: str  #: one line
    trace: str  #: the traceback
