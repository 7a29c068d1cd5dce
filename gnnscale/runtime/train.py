"""The training loop of one worker: sample, load, transfer, propagate, synchronise."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnscale.config import ConfigError
from gnnscale.runtime.checkpoint.artefacts import Artefact
from gnnscale.runtime.evaluation.validator import Validator
from gnnscale.runtime.opening import open_run
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.state import TrainState
from gnnscale.runtime.sync.group import ALONE, Group
from gnnscale.runtime.sync.synchronizer import StepTotals
from gnnscale.runtime.telemetry.recorder import StepRecorder
from gnnscale.runtime.telemetry.records import Observer, TrainResult, best_epoch

__all__ = ["train"]


def train(
    config: TrainConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    group: Group = ALONE,
    artefacts: Sequence[Artefact] = (),
) -> TrainResult:
    """Train a model, keep its best weights, and test those: one worker's part of it.

    The mini-batches do not depend on the devices: any number of workers learns the same, to the
    rounding of float32. With the same plan and the same number of threads the weights are the same,
    bit for bit, whether the run was stopped and resumed or not.

    Args:
        config: the run's options.
        directory: run directory; checkpoints go below it.
        observer: receives every step and epoch, on rank 0.
        options: ``config`` as plain values, by which a checkpoint recognises its run.
        group: the workers of the run, one for each device of the plan.
        artefacts: what the launching process has made; empty for workers that make it themselves.

    Raises:
        ConfigError: an option that does not fit the graph, a checkpoint of another run, or a loss
            that is no longer finite.
        GraphError: the graph store is not usable.
        PeerLostError: another worker is gone.
    """
    with open_run(config, directory, options, group, artefacts) as state:
        recorder = StepRecorder(
            group, steps_per_epoch=state.order.steps_per_epoch, start=time.perf_counter()
        )
        validator = Validator(config, state.graph, state.model, state.store)
        if group.is_rank0:
            observer.started(state.result())
        while not state.finished:
            recorder.begin_epoch()
            for batch in state.begin_epoch():  # sampled, loaded and transferred ahead of time
                state.step.propagate(batch)
                totals = state.step.synchronize(batch)
                _check_loss(state, totals)
                state.step.update_weights(batch)
                decision = state.rebalance(batch, totals)  # dynamic resource management
                record = recorder.add(batch, totals, decision)
                if group.is_rank0:
                    observer.stepped(record)
            _end_epoch(state, recorder, validator, observer)
        return _test(state, validator)


def _check_loss(state: TrainState, totals: StepTotals) -> None:
    if not math.isfinite(totals.loss):
        raise ConfigError(
            f"optimizer.lr={state.config.optimizer.lr}: the loss is {totals.loss} in epoch "
            f"{state.epoch + 1}, step {state.steps_done}; a lower rate or runtime.clip_norm may "
            "help"
        )


def _end_epoch(
    state: TrainState, recorder: StepRecorder, validator: Validator, observer: Observer
) -> None:
    """Validate, keep the weights if they are the best so far, and write the checkpoint."""
    state.synchronizer.average_buffers()
    state.join()
    recorder.end_epoch(last=state.epoch + 1 >= state.config.epochs or state.follows_metrics)
    if state.replanner is not None:
        state.replanner.check(state.epoch, recorder.traffic, state.schedule.plan)
    metric = None
    if state.group.is_rank0:
        observer.traced(recorder.spans)
        observer.trained()
        due = validator.is_due(state.epoch + 1)
        metric, seconds = validator.validate() if due else (None, None)
        record = recorder.epoch_record(
            epoch=state.epoch + 1,
            lr=state.learning_rate,
            valid_metric=metric,
            eval_time_s=seconds,
        )
        state.history.append(record)
    if state.follows_metrics:
        metric = state.group.broadcast_json(metric)
    state.metrics.append(metric)
    if state.group.is_rank0:
        _keep(state)
        observer.finished_epoch(record)


def _keep(state: TrainState) -> None:
    """Keep the best weights, and write the checkpoint where it is due."""
    if best_epoch(state.history) == state.epoch:
        weights = state.model.state_dict()
        state.best_weights = {name: value.clone() for name, value in weights.items()}
    if not state.config.runtime.checkpoint or not (state.finished or state.checkpoint.is_due):
        return
    state.checkpoint.save(
        model=state.model,
        optimizer=state.optimizer_state,
        step=state.steps_done,
        history=state.history,
        best_weights=state.best_weights,
        plan=state.schedule.plan_of(state.steps_done),
    )


def _test(state: TrainState, validator: Validator) -> TrainResult:
    """Test the best weights, which the model keeps; on rank 0 only."""
    if not state.group.is_rank0:
        return state.result()
    state.model.load_state_dict(state.best_weights)
    return state.result(test_metric=validator.test())
