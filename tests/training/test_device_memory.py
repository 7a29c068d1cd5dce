"""Devices whose memory is short train on, or are refused before anything is trained."""

import pytest
from devices import accelerator, plan_of

from gnnscale.backend.base import DeviceMemory
from gnnscale.core.errors import ConfigError
from gnnscale.planner import Emulated
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.stage_work import batch_bytes
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.planner.planner import batch_memory_bytes
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import checked_order

pytestmark = pytest.mark.timeout(240)


AHEAD = ("runtime.prefetch_depth=4", "epochs=2", "runtime.eval_every=2", "num_threads=2")


def device(memory_bytes: int = 1 << 30, **options: object) -> str:
    """A device that takes its time, so that stages run ahead of it as far as they may."""
    usual = {"name": "small", "memory_bandwidth": 1e10, "launch_s": 5e-3, "host_aggregates": False}
    return accelerator(memory_bytes=memory_bytes, **{**usual, **options})


def sizes(config: RunConfig) -> tuple[int, list[int]]:
    """Return what the only device of a run holds for good, and the bytes of each mini-batch."""
    graph = config.dataset.open()
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    (device,) = config.device_plan.parsed()
    assert isinstance(device, Emulated)
    work = unmeasured_workload(graph, model).on(device)
    order = checked_order(config, graph.train_idx, None)
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=1)
    steps = [step for epoch in range(config.epochs) for step in order.epoch(epoch)]
    found = [sampler.sample(step.seeds, number) for number, step in enumerate(steps)]
    resident = device.memory_bytes - batch_memory_bytes(device, work)
    return resident, [int(batch_bytes(work, BatchSize.of(each))) for each in found]


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


@pytest.mark.long
def test_mini_batches_wait_for_memory(settings, losses, most_in_use, tmp_path) -> None:
    """There is room for two at once, and four may be prepared ahead."""
    options = (*AHEAD, "runtime.prefetch=two_stage")
    wanted = losses(tmp_path, *options, plan_of(device()))
    resident, found = sizes(settings(*options, plan_of(device())))
    memory_bytes = resident + int(2.3 * max(found))
    assert most_in_use["small"] > memory_bytes
    most_in_use.clear()
    # Losses are equal: mini-batches waited, and nothing else happened to them.
    assert losses(tmp_path, *options, plan_of(device(memory_bytes))) == wanted
    assert resident + 2 * min(found) <= most_in_use["small"] <= memory_bytes
    # If the first one fits, the run begins; others do not, and are trained in parts.
    assert max(found) > found[0] + 2
    memory_bytes = resident + found[0] + 2
    most_in_use.clear()
    assert losses(tmp_path, *options, plan_of(device(memory_bytes))) == wanted
    assert most_in_use["small"] <= memory_bytes


@pytest.mark.long
def test_a_mini_batch_that_no_device_holds_is_refused_before_the_first_step(
    settings, run, losses, observer, tmp_path
) -> None:
    resident, found = sizes(settings(*AHEAD, plan_of(device())))
    short = (*AHEAD, plan_of(device(resident + found[0] // 2)))
    with pytest.raises(ConfigError, match=r"^batch_size=64: expected at most") as error:
        run(tmp_path, *short)
    assert observer.events == []
    # What the line says fits, does.
    fits = str(error.value).partition("; batch_size=")[2].partition(",")[0]
    assert losses(tmp_path, *short, f"batch_size={fits}")


#: Parts of a graph give both devices as many seeds, whatever their memory.
PARTS = (
    *("algorithm=legion", "cache_planner.ratio=0.1", "runtime.prefetch=two_stage"),
    *("model=sage", "dataset.num_features=64", "model.dropout=0"),
)


@pytest.mark.long
def test_parts_train_within_a_memory_that_is_short(launched, tmp_path) -> None:
    """Its fifth mini-batch was found not to fit, and reported so in its turn: in epoch 2."""
    ample = launched(tmp_path / "ample", *PARTS, *AHEAD, plan_of("cpu", device()))
    short = launched(tmp_path / "short", *PARTS, *AHEAD, plan_of("cpu", device(180_000)))
    assert short.losses == ample.losses
    assert ample.result.plan.shares[1].depth is None
    assert short.result.plan.shares[1].depth in (1, 2, 3)


def test_work_moves_within_the_memory(launched, tmp_path) -> None:
    """A fast device would take nearly all seeds, and its memory holds a few."""
    run = launched(
        tmp_path,
        *("runtime.prefetch=one_stage", "runtime.drm=true", "epochs=8", "runtime.eval_every=8"),
        *("runtime.prefetch_depth=2", "num_threads=2", "dataset.num_features=64"),
        plan_of(device(60_000, launch_s=0.0), device(name="large", launch_s=3e-2)),
    )
    limit = run.result.plan.shares[0].max_seeds
    assert limit is not None
    assert 0 < limit < 64
    assert all(seeds[0] <= limit for seeds in run.seeds)


def test_a_run_that_stops_early_leaves_no_device_waiting(launched, tmp_path) -> None:
    """Devices that trade rows go on until all are equally far, and train nothing of it."""
    both = [device(24_000, name=name, host_aggregates=True) for name in ("small", "other")]
    run = launched(
        tmp_path,
        *("algorithm=p3", "model=sage", "runtime.prefetch=two_stage", "runtime.prefetch_depth=4"),
        *("runtime.patience=1", "optimizer.lr=1e-12", "epochs=50", "num_threads=2", plan_of(*both)),
    )
    assert run.result.stopped_early
    assert {share.depth for share in run.result.plan.shares} <= {1, 2, 3}
