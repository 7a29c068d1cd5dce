"""A run of a processor and an emulated accelerator, made up: three epochs of thirty steps."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from gnnscale.core.stages import SPAN, STAGES, Access, StageTimes, Traffic
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Fpga, Threads
from gnnscale.plan.perf.equations import PlanPredictions, Prediction
from gnnscale.report.run import write_outcome
from gnnscale.report.terminal import RunReport
from gnnscale.runtime.telemetry.records import (
    DeviceEpoch,
    DeviceStep,
    EpochRecord,
    RunLayout,
    StepRecord,
)
from gnnscale.runtime.telemetry.records import TrainResult as Result

BATCH = 1024
#: What an epoch of an emulated device counts.
LATE = {"late_s": 0.001, "late_stages": 2.0, "late_steps": 1.0}
#: Seconds of a seed in each stage, by rank; synchronisation takes the same for any slice.
PER_SEED = (
    {"sample": 4e-6, "load": 5e-6, "propagate": 30e-6},
    {"sample": 4e-6, "load": 6e-6, "transfer": 9e-6, "propagate": 10e-6},
)
SYNC_S = 3e-4


def hybrid_plan(num_seeds: int = 800) -> DevicePlan:
    accelerator = Emulated(
        name="emulated:1",
        macs_per_s=1e12,
        memory_bandwidth=1e11,
        memory_bytes=8 << 30,
        link_bandwidth=1e10,
    )
    return DevicePlan(
        shares=(
            DeviceShare(
                device=Cpu(name="cpu:0"),
                num_seeds=num_seeds,
                threads=Threads(sample=1, load=1, propagate=2),
                prefetch="one_stage",
            ),
            DeviceShare(
                device=accelerator,
                num_seeds=BATCH - num_seeds,
                threads=Threads(sample=1, load=1, propagate=0),
                prefetch="two_stage",
            ),
        )
    )


def cpu_plan() -> DevicePlan:
    threads = Threads(sample=2, load=2, propagate=2)
    share = DeviceShare(device=Cpu(name="cpu:0"), num_seeds=BATCH, threads=threads, prefetch="none")
    return DevicePlan(shares=(share,))


@dataclass(frozen=True, kw_only=True)
class MadeUpRun:
    """Everything that an observer is told, in order."""

    started: Result
    steps: tuple[StepRecord, ...]
    epochs: tuple[EpochRecord, ...]
    spans: NDArray[np.void]

    @property
    def result(self) -> Result:
        return replace(self.started, history=self.epochs, test_metrics={"accuracy": 0.7123})

    def predicting(self, predicted: PlanPredictions | None) -> Result:
        """Return the result with another prediction."""
        return replace(self.result, layout=replace(self.started.layout, predicted=predicted))

    def tell(self, observer: RunReport) -> None:
        observer.started(self.started)
        for epoch in self.epochs:
            mine = [step for step in self.steps if step.epoch == epoch.epoch]
            for step in mine:
                observer.stepped(step)
            numbers = [step.global_step for step in mine]
            observer.traced(self.spans[np.isin(self.spans["step"], numbers)])
            observer.trained()
            observer.finished_epoch(epoch)
        observer.close()


def make_up(
    *,
    num_epochs: int = 3,
    steps_per_epoch: int = 30,
    rank_count: int = 2,
    cached: bool = False,
    exchange: bool = False,
) -> MadeUpRun:
    """Make up a run.

    Args:
        num_epochs: how many epochs.
        steps_per_epoch: how many steps each.
        rank_count: 2 for the processor and the accelerator, 1 for the processor alone.
        cached: whether the accelerator has a cache, which answers three rows of four.
        exchange: whether devices trade rows.
    """
    random = np.random.default_rng(3)
    plan = hybrid_plan() if rank_count == 2 else cpu_plan()
    records, spans, epochs = [], [], []
    clock = 0.0
    split = plan.split
    for epoch in range(1, num_epochs + 1):
        begin, sums = clock, [StageTimes() for _ in plan.shares]
        moved = [Traffic()] * rank_count
        for step in range(1, steps_per_epoch + 1):
            number = (epoch - 1) * steps_per_epoch + step - 1
            last = step == steps_per_epoch
            sizes = [size // 3 if last else size for size in split]
            devices = tuple(
                DeviceStep(
                    num_seeds=sizes[rank],
                    threads=share.threads,
                    stages=_stages(PER_SEED[rank], sizes[rank], random, exchange=exchange),
                    traffic=_traffic(share, sizes[rank], cached=cached),
                )
                for rank, share in enumerate(plan.shares)
            )
            decision, split_after = (None, split) if rank_count == 1 else _move(number, split)
            duration = max(_pipeline_seconds(device) for device in devices)
            for rank, device in enumerate(devices):
                spans += _spans(rank, number, clock, device)
                sums[rank].add(device.stages)
                moved[rank] += device.traffic
            clock += duration
            records.append(
                StepRecord(
                    epoch=epoch,
                    step=step,
                    num_steps=steps_per_epoch,
                    mean_loss=2.0 / (1 + number / 20),
                    num_edges=step * 200_000,
                    seconds=clock - begin,
                    global_step=number,
                    loss=2.0 / (1 + number / 20) + float(random.normal(0, 0.05)),
                    devices=devices,
                    decision=decision,
                )
            )
            split = split_after
        epochs.append(_epoch(epoch, clock - begin, sums, moved, plan, split))
        clock += 0.08
    started = Result(
        dataset="planted_partition",
        model="Sage",
        seed=0,
        layout=RunLayout(plan=plan, predicted=_prediction(plan)),
        measures=("accuracy",),
        ceiling=0.97,
        history=(),
    )
    return MadeUpRun(
        started=started,
        steps=tuple(records),
        epochs=tuple(epochs),
        spans=np.array(spans, dtype=SPAN),
    )


def simulated(run: MadeUpRun) -> MadeUpRun:
    """Put an FPGA in C simulation in the accelerator's place, of 30,000 cycles in each epoch."""
    cpu, accelerator = run.started.plan.shares
    plan = DevicePlan(shares=(cpu, replace(accelerator, device=Fpga(name="fpga:1"))))
    counters = {
        "csim_cycles": 30_000.0,
        "csim_simulating_s": 2.0,
        "csim_aggregate_cycles": 24_000.0,
        "csim_update_cycles": 6_000.0,
        "csim_memory_cycles": 12_000.0,
        "csim_feature_bytes": 30.0 * (3 << 20),
        "csim_edge_bytes": 30.0 * (1 << 20),
        "csim_routing_conflicts": 90.0,
    }
    named = {"name": "fpga:1", "kind": "fpga", "figures": "csim", "counters": counters}
    epochs = tuple(
        replace(epoch, devices=(epoch.devices[0], replace(epoch.devices[1], **named)))
        for epoch in run.epochs
    )
    layout = replace(run.started.layout, plan=plan)
    num_steps = len(run.steps) // len(epochs)
    started = replace(run.started, layout=layout, steps_per_epoch=num_steps)
    return replace(run, started=started, epochs=epochs)


def _stages(
    per_seed: dict[str, float], num_seeds: int, random: np.random.Generator, *, exchange: bool
) -> StageTimes:
    if exchange:
        per_seed = {**per_seed, "exchange": 2e-6}
    noise = dict(zip(STAGES, random.normal(1, 0.05, size=len(STAGES)).tolist(), strict=True))
    times = {stage: rate * num_seeds * noise[stage] for stage, rate in per_seed.items()}
    return StageTimes(**times, sync=SYNC_S * noise["sync"])


def _traffic(share: DeviceShare, num_seeds: int, *, cached: bool) -> Traffic:
    """Four rows of 100 bytes and a list of 10 for each seed."""
    if not isinstance(share.device, Emulated):
        return Traffic()
    rows = Access(hits=3 * num_seeds, misses=num_seeds) if cached else Access()
    row_bytes = (100 if cached else 400) * num_seeds
    return Traffic(rows=rows).with_link(
        row_bytes=row_bytes, list_bytes=10 * num_seeds, request_bytes=10
    )


def _move(number: int, split: tuple[int, ...]) -> tuple[str | None, tuple[int, ...]]:
    moves = {8: 300, 16: 150, 24: 60}
    if number not in moves:
        return None, split
    seeds = moves[number]
    text = (
        f"T_TC {split[0] * 0.03:.0f} ms is the bottleneck: {seeds} seeds from cpu:0 to emulated:1"
    )
    return text, (split[0] - seeds, split[1] + seeds)


def _pipeline_seconds(device: DeviceStep) -> float:
    stages = device.stages
    return max(stages.sample + stages.load, stages.transfer, stages.propagate) + stages.sync


def _spans(
    rank: int, number: int, clock: float, device: DeviceStep
) -> Iterator[tuple[int, int, int, float, float]]:
    """Sampled and loaded while the steps before it train."""
    times = asdict(device.stages)
    start = max(0.0, clock - times["sample"] - times["load"] - times["transfer"])
    for stage, name in enumerate(STAGES):
        if name == "propagate":
            start = clock
        if times[name]:
            yield rank, stage, number, start, start + times[name]
        start += times[name]


def _epoch(
    epoch: int,
    seconds: float,
    sums: list[StageTimes],
    moved: list[Traffic],
    plan: DevicePlan,
    split: tuple[int, ...],
) -> EpochRecord:
    devices = []
    for rank, (share, times) in enumerate(zip(plan.shares, sums, strict=True)):
        emulated = isinstance(share.device, Emulated)
        stages: dict[str, Any] = asdict(times)
        absent = {"exchange": not times.exchange, "transfer": not emulated}
        stages |= {stage: None for stage, is_absent in absent.items() if is_absent}
        devices.append(
            DeviceEpoch(
                name=str(share.device.name),
                kind=share.device.kind,
                figures=share.device.figures,
                batch_share=split[rank] / BATCH,
                threads=asdict(share.threads),
                stage_times_s=stages,
                host_to_device_bytes=moved[rank].link_bytes if emulated else None,
                peak_rss_bytes=(900 + 40 * epoch + 100 * rank) << 20,
                pss_bytes=(500 + 20 * epoch + 50 * rank) << 20,
                traffic=moved[rank],
                counters=LATE if emulated else {},
            )
        )
    return EpochRecord(
        epoch=epoch,
        train_loss=2.0 / (1 + epoch),
        valid_metric=0.5 + 0.07 * epoch,
        lr=0.01,
        epoch_time_s=seconds,
        eval_time_s=0.08,
        num_edges=6_000_000,
        num_vertices=1_500_000,
        stage_times_s=devices[0].stage_times_s,
        peak_rss_bytes=max(device.peak_rss_bytes for device in devices),
        devices=tuple(devices),
    )


def _prediction(plan: DevicePlan) -> PlanPredictions:
    cpu = StageTimes(sample=0.003, load=0.0042, propagate=0.0265, sync=0.0003)
    accelerator = StageTimes(
        sample=0.001, load=0.0013, transfer=0.0021, propagate=0.0022, sync=0.0003
    )
    devices = (cpu, accelerator)[: len(plan.shares)]
    by_rates = Prediction(devices=devices, step_s=0.0268, num_edges=200_000, source="this_machine")
    return PlanPredictions(by_rates=by_rates, window_steps=2)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., MadeUpRun]:
    return make_up


@pytest.fixture(scope="session")
def hybrid_run() -> MadeUpRun:
    return make_up()


@pytest.fixture(scope="session")
def cached_run() -> MadeUpRun:
    return make_up(cached=True)


@pytest.fixture(scope="session")
def exchange_run() -> MadeUpRun:
    return make_up(exchange=True)


@pytest.fixture(scope="session")
def simulated_run() -> MadeUpRun:
    return simulated(make_up())


@pytest.fixture(scope="session")
def cpu_run() -> MadeUpRun:
    return make_up(rank_count=1)


@pytest.fixture(scope="session")
def write_run() -> Callable[..., tuple[str, dict[str, Any]]]:
    """Writes a run's files into a directory, and returns its page and its summary."""

    def write(directory: Path, run: MadeUpRun, **options: Any) -> tuple[str, dict[str, Any]]:
        console = Console(file=io.StringIO())
        report = RunReport(directory, epochs=3, options=options or {"seed": 0}, console=console)
        run.tell(report)
        summary = write_outcome(report, run.result, status="completed")
        return (directory / "report.html").read_text(), summary

    return write
