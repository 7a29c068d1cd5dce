"""The training loop of one worker: sample, load, transfer, propagate, synchronise."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from gnnscale.backend import DeviceCacheBackend
from gnnscale.core import ConfigError
from gnnscale.distributed.heartbeat import STATUS, TRAINS
from gnnscale.distributed.process_group import ALONE, Group, trade_values
from gnnscale.inference.evaluate import Validator
from gnnscale.run import config as settings
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.records import Observer, RunObserver, TrainResult
from gnnscale.training import checkpointing as saving
from gnnscale.training import setup as opening
from gnnscale.training.build.gpu_cache_size import MemoryLeft
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.recorder import StepRecorder
from gnnscale.training.worker.train_state import TrainState


def train(
    config: settings.RunConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    group: Group = ALONE,
    artefacts: Sequence[RunArtifact] = (),
    may_leave_out: bool = False,
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
        may_leave_out: whether the launching process continues without processors that shorten no
            step.

    Raises:
        ConfigError: an option that does not fit the graph, a checkpoint of another run, or a loss
            that is no longer finite.
        GraphError: the graph store is not usable.
        PeerLostError: another worker is gone.
        ProcessorsLeftOut: the run is to continue without its processors.
    """
    STATUS.begin("opening the run")
    with opening.open_run(
        config, directory, options, group, artefacts, may_leave_out=may_leave_out
    ) as state:
        recorder = StepRecorder(
            group,
            steps_per_epoch=state.progress.steps_per_epoch,
            start=time.perf_counter(),
            meter=state.device.meter,
        )
        validator = Validator(
            config,
            state.data.task,
            state.learning.model,
            state.device.store,
            device=state.device.inferring,
        )
        asks = isinstance(observer, RunObserver) and observer.may_stop
        state.may_stop = group.broadcast_json(asks)
        if group.is_rank0:
            validator.prepare()
            observer.started(state.result())
        if state.awaits_validation:
            _validate(state, validator, observer)
        while not state.finished:
            recorder.begin_epoch(state.progress.resumed)
            state.progress.resumed = None
            STATUS.begin(TRAINS)
            for batch in state.begin_epoch():  # sampled, loaded and transferred ahead of time
                state.step.propagate(batch)
                wanted = state.wants_checkpoint(batch.step)
                finished = state.step.synchronize(batch, checkpoint=wanted)
                state.step.update_weights(batch)
                for each, totals in finished:  # this step, or those of which a device reports late
                    _finish_step(state, recorder, observer, each, totals)
            _end_epoch(state, recorder, validator, observer)
        return _test(state, validator)


#: Steps that show how much memory they take: queued, recorded, and repeated, in each of two slots.
_MEMORY_STEPS = 8


def rehearse_memory(
    config: settings.RunConfig,
    directory: Path,
    *,
    options: dict[str, Any],
    group: Group = ALONE,
    artefacts: Sequence[RunArtifact] = (),
) -> MemoryLeft:
    """Do some steps without a cache, and return what they leave of the devices' memory.

    Args:
        directory: an empty one, in which nothing is kept.
    """
    with opening.open_run(config, directory, options, group, artefacts) as state:
        for batch in islice(state.begin_epoch(), _MEMORY_STEPS):
            state.step.propagate(batch)
            for finished in state.step.synchronize(batch):
                state.rebalance(*finished)  # later steps wait for its plan
            state.step.update_weights(batch)
        state.step.state_out()  # all steps are done
        backend, unused = state.device.backend, None
        if backend.device.holds_rows and backend.device.holds_cache:
            unused = cast(DeviceCacheBackend, backend).unused_bytes()
        return MemoryLeft(unused_bytes=tuple(trade_values(unused, group)))


def _finish_step(
    state: TrainState,
    recorder: StepRecorder,
    observer: Observer,
    batch: BatchSlice,
    totals: StepTotals,
) -> None:
    """Manage resources after a step, report it, and write a checkpoint if rank 0 wants one."""
    _check_loss(state, totals)
    decision = state.rebalance(batch, totals)  # dynamic resource management
    record = recorder.add(batch, totals, decision)
    STATUS.steps += 1
    if state.group.is_rank0:
        with STATUS.at("reporting"):
            observer.stepped(record)
    if totals.checkpoint:
        saving.save_inside_epoch(state, recorder.sums())


def _check_loss(state: TrainState, totals: StepTotals) -> None:
    if not math.isfinite(totals.loss):
        raise ConfigError(
            f"optimizer.lr={state.config.optimizer.lr}: the loss is {totals.loss} in epoch "
            f"{state.progress.epoch + 1}, step {state.progress.steps_done}; a lower rate or "
            "runtime.clip_norm may help"
        )


def _end_epoch(
    state: TrainState, recorder: StepRecorder, validator: Validator, observer: Observer
) -> None:
    """Write the checkpoint if it is due, and then validate.

    Raises:
        GraphError: a file of the graph became shorter; nothing that was read of it is kept.
    """
    STATUS.begin("between two epochs")
    state.data.graph.check_files()
    state.step.combine_statistics()
    state.learning.join()
    last = state.progress.epoch + 1 >= state.config.epochs
    with state.schedule.paused():
        recorder.end_epoch(last=last or state.may_end_early)
        _write_and_validate(state, recorder, validator, observer, last=last)


def _write_and_validate(
    state: TrainState,
    recorder: StepRecorder,
    validator: Validator,
    observer: Observer,
    *,
    last: bool,
) -> None:
    """Do what is no training; the workers begin the next epoch together, once rank 0 is done."""
    progress, replanner = state.progress, state.device.replanner
    if replanner is not None:
        replanner.check(progress.epoch, recorder.traffic, state.schedule.slices.plan)
    if state.group.is_rank0:
        observer.traced(recorder.spans)
        observer.trained()
        record = recorder.epoch_record(epoch=progress.epoch + 1, lr=state.learning.last_rate)
        progress.unvalidated = record
        # Whatever becomes of the validation, the epoch need not be trained again.
        saving.save_after_epoch(state, record, last=last)
    _validate(state, validator, observer)


def _validate(state: TrainState, validator: Validator, observer: Observer) -> None:
    """Validate if it is due, and keep the weights if they are the best so far, on rank 0.

    The other workers learn the metric, and whether an observer ends training.
    """
    progress, metric, stopped = state.progress, None, False
    trained = progress.unvalidated
    with state.device.rank0_reads():
        due = trained is not None and validator.is_due(trained.epoch)
        metrics, seconds = validator.validate() if due else ({}, None)
    if trained is not None:
        metric = metrics.get(state.metric)
        record = replace(trained, valid_metric=metric, valid_metrics=metrics, eval_time_s=seconds)
        progress.history = progress.history.appended(record)
        progress.metrics.append(metric)
        progress.unvalidated = None
        saving.keep_best(state, trained)
        observer.finished_epoch(record)
        stopped = isinstance(observer, RunObserver) and observer.stop_requested
    # The others wait here, and not in the first synchronisation of the next epoch.
    metric, state.stopped = state.group.broadcast_json([metric, stopped])
    if trained is not None and stopped:
        saving.keep_best(state, trained)  # the last epoch's checkpoint is written and waited for
    if not state.group.is_rank0:
        progress.metrics.append(metric)


def _test(state: TrainState, validator: Validator) -> TrainResult:
    """Test the best weights, which the model keeps; on rank 0 only."""
    STATUS.begin("testing")
    with state.device.rank0_reads():
        if not state.group.is_rank0:
            return state.result()
        state.learning.model.load_state_dict(state.progress.best_weights)
        return state.result(*validator.test_by_class())
