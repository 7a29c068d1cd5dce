"""A worker's device: its backend, caches, stages and training step."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch

from gnnscale.backend import Backend, DeviceDrivenBackend, InferenceCapable
from gnnscale.core.gpu import GpuMeter
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group
from gnnscale.features import FeatureStore
from gnnscale.features.multilevel import MultiLevelStore
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.store import TieredReader
from gnnscale.nn import TrainableModel
from gnnscale.planner import Device
from gnnscale.planner.device_spec import owns_steps
from gnnscale.training.build.cache import OpenedCache
from gnnscale.training.build.replan import CacheReplanner
from gnnscale.training.build.tiered_features import OpenedTier
from gnnscale.training.gradient_sync import Synchronizer
from gnnscale.training.pipeline.device_step import DeviceDrivenStep
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.pipeline.step import TrainStep, WorkerStep

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerDevice:
    """Device of one worker, and the objects that run training steps on it."""

    devices: tuple[Device, ...]  #: devices of all workers, by rank
    group: Group  #: the workers
    store: FeatureStore  #: features at the host, without any cache
    cache: OpenedCache | None  #: cache of this worker's device; None: no cache
    #: prefetches rows from disk or from other machines. None: all rows are in memory.
    tier: OpenedTier | None
    rows: ShardedStore | None  #: rows sharded over the machines. None: each machine has all rows.
    #: plans the caches again during the run; None: nothing is cached
    replanner: CacheReplanner | None
    backend: Backend  #: the device
    stages: Stages  #: sample, load, exchange and transfer a slice
    synchronizer: Synchronizer  #: sums gradients over all workers
    step: WorkerStep  #: propagation, synchronization and update of a slice
    #: position of the only accelerator, which may train without the CPU workers. None: CPU workers
    #: are never dropped.
    solo_position: int | None
    has_columns: bool  #: whether the device has only some columns of the features (P3)

    @property
    def prefetcher(self) -> MultiLevelStore | TieredReader | None:
        """Reader of the rows that later steps need. None: all rows are in memory."""
        if self.tier is None:
            return None
        return (self.cache and self.cache.multilevel) or self.tier.store.rows

    @property
    def meter(self) -> GpuMeter | None:
        """Meter of this worker's GPU. None: it has none, or a lower rank has the same GPU."""
        index = self.devices[self.group.rank].gpu
        lower_ranks = [device.gpu for device in self.devices[: self.group.rank]]
        return GpuMeter.of(None if index in lower_ranks else index)

    @property
    def inference_backend(self) -> InferenceCapable | None:
        """The backend, if it computes exact rows for evaluation; None otherwise."""
        # With some columns of the features, a device cannot compute rows of the full model.
        infers = self.backend.device.infers and not self.has_columns
        return cast(InferenceCapable, self.backend) if infers else None

    def rank0_reads(self) -> AbstractContextManager[None]:
        """Let rank 0 read ``store`` within the ``with`` block; every worker enters the block.

        If rows are sharded over machines, the other workers first serve rank 0's reads.
        """
        return nullcontext() if self.rows is None else self.rows.rank0_reads()

    def profiling_step(
        self, model: TrainableModel, optimizer: torch.optim.Optimizer, *, solo: bool = False
    ) -> WorkerStep:
        """Return the training step of a profiling run, whose ``optimizer`` is discarded.

        ``solo``: this device alone trains, with device-driven steps.
        """
        if solo or owns_steps(self.devices):
            group = SINGLE_PROCESS if solo else self.group
            return DeviceDrivenStep(
                model, cast(DeviceDrivenBackend, self.backend), optimizer, group
            )
        return TrainStep(model, self.backend, self.synchronizer, optimizer)
