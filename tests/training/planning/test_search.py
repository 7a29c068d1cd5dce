from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from devices import accelerator
from devices import plan_of as devices_of
from one_line import one_line
from small_plans import plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.planner import Cpu, DevicePlan
from gnnscale.planner.cost_model.equations import Prediction
from gnnscale.run import config as run_settings
from gnnscale.sampling import StepSeeds, TwoStageOrder
from gnnscale.training.build.cache import cache_effects
from gnnscale.training.open_device import plan_options
from gnnscale.training.planning import cost_estimates as plan_model
from gnnscale.training.planning.cost_estimates import PlanModel
from gnnscale.training.planning.profiling import PlanProfile
from gnnscale.training.planning.search import PlanSearch, agree_on_plan

#: A run that rehearsals are a small part of.
LONG = "epochs=1000000"
#: Two processors, of two threads.
TWO = ("device_plan=cpu_x2", "num_threads=2", LONG)


@pytest.fixture
def begun(settings: Any) -> Callable[..., PlanSearch]:
    """Begin to search for a plan, with overrides as on the command line."""

    def begin(*overrides: str, known: list[dict[str, Any]] | None = None) -> PlanSearch:
        config = settings(*overrides)
        graph, devices = config.dataset.open(), config.device_plan.parsed()
        model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
        of = {"batch_size": config.batch_size, "num_devices": len(devices), "seed": config.seed}
        order = config.seed_order.order(graph.train_idx, **of)
        effects = cache_effects(len(devices), None)
        more = {"sampling": config.training_sampler, "devices": devices, "effects": effects}
        found = PlanModel(plan_options(config), graph, model, SINGLE_PROCESS, order, **more)
        return PlanSearch(found, order, known)

    return begin


def test_the_last_hop_is_not_planned_for_where_its_rows_are_ready(begun) -> None:
    options = ("sampler.fanouts=[5,-1]", "device_plan=cpu_x2")
    whole, ready = begun(*options), begun(*options, "features=preaggregated")
    assert 0 < ready.predicted.num_edges < whole.predicted.num_edges / 2
    loads = [sum(device.load for device in each.predicted.devices) for each in (ready, whole)]
    assert loads[0] < loads[1]
    # P3 would split rows that are not there.
    assert whole.step_bytes() is not None
    assert ready.step_bytes() is None


def as_expected(planning: PlanSearch, times: float = 1.0) -> list[PlanProfile]:
    """What every worker measures of the proposal, ``times`` as long as predicted."""
    step_s = times * planning.predicted.step_s
    names = ("sample", "load", "propagate", "sync")
    stages = [
        StageTimes(**{name: times * getattr(each, name) for name in names})
        for each in planning.predicted.devices
    ]
    return [PlanProfile(stages=each, step_s=step_s, num_steps=7) for each in stages]


@pytest.mark.long
def test_the_only_good_plan_is_taken_however_slow_the_machine(begun) -> None:
    times, planning = 3, begun(LONG, "num_threads=1")
    proposed, by_rates = planning.plan, planning.predicted
    assert not planning.converged
    assert planning.predictions.rehearsed is None
    planning.learn(as_expected(planning, times))
    assert planning.converged
    assert planning.plan == proposed
    found = planning.predictions
    assert found.by_rates == by_rates
    assert found.rehearsed == planning.predicted
    assert found.rehearsed.step_s == pytest.approx(times * by_rates.step_s)
    assert found.window_steps == 7


@pytest.mark.long
@pytest.mark.parametrize(("times", "profiled"), [(1.2, True), (1.3, False)])
def test_one_device_also_profiles_another_way_to_prefetch(
    begun, monkeypatch, times, profiled
) -> None:
    planning = begun(LONG, "num_threads=2")
    first = planning.plan, planning.predicted
    (only,) = planning.plan.shares
    mode = {"none": "one_stage", "one_stage": "none"}[only.prefetch]
    other = (
        plan_of(replace(only, prefetch=mode)),
        replace(planning.predicted, step_s=times * planning.predicted.step_s),
    )
    monkeypatch.setattr(planning._model, "proposals", lambda _: [first, other])
    planning.learn(as_expected(planning))
    assert planning.converged is not profiled
    if profiled:
        # What was measured decides, whatever the rates say.
        planning.learn(as_expected(planning, 0.5))
        assert planning.converged
    assert planning.plan == (other if profiled else first)[0]


@pytest.mark.long
def test_a_device_that_is_slower_than_thought_gets_less(begun, clock) -> None:
    # On the clock of the test sampling takes no time: other processes do not delay it.
    planning = begun(*TWO)
    even = planning.plan.split
    found = as_expected(planning)
    stages = found[1].stages
    for name in ("sample", "load", "propagate"):
        setattr(stages, name, 4 * getattr(stages, name))
    step_s = 4 * found[0].step_s
    planning.learn([replace(each, step_s=step_s) for each in found])
    assert not planning.converged
    assert planning.plan.split[1] < even[1]
    # The other plan disappoints: the first one is taken after all.
    while not planning.converged:
        planning.learn([replace(each, step_s=2 * step_s) for each in as_expected(planning)])
    assert planning.plan.split == even
    assert planning.predicted.step_s == pytest.approx(step_s)


@pytest.mark.long
def test_another_plans_rehearsal_corrects_no_prediction(begun) -> None:
    planning = begun(*TWO)
    first = planning.plan
    planning.learn(as_expected(planning, 3))
    assert planning.predictions.basis == "rehearsed"
    planning.plan = first.with_split([first.split[0] - 1, first.split[1] + 1])
    found = planning.predictions
    assert (found.basis, found.rehearsed) == ("by_rates", None)
    assert found.best == found.by_rates
    assert found.by_rates.step_s < 0.5 * planning.predicted.step_s
    assert 3 <= found.window_steps <= 32


@pytest.mark.long
def test_a_plan_that_is_known_stays(begun, settings) -> None:
    other = begun(*TWO).plan.with_split([40, 24])
    planning = begun(*TWO, known=other.to_values())
    assert planning.converged
    devices = settings(*TWO).device_plan.parsed()
    assert planning.plan == other == DevicePlan.from_values(devices, other.to_values())


def tight(memory_bytes: int, *overrides: str) -> tuple[str, ...]:
    """Beside a processor a small device; a mini-batch of 32 seeds takes some 10 kB there."""
    figures = {"name": "small", "memory_bytes": memory_bytes, "memory_bandwidth": 1e10}
    return devices_of("cpu", accelerator(**figures)), *overrides


@pytest.mark.long
def test_a_plan_that_is_known_goes_no_further_than_devices_hold(begun) -> None:
    options = tight(20_000, "device_plan.split=[60,4]")
    found = begun(*options, "runtime.prefetch_depth=1").plan.shares[1].max_seeds
    assert 4 < found < 60
    # One more mini-batch is on its way, and of another release that kept no limits.
    options = (*options, "runtime.prefetch_depth=2")
    kept = begun(*options).plan.with_split([59, 5]).to_values()
    for each in kept:
        each["max_seeds"] = None
    fewer = begun(*options, known=kept).plan.shares[1].max_seeds
    assert 5 <= fewer < found


@pytest.mark.long
def test_the_depth_is_what_the_memory_has_room_for(begun) -> None:
    def options(memory_bytes: int, depth: int = 6) -> tuple[str, ...]:
        split = "device_plan.split=[32,32]"
        return tight(memory_bytes, split, f"runtime.prefetch_depth={depth}")

    plans = [begun(*options(memory)).plan for memory in (30_000, 50_000, 10_000_000)]
    least, wider, unlimited = (each.shares[1].depth for each in plans)
    assert unlimited is None
    assert 1 <= least < wider <= 6
    # A kept plan gets the depth of the memory that there is now, and none is deeper than asked for.
    kept = plans[-1].to_values()
    assert begun(*options(30_000), known=kept).plan.shares[1].depth == least
    assert begun(*options(30_000, least), known=kept).plan.shares[1].depth in (None, least)


def test_without_prefetching_one_mini_batch_is_in_flight(begun) -> None:
    options = tight(30_000, "runtime.prefetch_depth=6")
    limit = begun(*options, "runtime.prefetch=none").plan.shares[1].max_seeds
    fewer = begun(*options, "runtime.prefetch=one_stage").plan.shares[1].max_seeds
    assert limit is None or limit > fewer


@pytest.mark.long
def test_a_part_that_does_not_fit_is_refused_before_anything_trains(begun) -> None:
    split = "device_plan.split=[4,60]"
    kept = begun(*tight(10_000_000, split)).plan.to_values()
    for known in (None, kept):
        with one_line(begins="device_plan: small: 60 of batch_size=64 seeds need"):
            begun(*tight(15_000, split), known=known)


def test_parts_of_an_order_are_held_against_the_memory(begun, settings, monkeypatch) -> None:
    """Parts of a graph give each device its seeds; the largest step decides, not the first."""
    config = settings(*tight(15_000))
    graph = config.dataset.open()
    parts = [graph.train_idx[:70], graph.train_idx[70:]]
    order = TwoStageOrder(parts, batch_sizes=[32, 32], seed=0)
    order_epoch = order.epoch
    assert next(order.epoch(0)).counts == (32, 32)

    def steps(epoch: int) -> Iterator[StepSeeds]:
        for number, step in enumerate(order_epoch(epoch)):
            few = (len(step.seeds) - 2, 2)
            yield StepSeeds(seeds=step.seeds, counts=step.counts if number else few)

    monkeypatch.setattr(order, "epoch", steps)
    monkeypatch.setattr(type(config.seed_order), "order", lambda *_, **__: order)
    with one_line(begins="device_plan: small: 32 of batch_size=64 seeds"):
        begun(*tight(15_000))


@pytest.mark.long
def test_a_plan_that_is_to_repeat_follows_from_nothing_measured(begun, monkeypatch) -> None:
    def measure() -> None:
        raise AssertionError("this machine is not asked")

    for module in (plan_model, run_settings):
        monkeypatch.setattr(module, "this_machine", measure, raising=False)
        monkeypatch.setattr(module, "usable_cores", measure, raising=False)
    options = ("device_plan=hybrid_emulated", "num_threads=5", "runtime.deterministic=true", LONG)
    first, second = begun(*options), begun(*options)
    assert first.converged
    assert (first.plan, first.predicted) == (second.plan, second.predicted)
    assert first.predicted.source == "a nominal machine"
    assert first.plan.host_threads == 5


@pytest.mark.long
def test_what_is_not_rehearsed(begun) -> None:
    for overrides, converged in (
        ((LONG,), False),
        (("runtime.prefetch=none", "device_plan=cpu_x2", LONG), False),
        (("runtime.prefetch=none", LONG), True),  # there is no choice
        (("batch_size=1000", LONG), True),  # no mini-batch is full
        (("epochs=1",), True),  # the run is short
    ):
        planning = begun(*overrides)
        assert planning.converged is converged
        assert planning.predicted.step_s > 0


DEVICES = (Cpu(name="cpu:0"),)


def of(threads: int) -> DevicePlan:
    return plan_of(share(DEVICES[0], 64, threads))


class Search:
    """Proposes one plan after the other, and chooses the last."""

    def __init__(self, *plans: DevicePlan, step_s: float = 0.01) -> None:
        self.plans = list(plans)
        self.learnt: list[list[PlanProfile]] = []
        self.predicted = Prediction(devices=(), step_s=step_s, num_edges=0, source="nowhere")

    plan = property(lambda self: self.plans[0])
    converged = property(lambda self: len(self.plans) == 1)

    def learn(self, rehearsed: list[PlanProfile]) -> None:
        self.learnt.append(rehearsed)
        del self.plans[0]


def profile(threads: int) -> PlanProfile:
    """A step takes as many seconds as the plan has threads, and sampling a half."""
    return PlanProfile(stages=StageTimes(sample=threads / 2), step_s=float(threads), num_steps=3)


def agreed(search: Any, group: Any = SINGLE_PROCESS) -> tuple[DevicePlan, list[DevicePlan]]:
    """The plan that processes agree on, and those that were profiled before."""
    seen: list[DevicePlan] = []

    def profiling(plan: DevicePlan) -> PlanProfile:
        seen.append(plan)
        return profile(plan.shares[0].threads.sample)

    return agree_on_plan(search, DEVICES, group, profiling), seen


def test_every_proposal_is_profiled_but_the_choice() -> None:
    search = Search(of(3), of(2), of(1))
    assert agreed(search) == (of(1), [of(3), of(2)])
    assert search.learnt == [[profile(3)], [profile(2)]]
    assert agreed(Search(of(4))) == (of(4), [])  # it has converged
