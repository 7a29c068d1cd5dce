"""Opening of a training run, part by part, and its closing."""

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import deterministic

from gnnscale.core import ConfigError, brief, multiplies_bfloat16, usable_cores
from gnnscale.core.config.typed import differences
from gnnscale.distributed.process_group import Group
from gnnscale.ops import keep_freed_memory, supported_simd_level
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.checkpoint.replicas import CheckpointReplicas
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.config import RunConfig
from gnnscale.run.tasks.links import LinkTask
from gnnscale.training import checkpointing
from gnnscale.training.build.sharded_features import open_rows
from gnnscale.training.build.topology import open_topology
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.worker import schedule, train_state
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)

#: Variables that make torch, oneMKL and oneDNN compute with AVX2; each library reads its variable
#: at its first operation.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def fix_instruction_set() -> None:
    """Limit torch to AVX2 on processors with AVX-512, which sums in another order.

    Call it before torch's first operation; otherwise a warning is logged. Kernels of gnnscale give
    the same bits with every instruction set. Two limits remain: a processor without AVX2 keeps its
    instruction set, and oneMKL multiplies differently on Intel and AMD processors.
    """
    if supported_simd_level() == "baseline":
        return
    os.environ.update(_AVX2)
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX2":
        log.warning(
            f"runtime.deterministic=true: torch already computes with {capability}; weights repeat "
            f"only on processors with {capability}"
        )


@contextmanager
def repeatable_operations(enabled: bool) -> Iterator[None]:
    """Make torch's operations deterministic within the ``with`` block if ``enabled``.

    Without it, threads add up the gradient of an indexing operation in any order. An operation
    without a deterministic implementation raises RuntimeError.
    """
    if not enabled:
        yield
        return
    # cuBLAS reads it once; without it torch refuses deterministic matrix products.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    previous = torch.are_deterministic_algorithms_enabled()
    previous_fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # Filling uninitialized memory costs time and helps only programs that read it.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(previous)
        deterministic.fill_uninitialized_memory = previous_fill  # type: ignore[attr-defined]


@contextmanager
def open_run(
    config: RunConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artifacts: Sequence[RunArtifact] = (),
    *,
    may_drop_cpu: bool = False,
) -> Iterator[train_state.TrainState]:
    """Open graph, model and device, restore a checkpoint, agree on a plan, and start the stages.

    Args:
        config: the run's options.
        options: ``config`` as plain values.
        artifacts: artifacts made by the launching process; empty if workers make them.
        may_drop_cpu: whether the run may continue without its CPU workers.

    Raises:
        ProcessorsDropped: the run continues without its CPU workers.
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
        _begin(state)
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
    """Open every part that does not depend on a plan."""
    if group.is_rank0:
        _warn_of_threads(config)
        _report_mode(config)
    torch.set_num_threads(config.host_threads)
    keep_freed_memory()
    data = TrainInputs.open(config, group, artifacts)
    data = data.with_graph(open_topology(config, data.graph, group))
    if not artifacts:
        _check_data(data, group)
    learning = ModelState.open(config, data, group)
    rows = open_rows(config, data.graph, group)
    if rows is not None:
        closing.callback(rows.abandon)  # no effect after close
    device = WorkerDevice.open(config, data, learning, group, rows=rows, may_drop_cpu=may_drop_cpu)
    partition = None if data.order.movable or data.partition is None else data.partition.content
    candidates = data.task.candidates if isinstance(data.task, LinkTask) else None
    checkpoint = RunCheckpoint(
        directory=directory,
        config=config,
        options=with_detected_devices(config, options),
        restarts=group.restarts,
        copies=CheckpointReplicas.open(directory, group, options)
        if config.runtime.checkpoint
        else None,
        graph=data.graph,
        partition=partition,
        candidates=None if candidates is None else candidates.content,
    )
    return train_state.TrainState(
        config=config,
        group=group,
        data=data,
        learning=learning,
        device=device,
        checkpoint=checkpoint,
        progress=train_state.Progress(steps_per_epoch=data.order.steps_per_epoch),
    )


def check_equal_values(
    group: Group, values: Mapping[str, Any], *, ignore: Sequence[str] = ()
) -> None:
    """Raise in all processes if the ``values`` of any process differ from rank 0's.

    Args:
        group: the processes to compare.
        values: plain values by name, possibly nested.
        ignore: dotted names of values that may differ.

    Raises:
        ConfigError: names the first value that differs, its process and its machine.
    """
    if group.size == 1:
        return
    messages = group.gather(json.dumps([socket.gethostname(), values], default=str).encode())
    problem = None
    if group.is_rank0:
        (host0, values0), *peers = map(json.loads, messages)
        for rank, (host, peer_values) in enumerate(peers, 1):
            for name, value, value0 in differences(peer_values, values0, ignore=ignore)[:1]:
                problem = problem or (
                    f"{name}={brief(value)} in process {rank} on {brief(host)}: expected "
                    f"{brief(value0)} as in process 0 on {brief(host0)}; start all processes of "
                    "torchrun with the same values"
                )
    problem = group.broadcast_object(problem)
    if problem is not None:
        raise ConfigError(problem)


def _check_data(data: TrainInputs, group: Group) -> None:
    """Raise if the machines' copies of the graph, or of artifacts made from it, differ."""
    contents = {artifact.name: artifact.content for artifact in data.artifacts}
    values = {"content of the graph store": data.graph.content, "content of": contents}
    check_equal_values(group, values)


def with_detected_devices(config: RunConfig, options: dict[str, Any]) -> dict[str, Any]:
    """Return options that name the devices detected on this machine.

    A run that is resumed with more or fewer GPUs thus has another device plan.
    """
    if not config.device_plan.finds_devices:
        return options
    names = [device.label for device in config.device_plan.parsed()]
    return options | {"device_plan": options["device_plan"] | {"devices": names}}


def _begin(state: train_state.TrainState) -> None:
    """Restore the checkpoint or begin anew, agree on a plan, and start the stages."""
    config, data, device, group = state.config, state.data, state.device, state.group
    saved = None
    if config.resume is not None:
        saved = checkpointing.resume(state)
    elif group.is_rank0:
        state.checkpoint.begin()
    device.backend.load_state()
    saved_plan = None if saved is None else saved.plan_for(state.checkpoint.options)
    state.layout = schedule.plan_layout(
        config, data, state.learning, device, group, saved_plan or None
    )
    plan = state.layout.plan
    management = RebalancerState()
    if saved is not None and schedule.manages(config, plan):
        management = checkpointing.restore_management(state, saved)
    first_step = state.progress.steps_done
    state.schedule = schedule.BatchSchedule.open(
        config, data, device, group, plan, first_step=first_step, management=management
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
