"""Timed stages of training on one device (HyScale-GNN, section III-B)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import cast

from gnnscale.backend import Backend, DeviceMemoryError, HostSampledBackend
from gnnscale.backend.exchange import Exchange
from gnnscale.core import STAGES, Array, Pipeline, StageGroup
from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES, STATUS
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.training.pipeline.slices import BatchSlice


class Stages:
    """Stages of a slice before propagation.

    A slice without seeds skips them, unless devices exchange rows.
    """

    def __init__(self, backend: Backend, exchange: Exchange | None = None) -> None:
        """Run on ``backend``, and exchange rows through ``exchange``."""
        self._backend = backend
        self._exchange = exchange
        self._ended = False

    @property
    def exchanges(self) -> bool:
        """Whether devices exchange rows."""
        return self._exchange is not None

    def sample_on_host(self, batch: BatchSlice) -> None:
        """Sample a slice on the host, if the plan says so for a device that samples itself."""
        if batch.host_samples and len(batch.seeds) and batch.on_host is None:
            with measured(batch, "sample"):
                batch.on_host = self._sample_taker.sample_on_host(batch.seeds, batch.step)

    def sample(self, batch: BatchSlice) -> None:
        """Sample the slice's seeds on the device, or on the host and copy the sample to the device.

        Nothing is done for a slice sampled already, or without seeds if no rows are exchanged.
        """
        if batch.batch is not None or not (len(batch.seeds) or self.exchanges):
            return
        self.sample_on_host(batch)
        if batch.on_host is None:
            with measured(batch, "sample"):
                batch.batch = self._backend.sample(batch.seeds, batch.step)
        else:
            with measured(batch, "transfer"):
                batch.batch = self._sample_taker.receive_sample(batch.on_host, batch.seeds)
            batch.on_host = None

    @property
    def _sample_taker(self) -> HostSampledBackend:
        assert self._backend.device.takes_samples
        return cast(HostSampledBackend, self._backend)

    def input_vertices(self, batch: BatchSlice) -> Array | None:
        """Return the global input vertices of a sampled slice; None: it is not sampled."""
        return None if batch.batch is None else self._backend.on_host(batch.batch).input_vertices

    def load(self, batch: BatchSlice) -> None:
        """Read the features of the slice's input vertices."""
        if batch.batch is not None:
            with measured(batch, "load"):
                batch.inputs = self._backend.load(batch.batch)

    def exchange(self, batch: BatchSlice) -> None:
        """Replace the slice's inputs by rows exchanged with other devices, if the run exchanges."""
        if self._exchange is not None:
            assert batch.batch is not None
            assert batch.inputs is not None
            with measured(batch, "exchange"):
                sampled = self._backend.on_host(batch.batch)
                batch.inputs = self._exchange.trade(sampled, batch.inputs)

    def end(self) -> None:
        """Make later ``transfer`` calls do nothing, because their slices are not trained."""
        self._ended = True

    def transfer(self, batch: BatchSlice) -> None:
        """Copy topology and features to the device; DeviceMemoryError: the slice is as before."""
        if self._ended or batch.batch is None or batch.inputs is None:
            return
        if self._backend.device.on_host:
            # On the host nothing is copied, so the call is not timed as a stage.
            batch.device_batch = self._backend.transfer(batch.batch, batch.inputs)
            return
        seconds, num_spans = batch.stages.transfer, len(batch.spans)
        try:
            with measured(batch, "transfer"):
                batch.device_batch = self._backend.transfer(batch.batch, batch.inputs)
        except DeviceMemoryError:
            # A failed attempt must not count as transfer time for resource management.
            batch.stages.transfer = seconds
            del batch.spans[num_spans:]
            raise


@contextmanager
def measured(batch: BatchSlice, stage: str) -> Iterator[None]:
    """Add the time of the ``with`` block to the slice's ``stage`` and spans.

    The block is also this thread's current activity in heartbeats.
    """
    thread = get_ident()
    CURRENT_ACTIVITIES[thread] = stage
    STATUS.signs += 1
    start = time.perf_counter()
    try:
        yield
    finally:
        end = time.perf_counter()
        del CURRENT_ACTIVITIES[thread]
        setattr(batch.stages, stage, getattr(batch.stages, stage) + end - start)
        batch.spans.append((STAGES.index(stage), start, end))


def runs_ahead(plan: DevicePlan) -> bool:
    """Whether the host prepares mini-batches ahead for any device of ``plan``."""
    return any(share.prefetch not in ("none", BY_DEVICE) for share in plan.shares)


def _nothing(batch: BatchSlice) -> None:
    """Do nothing: the stage makes a pipeline thread draw slices from its source ahead."""


def build_pipeline(
    stages: Stages,
    source: Iterator[BatchSlice],
    *,
    prefetch: str,
    has_link: bool,
    limit: int,
    draws_ahead: bool = False,
    shares_sampling: bool = False,
) -> Pipeline[BatchSlice]:
    """Arrange the stages before propagation in groups, each with its own thread.

    A mini-batch that exceeds the free device memory waits until earlier mini-batches are trained.

    Args:
        prefetch: one of ``PREFETCH``, or ``BY_DEVICE`` for no stage at all. ``two_stage`` loads and
            transfers in separate groups: while a batch propagates, the next one is on the link, and
            the one after it is being loaded (figure 7). Without a link there is no group for
            transfers.
        limit: maximum number of batches in flight.
        draws_ahead: whether ``source`` samples ahead for the cache of a device with device-driven
            steps, which takes a thread.
        shares_sampling: whether the host samples some slices for a device that samples itself. With
            ``two_stage`` a separate group does so, while the device samples another slice.
    """
    steps: list[Callable[[BatchSlice], None]] = [
        stages.sample,
        stages.load,
        stages.exchange,
        stages.transfer,
    ]
    if prefetch == BY_DEVICE:
        return Pipeline(source, [[_nothing]] if draws_ahead else [], limit=limit)
    if prefetch == "none":
        return Pipeline(source, [], limit=limit, inline=steps)
    if prefetch == "one_stage":
        return Pipeline(source, [steps], limit=limit, no_room=DeviceMemoryError)
    groups: list[StageGroup[BatchSlice]] = [steps[:1], steps[1:3], steps[3:]]
    if not has_link:
        groups = [steps[:1], steps[1:]]
    if shares_sampling:
        groups = [[stages.sample_on_host], *groups]
    return Pipeline(source, groups, limit=limit, no_room=DeviceMemoryError)
