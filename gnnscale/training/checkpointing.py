"""When a run is saved, inside epochs and after them, and how it is resumed from that."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint import reader as saved_run
from gnnscale.run.history import History
from gnnscale.run.records import EpochRecord, EpochSums, best_epoch, best_number
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.worker.train_state import TrainState

log = logging.getLogger(__name__)

#: Seconds that the first epoch waits for its checkpoint before it is recorded.
_FIRST_S = 1.0


def resume(state: TrainState) -> saved_run.SavedRun | None:
    """Go on where the checkpoint stands; every worker calls this.

    Returns:
        The checkpoint; None if the run stopped before its first.

    Raises:
        ConfigError: the checkpoint is damaged, or not one of this run.
    """
    learning, progress = state.learning, state.progress
    optimizer = learning.whole_optimizer(state.config)
    saved = state.checkpoint.resume(
        state.group, learning.model, optimizer, steps_per_epoch=progress.steps_per_epoch
    )
    if saved is None:
        return None
    learning.take(optimizer)
    progress.best_weights, progress.steps_done = saved.learnt.best_model, saved.step
    if saved.sums is not None:
        _resume_inside(state, saved, saved.sums)
    if state.group.is_rank0:
        before, progress.unvalidated = state.checkpoint.history_of(saved)
        progress.history = History(before)
        best = best_epoch(before, state.metric)
        if saved.sums is None and best == saved.epoch:
            progress.best_weights = saved.learnt.model
        if best is not None and state.config.runtime.checkpoint:
            state.checkpoint.restore_best(best, progress.best_weights)
    metrics = [each.valid_metric for each in progress.history]
    progress.metrics = state.group.broadcast_json(metrics)
    return saved


def _resume_inside(state: TrainState, saved: saved_run.SavedRun, sums: EpochSums) -> None:
    """Take what this worker alone knew of an epoch; other devices begin with the first one's."""
    options = state.checkpoint.options
    if saved.config.get("device_plan") != options.get("device_plan"):
        state.progress.resumed = replace(sums, devices=())
        return
    try:
        if {len(saved.workers), len(sums.devices)} != {state.group.size}:
            raise ValueError(f"parts of {len(saved.workers)} workers")
        part = saved.workers[state.group.rank]
        part.restore_buffers(state.learning.trained)
    except ValueError as error:
        raise saved_run.not_of_this_run(state.checkpoint.directory / LAST, str(error)) from None
    state.step.rows.update(part.rows)
    state.progress.resumed = replace(sums, counters=part.counters)


def kept_management(state: TrainState, saved: saved_run.SavedRun) -> RebalancerState:
    """Return where resource management stood when the checkpoint was written.

    Raises:
        ConfigError: that does not fit the plan.
    """
    values = saved.management_under(state.checkpoint.options)
    if values is None:
        if state.group.is_rank0 and saved.plan_under(state.checkpoint.options) is not None:
            log.info("resume: the checkpoint has no resource management, which begins anew")
        return RebalancerState()
    try:
        return RebalancerState.from_values(state.layout.plan, values, step=saved.step)
    except ValueError as error:
        raise saved_run.not_of_this_run(state.checkpoint.directory / LAST, str(error)) from None


def save_inside_epoch(state: TrainState, sums: EpochSums) -> None:
    """Begin to write a checkpoint after the step that is done; every worker calls this.

    The stages of later steps go on meanwhile.
    """
    state.step.state_out()
    state.learning.join()
    part = saved_run.WorkerPart(
        buffers=dict(state.learning.trained.named_buffers()),
        rows=dict(state.step.rows),
        counters=sums.counters,
    )
    workers = state.group.gather(part.packed())
    if state.group.is_rank0:
        _save(state, None, sums, workers)


def save_after_epoch(state: TrainState, trained: EpochRecord, *, last: bool) -> None:
    """Begin to write the checkpoint after an epoch if it is due, on rank 0.

    Args:
        state: where the run stands; the whole model is up to date.
        trained: the epoch's record, which is yet to be validated.
        last: whether it is the last one, after which the checkpoint is always written, and
            waited for.
    """
    state.checkpoint.check()
    if last:
        _save_and_wait(state, trained)
    elif state.checkpoint.is_due or state.checkpoint.saved_step is None:
        _save(state, trained)


def keep_best(state: TrainState, trained: EpochRecord) -> None:
    """Keep the best weights, and write them along with the checkpoint of the epoch, on rank 0.

    Args:
        state: where the run stands; the epoch is validated, and the last one of ``history``.
        trained: its record from before its validation.
    """
    progress = state.progress
    best = best_number(progress.metrics, state.metric)
    assert best is not None
    if best == progress.epoch:
        weights = state.learning.model.state_dict()
        progress.best_weights = {name: value.clone() for name, value in weights.items()}
    if not state.config.runtime.checkpoint:
        return
    if state.finished and state.checkpoint.saved_step != progress.steps_done:
        _save_and_wait(state, trained, validated=True)
    if state.checkpoint.saved_step == progress.steps_done:
        state.checkpoint.save_best(best, progress.best_weights)
    if state.finished:
        state.checkpoint.wait()
    elif progress.epoch == 1:
        # Without a checkpoint, a run that has recorded an epoch counts as one that has lost it.
        state.checkpoint.wait(_FIRST_S)


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
    """Begin to write a checkpoint.

    Args:
        trained: the epoch after which it stands, None inside an epoch.
        validated: whether the last one of ``history`` is this epoch, after its validation.
    """
    if state.config.runtime.checkpoint:
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
