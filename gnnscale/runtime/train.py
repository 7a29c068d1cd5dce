"""The training loop: sample, load, propagate, synchronise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnscale.metrics import Traffic
from gnnscale.runtime.records import Observer, TrainResult
from gnnscale.runtime.run import Run
from gnnscale.runtime.settings import TrainConfig

__all__ = ["train"]


def train(
    config: TrainConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
) -> TrainResult:
    """Train a model, keep its best weights, and test those.

    With the same options and the same number of threads the weights are the same, bit for bit,
    whether the run was stopped and resumed or not.

    Args:
        config: the run's options.
        directory: run directory; checkpoints go below it.
        observer: is told about every step and epoch.
        options: ``config`` as plain values, by which a checkpoint recognises its run.

    Raises:
        ConfigError: an option that does not fit the graph, a checkpoint of another run, or a loss
            that is no longer finite.
        GraphError: the graph store is not usable.
    """
    run = Run.open(config, directory, options)
    observer.started(run.result())
    while not run.finished:
        run.begin_epoch()
        traffic = Traffic()
        for seeds in run.batches():
            with traffic.stages.measure("sample"):
                batch = run.sampler.sample(seeds, run.step)
            with traffic.stages.measure("load"):
                inputs = run.loader.load(batch)
            with traffic.stages.measure("propagate"):
                loss = run.loss(run.model(batch, inputs), batch)
                loss.backward()  # type: ignore[no-untyped-call]
            with traffic.stages.measure("sync"):
                run.update()
            traffic.count(
                num_seeds=batch.num_seeds,
                num_edges=batch.num_edges,
                num_vertices=batch.num_vertices,
                loss=loss.item(),
            )
            observer.stepped(run.progress(traffic))
        traffic.seconds = traffic.elapsed()
        observer.trained()
        observer.finished_epoch(run.end_epoch(traffic))
    return replace(run.result(), test_metric=run.test())
