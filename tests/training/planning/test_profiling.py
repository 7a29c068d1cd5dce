from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.sampling import ShuffledOrder
from gnnscale.training.pipeline.step import TrainStep
from gnnscale.training.planning.profiling import PlanProfile, num_profiled_steps, profile_plan
from gnnscale.training.setup import open_run
from gnnscale.training.worker.train_state import TrainState

EMULATED = (
    "device_plan.devices=[{{kind:emulated,macs_per_s:1e10,memory_bandwidth:1e10,"
    "link_bandwidth:1e9,memory_bytes:{},launch_s:{}}}]"
)


def rehearsed(run: TrainState, *, vertices: int = 360) -> PlanProfile:
    device, model = run.device, run.learning.model
    seeds = run.data.graph.train_idx[:vertices]
    order = ShuffledOrder(seeds, batch_size=run.options.batch_size, seed=0)
    optimizer = run.learning.optimizer_options.build(model)
    step = TrainStep(model, device.backend, device.synchronizer, optimizer)
    parts = {"model": model, "backend": device.backend, "stages": device.stages, "step": step}
    return profile_plan(order, run.layout.plan, rank=0, **parts)


@pytest.mark.long
@pytest.mark.parametrize("prefetch", ["none", "two_stage"])
def test_it_leaves_no_trace(settings, tmp_path, prefetch) -> None:
    emulated = EMULATED.format(10**8, 2e-3)
    config = settings("model.norm=batch", f"runtime.prefetch={prefetch}", emulated)
    with open_run(config, tmp_path, {}, SINGLE_PROCESS) as run:
        torch.manual_seed(config.seed)
        graph = run.data.graph
        fresh = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
        # The run has rehearsed its plan already, and may do so again.
        for _ in range(2):
            state = run.learning.model.state_dict()
            for name, value in fresh.state_dict().items():
                assert torch.equal(state[name], value), name
            assert all(each.grad is None for each in run.learning.model.parameters())
            before = torch.get_rng_state()
            assert rehearsed(run).step_s > 0
            assert torch.equal(torch.get_rng_state(), before)
        assert run.learning.optimizer.state_dict()["state"] == {}


@pytest.fixture
def plain_run(settings: Any, tmp_path: Path) -> Iterator[TrainState]:
    config = settings("runtime.prefetch=none", "batch_size=50")
    with open_run(config, tmp_path, {}, SINGLE_PROCESS) as run:
        yield run


def before_samples(run: TrainState, monkeypatch: Any, note: Callable[[Any], None]) -> None:
    sample = run.device.backend.sample

    def noted(seeds: Any, step: int) -> Any:
        note(seeds)
        return sample(seeds, step)

    monkeypatch.setattr(run.device.backend, "sample", noted)


def test_its_mini_batches_are_full(plain_run, monkeypatch) -> None:
    seen: list[int] = []
    before_samples(plain_run, monkeypatch, lambda seeds: seen.append(len(seeds)))
    rehearsed(plain_run, vertices=130)
    assert len(seen) > 3
    assert set(seen) == {50}


def test_medians_leave_the_first_steps_out(plain_run, clock, monkeypatch) -> None:
    slow = iter([0.2] * 3)
    before_samples(plain_run, monkeypatch, lambda seeds: clock.advance(next(slow, 0.01)))
    found = rehearsed(plain_run)
    assert next(slow, None) is None
    assert found.stages.sample == pytest.approx(0.01)
    assert found.step_s == pytest.approx(0.01)


@pytest.mark.parametrize(("prefetch", "steps"), [("none", 6), ("two_stage", 8)])
def test_slow_steps_are_few(settings, tmp_path, monkeypatch, request, prefetch, steps) -> None:
    config = settings(f"runtime.prefetch={prefetch}")
    with open_run(config, tmp_path, {}, SINGLE_PROCESS) as run:
        clock = request.getfixturevalue("clock")
        trained = 0
        propagate = run.device.backend.propagate

        def slow(resident: Any, weight: float) -> None:
            nonlocal trained
            trained += 1
            clock.advance(0.25)
            propagate(resident, weight)

        monkeypatch.setattr(run.device.backend, "propagate", slow)
        found = rehearsed(run)
        assert found.step_s == pytest.approx(0.25)
        assert found.num_steps == num_profiled_steps(run.layout.plan, 0.25) == 3
        # Three to warm up, three that count, and what was on its way.
        assert trained == steps


@pytest.mark.long
@pytest.mark.parametrize("memory", [300_000, 60_000])
def test_device_memory_is_free_afterwards(settings, tmp_path, memory) -> None:
    config = settings("runtime.prefetch=two_stage", EMULATED.format(memory, 0.0))
    with open_run(config, tmp_path, {}, SINGLE_PROCESS) as run:
        # A mini-batch takes over 30 kB: what any of these left behind would not fit. Where there
        # is room for one, the others wait for it.
        for _ in range(15):
            assert rehearsed(run).step_s > 0
