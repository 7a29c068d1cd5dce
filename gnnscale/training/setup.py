"""Composition root of a training process, with ``open_device``: each part gets its own options."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from gnnscale.core import ConfigError, multiplies_bfloat16, usable_cores
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group
from gnnscale.graph import Graph
from gnnscale.inference.evaluate import Validator
from gnnscale.nn.losses import label_kind
from gnnscale.ops import keep_freed_memory
from gnnscale.run import RunArtifact, check_feature_dtype, checked_order, describe_use
from gnnscale.run import artifacts as run_artifacts
from gnnscale.run.batch_config import lists_problem
from gnnscale.run.checkpoint.replicas import CheckpointReplicas
from gnnscale.run.checkpoint.resume import RunIdentity
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.config import RunConfig, check_types
from gnnscale.run.row_checks import check_undivided
from gnnscale.run.tasks.base import LabelTask, Task, check_threshold
from gnnscale.run.tasks.links import LinkTask
from gnnscale.run.tasks.rows import RowTask
from gnnscale.run.tasks.types import TypesTask
from gnnscale.training import checkpointing
from gnnscale.training.build.cache import find_uncached
from gnnscale.training.build.sharded_features import open_rows
from gnnscale.training.build.topology import open_topology
from gnnscale.training.determinism import check_equal_values, repeatable_operations
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.make_artifacts import make_graph_artifacts
from gnnscale.training.open_device import open_device, plan_options
from gnnscale.training.worker import schedule, train_state
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)
T = TypeVar("T")


@contextmanager
def open_run(
    config: RunConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group = SINGLE_PROCESS,
    artifacts: Sequence[RunArtifact] = (),
    *,
    may_drop_cpu: bool = False,
) -> Iterator[train_state.TrainState]:
    """Open graph, model and device, restore a checkpoint, agree on a plan, and start the stages.

    The block's end drains the stages, finishes the checkpoint, and closes all parts. ``options``
    are ``config`` as plain values. ``artifacts`` are empty if workers make them. ProcessorsDropped
    (only if ``may_drop_cpu``): the run continues without its CPU workers.
    """
    with ExitStack() as closing:
        closing.enter_context(repeatable_operations(config.runtime.deterministic))
        state = _open(
            config, directory, options, group, artifacts, closing, may_drop_cpu=may_drop_cpu
        )
        # Closing the backend wakes threads that wait for the device.
        closing.callback(state.device.backend.close)
        if state.device.tier is not None:
            closing.callback(state.device.tier.store.rows.close)
        if state.device.rows is not None:
            closing.callback(state.device.rows.abandon)  # no effect after close
        closing.callback(state.checkpoint.close)
        _begin(state, resumes=config.resume is not None)
        closing.callback(state.schedule.pipeline.stop)
        closing.callback(state.schedule.slices.close)
        try:
            yield state
            state.schedule.drain()
            state.checkpoint.end()
            state.schedule.leave_rows()
        finally:
            closing.close()
            state.schedule.pipeline.close()


def _open(
    config: RunConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artifacts: Sequence[RunArtifact],
    closing: ExitStack,
    *,
    may_drop_cpu: bool,
) -> train_state.TrainState:
    """Return the run's state with every part opened that does not depend on a device plan.

    ``closing`` gets the calls that close these parts.
    """
    if group.is_rank0:
        _warn_of_threads(config)
        _report_mode(config)
    torch.set_num_threads(config.host_threads)
    keep_freed_memory()
    data = open_inputs(config, group, artifacts)
    data = data.with_graph(_open_topology(config, data.graph, group))
    if not artifacts:
        # The machines' copies of the graph, or of artifacts made from it, may differ.
        contents = {artifact.name: artifact.content for artifact in data.artifacts}
        values = {"content of the graph store": data.graph.content, "content of": contents}
        check_equal_values(group, values)
    parts = (config.model, config.task, config.optimizer, config.features)
    learning = ModelState.build(*parts, data, group)
    rows = open_rows(config.features, data.graph, group)
    if rows is not None:
        closing.callback(rows.abandon)  # no effect after close
    device = open_device(config, data, learning, group, rows=rows, may_drop_cpu=may_drop_cpu)
    is_complete = config.exchange is None and device.store.columns is None
    return train_state.TrainState(
        model_name=config.model.name,
        epochs=config.epochs,
        patience=config.runtime.patience,
        options=plan_options(config),
        open_validator=lambda: Validator(
            config.evaluation_options,
            data.task,
            learning.model,
            # Only some rows, or columns of them, if devices exchange rows or divide columns.
            store=device.store if is_complete else None,
            device=device.inference_backend,
            epochs=config.epochs,
            eval_every=config.runtime.eval_every,
            num_threads=config.host_threads,
        ),
        group=group,
        data=data,
        learning=learning,
        device=device,
        checkpoint=_open_checkpoint(config, directory, options, data, group),
        progress=train_state.Progress(steps_per_epoch=data.order.steps_per_epoch),
    )


def _open_checkpoint(
    config: RunConfig, directory: Path, options: dict[str, Any], data: TrainInputs, group: Group
) -> RunCheckpoint:
    partition = None if data.order.movable or data.partition is None else data.partition.content
    candidates = data.task.candidates if isinstance(data.task, LinkTask) else None
    return RunCheckpoint(
        directory=directory,
        run=RunIdentity(
            options=with_detected_devices(config, options),
            optimizer=config.optimizer,
            device_plan=config.device_plan,
            batch_size=config.batch_size,
            graph=data.graph,
            partition=partition,
            candidates=None if candidates is None else candidates.content,
        ),
        runtime=config.runtime,
        task=config.task,
        epochs=config.epochs,
        restarts=group.restarts,
        copies=CheckpointReplicas.open(directory, group, options)
        if config.runtime.checkpoint
        else None,
    )


def open_inputs(
    config: RunConfig, group: Group, artifacts: Sequence[RunArtifact] = ()
) -> TrainInputs:
    """Open the artifacts; if there are none, one process per machine makes them before.

    ConfigError if the options do not fit the graph, GraphError if a store is not usable.
    """
    inputs = config.task_inputs
    if artifacts:
        graph = run_artifacts.open_store(artifacts)
    else:
        graph = _local_rank0_first(group, config.dataset.open)
        check_feature_dtype(inputs, config.partitioner, graph.feature_dtype)
        check_types(config, graph.name, graph.vertex_types)
        if config.needs_more_than_graph:
            artifacts = _local_rank0_first(group, partial(make_graph_artifacts, config, graph))
    line = describe_use(inputs, graph) if group.is_rank0 else None
    if line is not None:
        log.info(line)
    task = run_artifacts.open_task(inputs, artifacts, graph, seed=config.seed)
    if isinstance(task, RowTask):
        check_undivided(task.graph.name, config.partitioner, config.exchange)
    if not task.has_part("valid"):
        _refuse_without_validation(config, task)
    if group.is_rank0:
        task.log_split()
    task = task.over(run_artifacts.with_shared_arrays(task.graph, artifacts))
    partition = run_artifacts.open_partition(artifacts, task.graph)
    cache_plan = run_artifacts.open_cache_plan(artifacts, task.graph)
    plan = None if cache_plan is None else cache_plan.plan
    if isinstance(task, TypesTask):
        task.refuse_threshold(config.threshold)
    elif config.threshold is not None and isinstance(task, LabelTask):
        kind, labels = label_kind(task.labels.labels), task.labels
        check_threshold(config.threshold, kind, labels.num_classes, of=labels.name)
    uncached = find_uncached(plan, requested=config.requests_caches)
    if group.is_rank0 and uncached is not None:
        log.info(uncached.line)
    parts = None if partition is None else partition.parts
    order = checked_order(config, task.seeds, parts, None if parts is None else task.seed_vertices)
    return TrainInputs(
        task=task,
        order=order,
        partition=partition,
        cache_plan=cache_plan,
        artifacts=artifacts,
        sampling=task.sampling(config.training_sampler, order),
        uncached=uncached,
        seed=config.seed,
        num_threads=config.num_threads,
    )


def _refuse_without_validation(config: RunConfig, task: Task) -> None:
    """Raise ConfigError if an option follows validation metrics, which ``task`` has none of."""
    option = None
    if config.runtime.patience is not None:
        option = f"runtime.patience={config.runtime.patience}"
    elif config.optimizer.follows_metrics:
        option = f"optimizer.schedule={config.optimizer.schedule}"
    elif config.threshold is not None:
        option = f"threshold={config.threshold}"
    if option is not None:
        raise ConfigError(
            f"{option}: expected a validation part, which the split of {task.graph.name} lacks; "
            "dataset.split=random (split='random' in Python) draws one"
        )


def _local_rank0_first(group: Group, open_input: Callable[[], T]) -> T:
    """Return ``open_input()``; other processes of a machine call it after local rank 0 is done."""
    if group.local_rank == 0:
        result = open_input()
    group.barrier()
    return result if group.local_rank == 0 else open_input()


def _open_topology(config: RunConfig, graph: Graph, group: Group) -> Graph:
    """Return ``graph``, or a copy that reads adjacency lists from disk.

    An option asks for the copy, or the topology exceeds the memory.
    """
    devices = config.device_plan.parsed()
    problem = lists_problem(devices, requests_caches=config.requests_caches)
    return open_topology(
        graph,
        group,
        config.sampler,
        batch_size=config.batch_size,
        num_threads=config.num_threads,
        samples_any=config.task.compares_rows,
        may_choose=problem is None and not config.runtime.deterministic,
    )


def with_detected_devices(config: RunConfig, options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options`` that name the detected devices if ``device_plan`` is to find them."""
    if not config.device_plan.finds_devices:
        return options
    names = [device.label for device in config.device_plan.parsed()]
    return options | {"device_plan": options["device_plan"] | {"devices": names}}


def _begin(state: train_state.TrainState, *, resumes: bool) -> None:
    """Restore the checkpoint or begin anew, agree on a plan, and start the stages."""
    options, data, device, group = state.options, state.data, state.device, state.group
    saved = None
    if resumes:
        saved = checkpointing.resume(state)
    elif group.is_rank0:
        state.checkpoint.begin()
    device.backend.load_state()
    saved_plan = None if saved is None else saved.plan_for(state.checkpoint.run.options)
    state.layout = schedule.plan_layout(options, data, state.learning, device, saved_plan or None)
    plan = state.layout.plan
    management = RebalancerState()
    if saved is not None and schedule.manages(options, plan):
        management = checkpointing.restore_management(state, saved)
    first_step = state.progress.steps_done
    state.schedule = schedule.BatchSchedule.open(
        options, data, device, plan, first_step=first_step, management=management
    )


def _report_mode(config: RunConfig) -> None:
    if config.runtime.deterministic:
        log.info(
            "runtime.deterministic=true: the plan follows nominal rates, without calibration and "
            "profiling, and resource management counts work instead of seconds"
        )
    if config.runtime.compute_dtype == "bfloat16":
        if multiplies_bfloat16():
            implementation = "matrix products use the processor's bfloat16 instructions"
        else:
            implementation = "float32 replaces it, since torch has no fast bfloat16 products here"
        log.info(f"runtime.compute_dtype=bfloat16: {implementation}")


def _warn_of_threads(config: RunConfig) -> None:
    cores = usable_cores()
    workers = len(config.device_plan.parsed())
    if config.num_threads > cores:
        log.warning(
            f"num_threads={config.num_threads}: this process may use {cores} cores; "
            "more threads than cores are slower"
        )
    elif workers > config.num_threads:
        log.warning(
            f"num_threads={config.num_threads}: expected a thread for each of {workers} workers of "
            f"device_plan ({cores} cores); they share threads"
        )
