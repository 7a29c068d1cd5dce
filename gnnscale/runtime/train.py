"""The training loop of one worker: sample, load, transfer, propagate, synchronise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.state import Run
from gnnscale.runtime.sync.group import ALONE, Group
from gnnscale.runtime.telemetry.counters import EpochCounters
from gnnscale.runtime.telemetry.records import Observer, TrainResult

__all__ = ["train"]


def train(
    config: TrainConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    group: Group = ALONE,
) -> TrainResult:
    """Train a model, keep its best weights, and test those: one worker's part of it.

    The mini-batches do not depend on the devices: any number of workers learns the same, to the
    rounding of float32. With the same plan and the same number of threads the weights are the same,
    bit for bit, whether the run was stopped and resumed or not.

    Args:
        config: the run's options.
        directory: run directory; checkpoints go below it.
        observer: is told about every step and epoch, in the process that leads the group.
        options: ``config`` as plain values, by which a checkpoint recognises its run.
        group: the workers of the run, one for each device of the plan.

    Raises:
        ConfigError: an option that does not fit the graph, a checkpoint of another run, or a loss
            that is no longer finite.
        GraphError: the graph store is not usable.
        PeerLostError: another worker is gone.
    """
    with Run.open(config, directory, options, group, observer) as run:
        while not run.finished:
            run.begin_epoch()
            traffic = EpochCounters()
            for _ in range(run.steps_per_epoch):
                work = next(run.pipeline)  # sampled, loaded and transferred, perhaps ahead of time
                loss = run.stages.propagate(work)
                step = run.synchronize(work, loss)
                run.update(work)
                run.account(traffic, work, step)
            traffic.seconds = traffic.elapsed()
            run.end_epoch(traffic)
        return replace(run.result(), test_metric=run.test())
