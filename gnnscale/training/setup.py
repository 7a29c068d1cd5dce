"""How a training run is opened, part by part, and how it ends."""

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

from gnnscale.core import ConfigError, multiplies_bfloat16, shown, usable_cores
from gnnscale.core.config.typed import differences
from gnnscale.distributed.process_group import Group
from gnnscale.ops import keep_freed_memory, supported_simd_level
from gnnscale.run import config as settings
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.checkpoint.replicas import CheckpointReplicas
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.tasks.links import LinkTask
from gnnscale.training import checkpointing as saving
from gnnscale.training.build.sharded_features import open_rows
from gnnscale.training.build.topology import topology_read
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.worker import schedule, train_state
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)

#: What makes torch, and the libraries of its products, compute with AVX2. Each is read once, by
#: the first operation.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def fix_instruction_set() -> None:
    """Let torch compute with AVX2 if the processor has more: AVX-512 sums in another order.

    It must come before torch's first operation, and a line says so if it does not. Kernels of
    gnnscale give the same bits with every instruction set. A processor without AVX2 is left as it
    is, and other libraries multiply on Intel's processors than on AMD's.
    """
    if supported_simd_level() == "baseline":
        return
    os.environ.update(_AVX2)
    used = torch.backends.cpu.get_cpu_capability()
    if used != "AVX2":
        log.warning(
            f"runtime.deterministic=true: torch has begun to compute with {used} before; weights "
            "are the same on processors of this kind"
        )


@contextmanager
def repeatable_operations(wanted: bool) -> Iterator[None]:
    """Let torch repeat the bits of what it computes on so many threads, if that is ``wanted``.

    Several threads add up the gradient of an indexing otherwise, in whatever order they come. An
    operation that has no fixed order raises a RuntimeError that says so.
    """
    if not wanted:
        yield
        return
    # Of cuBLAS, which reads it once: torch refuses its products otherwise.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # Filling is for programs that read what they have not written, and takes time.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


@contextmanager
def open_run(
    config: settings.RunConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artefacts: Sequence[RunArtifact] = (),
    *,
    may_leave_out: bool = False,
) -> Iterator[train_state.TrainState]:
    """Open graph, model and device; take over a checkpoint; agree on a plan; start the stages.

    Args:
        options: ``config`` as plain values.
        artefacts: what the launching process has made; empty for workers that make it themselves.
        may_leave_out: whether the run may continue without its processors.

    Raises:
        ProcessorsLeftOut: it does.
    """
    with ExitStack() as closing:
        closing.enter_context(repeatable_operations(config.runtime.deterministic))
        state = _open(
            config, directory, options, group, artefacts, closing, may_leave_out=may_leave_out
        )
        # Whoever waits for the device is woken by its end.
        closing.callback(state.device.backend.close)
        if state.device.tier is not None:
            closing.callback(state.device.tier.store.rows.close)
        if state.device.rows is not None:
            closing.callback(state.device.rows.abandon)  # unless it is closed by then
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
    config: settings.RunConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artefacts: Sequence[RunArtifact],
    closing: ExitStack,
    *,
    may_leave_out: bool,
) -> train_state.TrainState:
    """Open everything that does not depend on a plan."""
    if group.is_rank0:
        _warn_of_threads(config)
        _report_mode(config)
    torch.set_num_threads(config.host_threads)
    keep_freed_memory()
    data = TrainInputs.open(config, group, artefacts)
    data = data.over(topology_read(config, data.graph, group))
    if not artefacts:
        _check_data(data, group)
    learning = ModelState.open(config, data, group)
    rows = open_rows(config, data.graph, group)
    if rows is not None:
        closing.callback(rows.abandon)  # unless it is closed by then
    device = WorkerDevice.open(
        config, data, learning, group, rows=rows, may_leave_out=may_leave_out
    )
    partition = None if data.order.movable or data.partition is None else data.partition.content
    candidates = data.task.candidates if isinstance(data.task, LinkTask) else None
    checkpoint = RunCheckpoint(
        directory=directory,
        config=config,
        options=with_found_devices(config, options),
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


def check_alike(group: Group, values: Mapping[str, Any], *, ignore: Sequence[str] = ()) -> None:
    """Refuse to train if a process has other ``values`` than rank 0; all of them raise alike.

    Args:
        values: plain values by name, which may be nested.
        ignore: dotted names of values that may differ.

    Raises:
        ConfigError: names the first that differs, the process and its machine.
    """
    if group.size == 1:
        return
    every = group.gather(json.dumps([socket.gethostname(), values], default=str).encode())
    problem = None
    if group.is_rank0:
        (machine, own), *others = map(json.loads, every)
        for rank, (other_machine, other) in enumerate(others, 1):
            for name, theirs, ours in differences(other, own, ignore=ignore)[:1]:
                problem = problem or (
                    f"{name}={shown(theirs)} in process {rank} on {shown(other_machine)}, and "
                    f"{shown(ours)} in process 0 on {shown(machine)}; all processes of torchrun "
                    "need the same"
                )
    problem = group.broadcast_json(problem)
    if problem is not None:
        raise ConfigError(problem)


def _check_data(data: TrainInputs, group: Group) -> None:
    """Refuse machines whose copies of the graph, or of what was made of it, differ."""
    made = {each.name: each.content for each in data.made}
    check_alike(group, {"content of the graph store": data.graph.content, "content of": made})


def with_found_devices(config: settings.RunConfig, options: dict[str, Any]) -> dict[str, Any]:
    """Return options that name the devices which a plan has found on this machine.

    A run that is resumed with more or fewer GPUs is then one with another device plan.
    """
    if not config.device_plan.finds_devices:
        return options
    names = [device.label for device in config.device_plan.parsed()]
    return options | {"device_plan": options["device_plan"] | {"devices": names}}


def _begin(state: train_state.TrainState) -> None:
    """Resume, or begin; agree on a plan, and let the stages run ahead."""
    config, data, device, group = state.config, state.data, state.device, state.group
    saved = None
    if config.resume is not None:
        saved = saving.resume(state)
    elif group.is_rank0:
        state.checkpoint.begin()
    device.backend.load_state()
    known = None if saved is None else saved.plan_under(state.checkpoint.options)
    state.layout = schedule.plan_layout(config, data, state.learning, device, group, known or None)
    plan = state.layout.plan
    kept = RebalancerState()
    if saved is not None and schedule.manages(config, plan):
        kept = saving.kept_management(state, saved)
    first_step = state.progress.steps_done
    state.schedule = schedule.BatchSchedule.open(
        config, data, device, group, plan, first_step=first_step, kept=kept
    )


def _report_mode(config: settings.RunConfig) -> None:
    if config.runtime.deterministic:
        log.info(
            "runtime.deterministic=true: the plan follows nominal rates, without calibration and "
            "rehearsal, and resource management counts work in place of seconds"
        )
    if config.runtime.compute_dtype == "bfloat16":
        if multiplies_bfloat16():
            how = "products by the processor's instructions for it"
        else:
            how = "float32 in its place, as torch has no fast products of it on this processor"
        log.info(f"runtime.compute_dtype=bfloat16: {how}")


def _warn_of_threads(config: settings.RunConfig) -> None:
    cores = usable_cores()
    workers = len(config.device_plan.parsed())
    if config.num_threads > cores:
        log.warning(
            f"num_threads={config.num_threads}: this process may use {cores} cores; "
            "more threads than cores are slower"
        )
    elif workers > config.num_threads:
        log.warning(
            f"device_plan has {workers} workers, which need a thread each, and there are "
            f"{config.num_threads} threads (num_threads) on {cores} cores; they take turns"
        )
