"""A run of a processor and an emulated accelerator, made up: three epochs of thirty steps."""

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
from gnnscale.planner import Cpu, DevicePlan, DeviceShare, Emulated, Fpga, Threads
from gnnscale.planner.cost_model.equations import PlanPredictions, Prediction
from gnnscale.report.run_report import write_outcome
from gnnscale.report.terminal import RunReport
from gnnscale.run.records import DeviceEpoch, DeviceStep, EpochRecord, RunLayout, StepRecord
from gnnscale.run.records import TrainResult as Result

BATCH = 1024
#: What an epoch of an emulated device counts.
LATE = {"late_s": 0.001, "late_stages": 2.0, "late_steps": 1.0}
#: Seconds of a seed in each stage, by rank; synchronisation takes the same for any slice.
PER_SEED = (
    {"sample": 4e-6, "load": 5e-6, "propagate": 30e-6},
    {"sample": 4e-6, "load": 6e-6, "transfer": 9e-6, "propagate": 10e-6},
)
SYNC_S = 3e-4


def share(device: Any, num_seeds: int, prefetch: Any, **threads: int) -> DeviceShare:
    threads = Threads(**threads)
    return DeviceShare(device=device, num_seeds=num_seeds, threads=threads, prefetch=prefetch)


def hybrid_plan() -> DevicePlan:
    rates = {"macs_per_s": 1e12, "memory_bandwidth": 1e11, "link_bandwidth": 1e10}
    accelerator = Emulated(name="emulated:1", memory_bytes=8 << 30, **rates)
    cpu = share(Cpu(name="cpu:0"), 800, "one_stage", sample=1, load=1, propagate=2)
    other = share(accelerator, BATCH - 800, "two_stage", sample=1, load=1, propagate=0)
    return DevicePlan(shares=(cpu, other))


def cpu_plan() -> DevicePlan:
    cpu = share(Cpu(name="cpu:0"), BATCH, "none", sample=2, load=2, propagate=2)
    return DevicePlan(shares=(cpu,))


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
    num_epochs: int = 3, steps_per_epoch: int = 30, rank_count: int = 2, **options: bool
) -> MadeUpRun:
    """Make up a run of the processor, and of the accelerator if ``rank_count`` is 2.

    With ``cached``, the accelerator has a cache, which answers three rows of four; with
    ``exchange``, devices trade rows.
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
                    stages=_stages(PER_SEED[rank], sizes[rank], random, **options),
                    traffic=_traffic(share, sizes[rank], **options),
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
                    global_step=number,
                    num_steps=steps_per_epoch,
                    num_edges=step * 200_000,
                    mean_loss=2.0 / (1 + number / 20),
                    loss=2.0 / (1 + number / 20) + float(random.normal(0, 0.05)),
                    seconds=clock - begin,
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
        ceiling=0.97,
        layout=RunLayout(plan=plan, predicted=_prediction(plan)),
        measures=("accuracy",),
        history=(),
    )
    found = np.array(spans, dtype=SPAN)
    return MadeUpRun(started=started, steps=tuple(records), epochs=tuple(epochs), spans=found)


def simulated(run: MadeUpRun) -> MadeUpRun:
    """Put an FPGA in C simulation in the accelerator's place, of 30,000 cycles in each epoch."""
    cpu, accelerator = run.started.plan.shares
    plan = DevicePlan(shares=(cpu, replace(accelerator, device=Fpga(name="fpga:1"))))
    counted = {
        **{"cycles": 30_000.0, "simulating_s": 2.0, "routing_conflicts": 90.0},
        **{"aggregate_cycles": 24_000.0, "update_cycles": 6_000.0, "memory_cycles": 12_000.0},
        **{"feature_bytes": 30.0 * (3 << 20), "edge_bytes": 30.0 * (1 << 20)},
    }
    counters = {f"csim_{name}": value for name, value in counted.items()}
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
    per_seed: dict[str, float], num_seeds: int, random: Any, *, exchange: bool = False, **_: bool
) -> StageTimes:
    if exchange:
        per_seed = {**per_seed, "exchange": 2e-6}
    noise = dict(zip(STAGES, random.normal(1, 0.05, size=len(STAGES)).tolist(), strict=True))
    times = {stage: rate * num_seeds * noise[stage] for stage, rate in per_seed.items()}
    return StageTimes(**times, sync=SYNC_S * noise["sync"])


def _traffic(share: DeviceShare, num_seeds: int, *, cached: bool = False, **_: bool) -> Traffic:
    """Four rows of 100 bytes and a list of 10 for each seed."""
    if not isinstance(share.device, Emulated):
        return Traffic()
    rows = Access(hits=3 * num_seeds, misses=num_seeds) if cached else Access()
    sizes = {"row_bytes": (100 if cached else 400) * num_seeds, "list_bytes": 10 * num_seeds}
    return Traffic(rows=rows).with_link(request_bytes=10, **sizes)


def _move(number: int, split: tuple[int, ...]) -> tuple[str | None, tuple[int, ...]]:
    moves = {8: 300, 16: 150, 24: 60}
    if number not in moves:
        return None, split
    seeds, slowest = moves[number], f"T_TC {split[0] * 0.03:.0f} ms is the bottleneck"
    text = f"{slowest}: {seeds} seeds from cpu:0 to emulated:1"
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
    epoch: int, seconds: float, sums: list[StageTimes], moved: list[Traffic], plan: Any, split: Any
) -> EpochRecord:
    devices = []
    for rank, (share, times) in enumerate(zip(plan.shares, sums, strict=True)):
        emulated = isinstance(share.device, Emulated)
        stages: dict[str, Any] = asdict(times)
        absent = {"exchange": not times.exchange, "transfer": not emulated}
        stages |= {stage: None for stage, is_absent in absent.items() if is_absent}
        devices.append(
            DeviceEpoch(
                name=share.device.name,
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
    sampled = StageTimes(sample=0.001, load=0.0013, sync=0.0003)
    accelerator = replace(sampled, transfer=0.0021, propagate=0.0022)
    devices = (cpu, accelerator)[: len(plan.shares)]
    by_rates = Prediction(devices=devices, step_s=0.0268, num_edges=200_000, source="this_machine")
    return PlanPredictions(by_rates=by_rates, window_steps=2)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., MadeUpRun]:
    return make_up


def run_fixture(make: Callable[..., MadeUpRun], **options: Any) -> Any:
    """A fixture of a run, which all tests share."""
    return pytest.fixture(scope="session")(lambda: make(**options))


hybrid_run, cpu_run = run_fixture(make_up), run_fixture(make_up, rank_count=1)
cached_run, exchange_run = run_fixture(make_up, cached=True), run_fixture(make_up, exchange=True)
simulated_run = run_fixture(lambda: simulated(make_up()))


@pytest.fixture(scope="session")
def write_run() -> Callable[..., tuple[str, dict[str, Any]]]:
    """Writes a run's files into a directory, and returns its page and its summary."""

    def write(
        directory: Path, run: MadeUpRun, *, command: str | None = None, **options: Any
    ) -> tuple[str, dict[str, Any]]:
        directory.mkdir(exist_ok=True)
        console = Console(file=io.StringIO())
        options = options or {"seed": 0}
        report = RunReport(directory, epochs=3, options=options, console=console, command=command)
        run.tell(report)
        summary = write_outcome(report, run.result, status="completed")
        return (directory / "report.html").read_text(), summary

    return write
