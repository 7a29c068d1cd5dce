"""The stages of training on one device (HyScale-GNN, section III-B), timed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import cast

from gnnscale.backend import Backend, DeviceMemoryError, SampleTaker
from gnnscale.backend.exchange import Exchange
from gnnscale.core import STAGES, Array
from gnnscale.core.pipeline import Pipeline, StageGroup
from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES, STATUS
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.training.pipeline.slices import BatchSlice


class Stages:
    """What becomes of a slice before it is propagated.

    A slice without seeds passes untouched; if devices trade rows it is an empty mini-batch,
    since every device takes part.
    """

    def __init__(self, backend: Backend, exchange: Exchange | None = None) -> None:
        """Run on ``backend``, and trade rows by ``exchange``."""
        self._backend = backend
        self._exchange = exchange
        self._ended = False

    @property
    def exchanges(self) -> bool:
        """Whether devices trade rows."""
        return self._exchange is not None

    def sample_on_host(self, batch: BatchSlice) -> None:
        """Let the host sample a slice if that is its part, for a device that samples others."""
        if batch.host_samples and len(batch.seeds) and batch.on_host is None:
            with measured(batch, "sample"):
                batch.on_host = self._taker.sample_on_host(batch.seeds, batch.step)

    def sample(self, batch: BatchSlice) -> None:
        """Pick the neighbours of the slice's seeds, unless that was done ahead of time."""
        if batch.batch is not None or not (len(batch.seeds) or self.exchanges):
            return
        self.sample_on_host(batch)
        if batch.on_host is None:
            with measured(batch, "sample"):
                batch.batch = self._backend.sample(batch.seeds, batch.step)
        else:
            with measured(batch, "transfer"):
                batch.batch = self._taker.take_sample(batch.on_host, batch.seeds)
            batch.on_host = None

    @property
    def _taker(self) -> SampleTaker:
        assert self._backend.device.takes_samples
        return cast(SampleTaker, self._backend)

    def input_vertices(self, batch: BatchSlice) -> Array | None:
        """Return the vertices whose rows a sampled slice reads, None if it has no seeds."""
        return None if batch.batch is None else self._backend.on_host(batch.batch).input_vertices

    def load(self, batch: BatchSlice) -> None:
        """Read their features."""
        if batch.batch is not None:
            with measured(batch, "load"):
                batch.inputs = self._backend.load(batch.batch)

    def exchange(self, batch: BatchSlice) -> None:
        """Trade rows with the other devices."""
        if self._exchange is not None:
            assert batch.batch is not None
            assert batch.inputs is not None
            with measured(batch, "exchange"):
                sampled = self._backend.on_host(batch.batch)
                batch.inputs = self._exchange.trade(sampled, batch.inputs)

    def end(self) -> None:
        """Bring nothing more to the device: what is still on its way is not trained."""
        self._ended = True

    def transfer(self, batch: BatchSlice) -> None:
        """Bring topology and features to the device.

        Raises:
            DeviceMemoryError: it does not fit beside those in flight; the slice is as before.
        """
        if self._ended or batch.batch is None or batch.inputs is None:
            return
        if self._backend.device.on_host:
            # Handed over, not moved: no stage of its own.
            batch.device_batch = self._backend.transfer(batch.batch, batch.inputs)
            return
        seconds, num_spans = batch.stages.transfer, len(batch.spans)
        try:
            with measured(batch, "transfer"):
                batch.device_batch = self._backend.transfer(batch.batch, batch.inputs)
        except DeviceMemoryError:
            # Nothing was transferred; resource management looks at what a transfer takes.
            batch.stages.transfer = seconds
            del batch.spans[num_spans:]
            raise


@contextmanager
def measured(batch: BatchSlice, stage: str) -> Iterator[None]:
    """Add the time of the ``with`` block to ``stage`` of the slice."""
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
    """Whether the host prepares mini-batches ahead for a device of ``plan``."""
    return any(each.prefetch not in ("none", BY_DEVICE) for each in plan.shares)


def _nothing(batch: BatchSlice) -> None:
    """Nothing to do: the source is drawn in the thread of its stage."""


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
    """Arrange the stages before propagation in groups, each of which has a thread.

    A mini-batch that does not fit into the device's memory waits in its turn until those before it
    are trained.

    Args:
        stages: the stages.
        source: slices in the order of steps.
        prefetch: one of ``PREFETCH``, or ``BY_DEVICE`` for no stage at all. ``two_stage`` loads and
            transfers in separate groups, so that while a batch propagates the next is on the
            link and the one after it is being loaded (figure 7); without a link there is nothing to
            transfer, and no group for it.
        has_link: whether anything is transferred.
        limit: batches that may be on their way.
        draws_ahead: whether ``source`` draws mini-batches, for which it has a thread of a device
            that overlaps its stages by itself.
        shares_sampling: whether the host may sample for a device that samples by itself. With
            ``two_stage`` it does so in a separate group, while the device samples another slice.
    """
    ahead: list[Callable[[BatchSlice], None]] = [
        stages.sample,
        stages.load,
        stages.exchange,
        stages.transfer,
    ]
    if prefetch == BY_DEVICE:
        return Pipeline(source, [[_nothing]] if draws_ahead else [], limit=limit)
    if prefetch == "none":
        return Pipeline(source, [], limit=limit, inline=ahead)
    if prefetch == "one_stage":
        return Pipeline(source, [ahead], limit=limit, no_room=DeviceMemoryError)
    groups: list[StageGroup[BatchSlice]] = [ahead[:1], ahead[1:3], ahead[3:]]
    if not has_link:
        groups = [ahead[:1], ahead[1:]]
    if shares_sampling:
        groups = [[stages.sample_on_host], *groups]
    return Pipeline(source, groups, limit=limit, no_room=DeviceMemoryError)
