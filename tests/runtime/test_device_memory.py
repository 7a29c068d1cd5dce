"""Devices whose memory is short train on, or are refused before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnscale.backend.base import DeviceMemory
from gnnscale.core.errors import ConfigError
from gnnscale.plan import Emulated
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.work import batch_bytes
from gnnscale.plan.perf.workload import Workload, unmeasured_workload
from gnnscale.plan.planner import room
from gnnscale.runtime.order import checked_order
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train

pytestmark = pytest.mark.timeout(240)

Settings = Callable[..., TrainConfig]

#: A device that takes its time, so that stages run ahead of it as far as they may.
SLOW = (
    "kind:emulated,name:small,macs_per_s:1e10,memory_bandwidth:1e10,memory_bytes:MEMORY,"
    "link_bandwidth:1e9,launch_s:5e-3,host_aggregates:false"
)
AHEAD = ("runtime.prefetch_depth=4", "epochs=2", "runtime.eval_every=2", "num_threads=2")


def alone(memory_bytes: int) -> str:
    return f"device_plan.devices=[{{{SLOW.replace('MEMORY', str(memory_bytes))}}}]"


def sizes(config: TrainConfig) -> tuple[Workload, list[int]]:
    """Return what the only device of a run trains, and the bytes of each of its mini-batches."""
    graph = config.dataset.open()
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    (device,) = config.device_plan.parsed()
    work = unmeasured_workload(graph, model).on(device)
    order = checked_order(config, graph.train_idx, None)
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=1)
    steps = [step for epoch in range(config.epochs) for step in order.epoch(epoch)]
    found = [sampler.sample(step.seeds, number) for number, step in enumerate(steps)]
    return work, [int(batch_bytes(work, BatchSize.of(each))) for each in found]


def losses(config: TrainConfig, observer: Any, directory: Path) -> list[float]:
    train(config, directory, observer, options={})
    return [record.loss for kind, record in observer.events if kind == "stepped"]


@pytest.fixture
def most_in_use(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The most bytes that a device of each name had in use, as it counts them itself."""
    most: dict[str, int] = {}
    reserve = DeviceMemory.reserve

    def noting(memory: DeviceMemory, num_bytes: int, what: str) -> None:
        reserve(memory, num_bytes, what)
        name = memory._device.label
        most[name] = max(most.get(name, 0), memory._in_use)

    monkeypatch.setattr(DeviceMemory, "reserve", noting)
    return most


@pytest.mark.parametrize("prefetch", ["one_stage", "two_stage"])
def test_mini_batches_wait_for_memory(
    settings: Settings,
    observer: Any,
    tmp_path: Path,
    most_in_use: dict[str, int],
    prefetch: str,
) -> None:
    """There is room for two at once, and four may be prepared ahead."""
    options = (*AHEAD, f"runtime.prefetch={prefetch}")
    config = settings(*options, alone(1 << 30))
    wanted = losses(config, observer, tmp_path / "ample")
    work, found = sizes(config)
    (device,) = config.device_plan.parsed()
    assert isinstance(device, Emulated)
    resident = device.memory_bytes - room(device, work)
    memory_bytes = resident + int(2.3 * max(found))
    assert most_in_use["small"] > memory_bytes
    most_in_use.clear()
    observer.events.clear()
    # Losses are equal: mini-batches waited, and nothing else happened to them.
    assert losses(settings(*options, alone(memory_bytes)), observer, tmp_path / "short") == wanted
    assert resident + 2 * min(found) <= most_in_use["small"] <= memory_bytes


def test_mini_batches_larger_than_the_one_that_was_measured(
    settings: Settings, observer: Any, tmp_path: Path, most_in_use: dict[str, int]
) -> None:
    """The first one fits, and so the run begins; others do not, and are trained in parts."""
    options = (*AHEAD, "runtime.prefetch=two_stage")
    config = settings(*options, alone(1 << 30))
    wanted = losses(config, observer, tmp_path / "ample")
    work, found = sizes(config)
    assert max(found) > found[0] + 2
    (device,) = config.device_plan.parsed()
    assert isinstance(device, Emulated)
    memory_bytes = device.memory_bytes - room(device, work) + found[0] + 2
    most_in_use.clear()
    observer.events.clear()
    assert losses(settings(*options, alone(memory_bytes)), observer, tmp_path / "short") == wanted
    assert most_in_use["small"] <= memory_bytes


def test_a_mini_batch_that_no_device_holds_is_refused_before_the_first_step(
    settings: Settings, observer: Any, tmp_path: Path
) -> None:
    config = settings(*AHEAD, alone(1 << 30))
    work, found = sizes(config)
    (device,) = config.device_plan.parsed()
    assert isinstance(device, Emulated)
    resident = device.memory_bytes - room(device, work)
    short = alone(resident + found[0] // 2)
    with pytest.raises(ConfigError, match=r"^batch_size=64: the devices' memory holds") as error:
        train(settings(*AHEAD, short), tmp_path, observer, options={})
    assert observer.events == []
    # What the line says fits, does.
    fits = str(error.value).partition("; batch_size=")[2].partition(",")[0]
    assert len(losses(settings(*AHEAD, short, f"batch_size={fits}"), observer, tmp_path)) > 0


#: Parts of a graph give both devices as many seeds, whatever their memory.
PARTS = (
    *("algorithm=legion", "cache_planner.ratio=0.1", "runtime.prefetch=two_stage"),
    *("model=sage", "dataset.num_features=64", "model.dropout=0"),
)


def test_parts_train_within_a_memory_that_is_short(launched: Any, tmp_path: Path) -> None:
    """Its fifth mini-batch was found not to fit, and said so in its turn: in epoch 2."""
    found = {}
    for name, memory_bytes in (("ample", 1 << 30), ("short", 180_000)):
        device = SLOW.replace("MEMORY", str(memory_bytes))
        plan = f"device_plan.devices=[cpu,{{{device}}}]"
        found[name] = launched(tmp_path / name, *PARTS, *AHEAD, plan)
    assert [each["loss"] for each in found["short"].steps] == [
        each["loss"] for each in found["ample"].steps
    ]
    depths = {name: run.result.plan.shares[1].depth for name, run in found.items()}
    assert depths["ample"] is None
    assert depths["short"] in (1, 2, 3)


def test_parts_that_do_not_fit_are_refused(launched: Any, tmp_path: Path) -> None:
    device = SLOW.replace("MEMORY", "70000")
    plan = f"device_plan.devices=[cpu,{{{device}}}]"
    with pytest.raises(ConfigError, match=r"^device_plan: small has 32 of batch_size=64 seeds"):
        launched(tmp_path, *PARTS, *AHEAD, plan)
    assert not (tmp_path / "checkpoints").exists()


def test_work_moves_within_the_memory(launched: Any, tmp_path: Path) -> None:
    """A fast device would take nearly all seeds, and its memory holds a few."""
    fast = SLOW.replace("MEMORY", "60000").replace("launch_s:5e-3", "launch_s:0.0")
    slow = SLOW.replace("MEMORY", str(1 << 30)).replace("name:small", "name:large")
    plan = f"device_plan.devices=[{{{fast}}},{{{slow.replace('5e-3', '3e-2')}}}]"
    run = launched(
        tmp_path,
        *("runtime.prefetch=one_stage", "runtime.drm=true", "epochs=8", "runtime.eval_every=8"),
        *("runtime.prefetch_depth=2", "num_threads=2", "dataset.num_features=64", plan),
    )
    limit = run.result.plan.shares[0].max_seeds
    assert limit is not None
    assert 0 < limit < 64
    assert all(step["devices"][0]["seeds"] <= limit for step in run.steps)


def test_a_run_that_stops_early_leaves_no_device_waiting(launched: Any, tmp_path: Path) -> None:
    """Devices that trade rows go on until all are equally far, and train nothing of it."""
    device = SLOW.replace("MEMORY", "24000").replace("aggregates:false", "aggregates:true")
    devices = f"device_plan.devices=[{{{device}}},{{{device.replace('small', 'other')}}}]"
    run = launched(
        tmp_path,
        *("algorithm=p3", "model=sage", "runtime.prefetch=two_stage", "runtime.prefetch_depth=4"),
        *("runtime.patience=1", "optimizer.lr=1e-12", "epochs=50", "num_threads=2", devices),
    )
    assert run.result.stopped_early
    assert {share.depth for share in run.result.plan.shares} <= {1, 2, 3}
