"""Checkpoints of a training run: saving inside and after epochs, and resuming."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.reader import SavedRun, WorkerPart, not_of_this_run
from gnnscale.run.checkpoint.resume import epochs_before
from gnnscale.run.history import History
from gnnscale.run.records import EpochRecord, EpochSums, best_epoch, best_number
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.worker.train_state import TrainState

log = logging.getLogger(__name__)

#: Seconds that the first epoch waits for its checkpoint before the epoch is recorded.
_FIRST_WAIT_S = 1.0


def resume(state: TrainState) -> SavedRun | None:
    """Restore the last checkpoint, and return it; None: there is none. Every worker calls this.

    ConfigError if the checkpoint is damaged, or of another run.
    """
    learning, progress = state.learning, state.progress
    optimizer = learning.full_optimizer()
    saved = state.checkpoint.resume(
        state.group, learning.model, optimizer, steps_per_epoch=progress.steps_per_epoch
    )
    if saved is None:
        return None
    learning.restore(optimizer)
    progress.best_weights, progress.steps_done = saved.learnt.best_model, saved.step
    if saved.sums is not None:
        _resume_inside(state, saved, saved.sums)
    if state.group.is_rank0:
        records, progress.unvalidated = epochs_before(state.checkpoint.directory, saved)
        progress.history = History(records)
        best = best_epoch(records, state.metric)
        if saved.sums is None and best == saved.epoch:
            progress.best_weights = saved.learnt.model
        if best is not None and state.checkpoint.runtime.checkpoint:
            state.checkpoint.restore_best(best, progress.best_weights)
    metrics = [record.valid_metric for record in progress.history]
    progress.metrics = state.group.broadcast_object(metrics)
    return saved


def _resume_inside(state: TrainState, saved: SavedRun, sums: EpochSums) -> None:
    """Restore this worker's buffers and counts of an interrupted epoch, with its totals ``sums``.

    If the run has another ``device_plan``, only the totals over all devices are restored.
    """
    options = state.checkpoint.run.options
    if saved.config.get("device_plan") != options.get("device_plan"):
        state.progress.resumed = replace(sums, devices=())
        return
    try:
        if {len(saved.workers), len(sums.devices)} != {state.group.size}:
            raise ValueError(f"expected {state.group.size} workers, got {len(saved.workers)}")
        part = saved.workers[state.group.rank]
        part.restore_buffers(state.learning.trained)
    except ValueError as error:
        raise not_of_this_run(state.checkpoint.directory / LAST, str(error)) from None
    state.step.rows.update(part.rows)
    state.progress.resumed = replace(sums, counters=part.counters)


def restore_management(state: TrainState, saved: SavedRun) -> RebalancerState:
    """Return the saved state of resource management, or the initial state if none is saved.

    ConfigError if the saved state does not fit the run.
    """
    values = saved.management_for(state.checkpoint.run.options)
    if values is None:
        if state.group.is_rank0 and saved.plan_for(state.checkpoint.run.options) is not None:
            log.info("resume: the checkpoint has no resource management, which begins anew")
        return RebalancerState()
    try:
        return RebalancerState.from_values(state.layout.plan, values, step=saved.step)
    except ValueError as error:
        raise not_of_this_run(state.checkpoint.directory / LAST, str(error)) from None


def save_inside_epoch(state: TrainState, sums: EpochSums) -> None:
    """Gather all workers' state, which rank 0 starts to write; every worker calls this.

    ``sums`` are the totals of the epoch so far.
    """
    state.step.copy_state()
    state.learning.join()
    part = WorkerPart(
        buffers=dict(state.learning.trained.named_buffers()),
        rows=dict(state.step.rows),
        counters=sums.counters,
    )
    workers = state.group.gather(part.packed())
    if state.group.is_rank0:
        _save(state, None, sums, workers)


def save_after_epoch(state: TrainState, trained: EpochRecord, *, last: bool) -> None:
    """Start to write the checkpoint after an epoch if it is due; called on rank 0 alone.

    ``trained`` is the record of the epoch, not validated yet. If the epoch is the ``last``, the
    checkpoint is always due, and this waits until it is written.
    """
    state.checkpoint.check()
    if last:
        _save_and_wait(state, trained)
    elif state.checkpoint.is_due or state.checkpoint.saved_step is None:
        _save(state, trained)


def keep_best(state: TrainState, trained: EpochRecord) -> None:
    """Keep the last epoch's weights if they are the best so far, and save the best weights.

    They are saved if there is a checkpoint of this epoch. Called on rank 0, after validation;
    ``trained`` is the epoch's record before. If the run is finished, a missing checkpoint is
    written, and this waits for all files.
    """
    progress = state.progress
    best = best_number(progress.metrics, state.metric)
    assert best is not None
    if best == progress.epoch:
        weights = state.learning.model.state_dict()
        progress.best_weights = {name: value.clone() for name, value in weights.items()}
    if not state.checkpoint.runtime.checkpoint:
        return
    if state.finished and state.checkpoint.saved_step != progress.steps_done:
        _save_and_wait(state, trained, validated=True)
    if state.checkpoint.saved_step == progress.steps_done:
        state.checkpoint.save_best(best, progress.best_weights)
    if state.finished:
        state.checkpoint.wait()
    elif progress.epoch == 1:
        # A run with a recorded epoch but no checkpoint could not be resumed.
        state.checkpoint.wait(_FIRST_WAIT_S)


def _save_and_wait(state: TrainState, trained: EpochRecord, *, validated: bool = False) -> None:
    state.checkpoint.wait()
    _save(state, trained, validated=validated)
    state.checkpoint.wait()


def _save(
    state: TrainState,
    trained: EpochRecord | None,
    sums: EpochSums | None = None,
    workers: Sequence[bytes] = (),
    *,
    validated: bool = False,
) -> None:
    """Start to write a checkpoint, if enabled: of epoch ``trained``, or (None) inside an epoch.

    Inside, it has the epoch's totals ``sums`` and the state of ``workers``. ``validated``: the
    history has the epoch already, which the checkpoint leaves out of its history.
    """
    if state.checkpoint.runtime.checkpoint:
        progress, step = state.progress, state.progress.steps_done
        state.checkpoint.save(
            model=state.learning.model,
            optimizer=state.learning.optimizer_state,
            step=step,
            history=progress.history.first(len(progress.history) - validated),
            trained=trained,
            best_weights=progress.best_weights,
            plan=state.schedule.slices.plan_of(step),
            management=state.schedule.management(step),
            sums=sums,
            workers=workers,
            best=best_number(progress.metrics, state.metric) if sums is not None else None,
        )
