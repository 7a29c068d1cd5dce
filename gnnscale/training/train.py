"""Training loop of one worker: sample, load, transfer, propagate, synchronize."""

import math
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import cast

from gnnscale.backend import DeviceCacheBackend
from gnnscale.core import ConfigError
from gnnscale.distributed import SINGLE_PROCESS, STATUS, TRAINS, Group, all_gather_object
from gnnscale.inference.evaluate import Validator
from gnnscale.run.records import Observer, RunObserver, TrainResult
from gnnscale.training import checkpointing
from gnnscale.training.build.gpu_cache_size import MemoryLeft
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.recorder import StepRecorder
from gnnscale.training.worker.train_state import TrainState


def train(
    run: AbstractContextManager[TrainState], observer: Observer, group: Group = SINGLE_PROCESS
) -> TrainResult:
    """Train one worker's part of a model, keep its best weights, and test the best weights.

    With the default seed order and neighbor sampling, mini-batches do not depend on the devices:
    runs with any number of workers learn the same weights, up to float32 rounding. With an equal
    plan and number of threads the weights are equal bit for bit, also if the run is stopped and
    resumed.

    Args:
        run: opens the run, see ``setup.open_run``.
        observer: receives every step and epoch, on rank 0.
        group: the workers of the run, one per device of the plan.

    Raises:
        ConfigError: an option does not fit the graph, the checkpoint is of another run, or the loss
            is not finite.
        GraphError: the graph store is not usable.
        PeerLostError: another worker has ended.
        ProcessorsDropped: the run continues without its CPU workers.
    """
    STATUS.begin("opening the run")
    with run as state:
        recorder = StepRecorder(
            group,
            steps_per_epoch=state.progress.steps_per_epoch,
            start=time.perf_counter(),
            meter=state.device.meter,
        )
        validator = _start(state, observer)
        while not state.finished:
            recorder.begin_epoch(state.progress.resumed)
            state.progress.resumed = None
            STATUS.begin(TRAINS)
            for batch in state.begin_epoch():  # sampled, loaded and transferred ahead of time
                state.step.propagate(batch)
                checkpoint = state.wants_checkpoint(batch.step)
                finished = state.step.synchronize(batch, checkpoint=checkpoint)
                state.step.update_weights(batch)
                # this step, or earlier steps that a device reports late
                for done, totals in finished:
                    _finish_step(state, recorder, observer, done, totals)
            _end_epoch(state, recorder, validator, observer)
        return _test(state, validator)


def _start(state: TrainState, observer: Observer) -> Validator:
    """Call ``observer.started`` on rank 0, and return the validator.

    If a resumed run's last epoch is not validated, it is validated here.
    """
    validator = state.open_validator()
    may_stop = isinstance(observer, RunObserver) and observer.may_stop
    state.may_stop = state.group.broadcast_object(may_stop)
    if state.group.is_rank0:
        validator.prepare()
        observer.started(state.result())
    if state.awaits_validation:
        _validate(state, validator, observer)
    return validator


#: Steps after which memory is at its peak: each of a device's two slots queues a step, records it
#: as a graph, and repeats it.
_MEMORY_STEPS = 8


def profile_memory(run: AbstractContextManager[TrainState], group: Group) -> MemoryLeft:
    """Train up to 8 steps of a run without caches; return the memory that devices left unused."""
    with run as state:
        for batch in islice(state.begin_epoch(), _MEMORY_STEPS):
            state.step.propagate(batch)
            for finished in state.step.synchronize(batch):
                state.rebalance(*finished)  # later steps wait for the plan
            state.step.update_weights(batch)
        state.step.copy_state()  # waits for all steps
        backend, unused = state.device.backend, None
        if backend.device.holds_rows and backend.device.holds_cache:
            unused = cast(DeviceCacheBackend, backend).unused_bytes()
        return MemoryLeft(unused_bytes=tuple(all_gather_object(unused, group)))


def _finish_step(
    state: TrainState,
    recorder: StepRecorder,
    observer: Observer,
    batch: BatchSlice,
    totals: StepTotals,
) -> None:
    """Rebalance resources after a step, pass its record on, and save a checkpoint if due."""
    _check_loss(state, totals)
    decision = state.rebalance(batch, totals)
    record = recorder.add(batch, totals, decision)
    STATUS.steps += 1
    if state.group.is_rank0:
        with STATUS.at("reporting"):
            observer.stepped(record)
    if totals.checkpoint:
        checkpointing.save_inside_epoch(state, recorder.sums())


def _check_loss(state: TrainState, totals: StepTotals) -> None:
    if not math.isfinite(totals.loss):
        raise ConfigError(
            f"optimizer.lr={state.learning.optimizer_options.lr}: expected a finite loss, got "
            f"{totals.loss} in epoch {state.progress.epoch + 1}, step {state.progress.steps_done}; "
            "try a lower rate or runtime.clip_norm"
        )


def _end_epoch(
    state: TrainState, recorder: StepRecorder, validator: Validator, observer: Observer
) -> None:
    """Combine statistics, gather the model on the host, then record, save and validate the epoch.

    GraphError: a file of the graph became shorter.
    """
    STATUS.begin("between two epochs")
    state.data.graph.check_files()
    state.step.combine_statistics()
    state.learning.join()
    last = state.progress.epoch + 1 >= state.epochs
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
    """Plan caches again if needed, then record, save and validate the epoch.

    No worker begins the next epoch before rank 0 is done.
    """
    progress, replanner = state.progress, state.device.replanner
    if replanner is not None:
        replanner.check(progress.epoch, recorder.traffic, state.schedule.slices.plan)
    if state.group.is_rank0:
        observer.traced(recorder.spans)
        observer.trained()
        record = recorder.epoch_record(epoch=progress.epoch + 1, lr=state.learning.last_rate)
        progress.unvalidated = record
        # Saved first: if validation fails, the epoch is not trained again.
        checkpointing.save_after_epoch(state, record, last=last)
    _validate(state, validator, observer)


def _validate(state: TrainState, validator: Validator, observer: Observer) -> None:
    """Validate if it is due, on rank 0, add the epoch to the history, and keep the best weights.

    The other workers receive the metric, and whether an observer ends training.
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
        checkpointing.keep_best(state, trained)
        observer.finished_epoch(record)
        stopped = isinstance(observer, RunObserver) and observer.stop_requested
    # Other workers wait here, so that the next epoch's first sync time is not inflated.
    metric, state.stopped = state.group.broadcast_object([metric, stopped])
    if trained is not None and stopped:
        checkpointing.keep_best(state, trained)  # writes the last checkpoint and waits for it
    if not state.group.is_rank0:
        progress.metrics.append(metric)


def _test(state: TrainState, validator: Validator) -> TrainResult:
    """Return the result; rank 0 first loads the best weights into the model, and tests them."""
    STATUS.begin("testing")
    with state.device.rank0_reads():
        if not state.group.is_rank0:
            return state.result()
        state.learning.model.load_state_dict(state.progress.best_weights)
        outcome = validator.test()
        if outcome.thresholds is not None:
            state.checkpoint.save_thresholds(outcome.thresholds)
        return state.result(outcome)
