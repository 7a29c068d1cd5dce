"""Sampling of a worker's slices ahead of training, for prefetchers and dynamic caches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from gnnscale.cache import CachePlan
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.core import Array
from gnnscale.sampling import Sampler
from gnnscale.training.pipeline.slices import BatchSlice, Schedule
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import TrainInputs

#: Steps sampled concurrently if adjacency lists are on disk; lists that several steps need are read
#: once.
CONCURRENT_STEPS = 8


def sample_concurrently(
    slices: Iterator[BatchSlice], stages: Stages, *, count: int
) -> Iterator[BatchSlice]:
    """Yield ``slices`` with their samples, ``count`` of which are drawn concurrently."""
    waiting: deque[tuple[BatchSlice, Future[None]]] = deque()
    with ThreadPoolExecutor(count, "gnnscale-sample") as threads:
        for batch in slices:
            waiting.append((batch, threads.submit(stages.sample, batch)))
            if len(waiting) == count:
                yield _wait_for_sample(*waiting.popleft())
        while waiting:
            yield _wait_for_sample(*waiting.popleft())


def _wait_for_sample(batch: BatchSlice, sampling: Future[None]) -> BatchSlice:
    sampling.result()
    return batch


def look_ahead(
    slices: Iterator[BatchSlice],
    stages: Stages,
    *,
    window: int,
    expect: Callable[[Array | None], None],
    end: Callable[[], None] | None = None,
) -> Iterator[BatchSlice]:
    """Yield sampled ``slices``, each after the ``window`` slices that follow it are sampled.

    ``expect`` receives the input vertices of each slice, in the order of steps, or None for a slice
    without seeds; ``end`` is called after the last slice is sampled.
    """

    def sample(batch: BatchSlice) -> None:
        stages.sample(batch)
        expect(stages.input_vertices(batch))

    return _delayed(slices, sample, window, end)


def draw_ahead(
    slices: Iterator[BatchSlice], sampler: Sampler, replay: LookAheadReplay
) -> Iterator[BatchSlice]:
    """Yield ``slices`` of a sampling device, each sampled ahead at the host for its cache."""

    def sample(batch: BatchSlice) -> None:
        has_seeds = len(batch.seeds) > 0
        replay.expect(sampler.sample(batch.seeds, batch.step).input_vertices if has_seeds else None)

    return _delayed(slices, sample, replay.window)


def _delayed(
    slices: Iterator[BatchSlice],
    sample: Callable[[BatchSlice], None],
    window: int,
    end: Callable[[], None] | None = None,
) -> Iterator[BatchSlice]:
    """Yield each slice after ``sample`` of the ``window`` slices that follow it."""
    waiting: deque[BatchSlice] = deque()
    for batch in slices:
        sample(batch)
        waiting.append(batch)
        if len(waiting) > window:
            yield waiting.popleft()
    if end is not None:
        end()
    yield from waiting


def sampled_slices(
    slices: Schedule, device: WorkerDevice, data: TrainInputs
) -> Iterator[BatchSlice]:
    """Return the worker's slices, sampled ahead for lists on disk, prefetchers, dynamic caches."""
    slices_ahead = slices.slices()
    if data.graph.lists is not None:
        slices_ahead = sample_concurrently(slices_ahead, device.stages, count=CONCURRENT_STEPS)
    cache, prefetcher = device.cache, device.prefetcher
    if cache is not None and cache.replay is not None:
        return draw_ahead(slices_ahead, data.open_sampler(), cache.replay)
    if prefetcher is not None:
        return look_ahead(
            slices_ahead,
            device.stages,
            window=prefetcher.lead,
            expect=prefetcher.expect,
            end=prefetcher.end,
        )
    dynamic = None if cache is None else cache.look_ahead
    if dynamic is None:
        return slices_ahead
    return look_ahead(slices_ahead, device.stages, window=dynamic.window, expect=dynamic.expect)


def max_window(plan: CachePlan | None) -> int:
    """Return the largest look-ahead of all dynamic caches, in steps; equal in every process."""
    policies = () if plan is None else (cache.look_ahead for cache in plan.devices)
    return max((policy.window for policy in policies if policy is not None), default=0)
