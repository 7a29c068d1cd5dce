from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Threads
from gnnscale.plan.perf.equations import Prediction
from gnnscale.runtime import settings as run_settings
from gnnscale.runtime.cache.open import cache_effects
from gnnscale.runtime.planning import plan_model
from gnnscale.runtime.planning.plan_model import PlanModel
from gnnscale.runtime.planning.profile import PlanProfile
from gnnscale.runtime.planning.search import PlanSearch, agree_on_plan
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import ALONE
from gnnscale.sampler import StepSeeds, TwoStageOrder

Settings = Callable[..., TrainConfig]

#: A run that rehearsals are a small part of.
LONG = "epochs=1000000"


def begun(config: TrainConfig, known: list[dict[str, Any]] | None = None) -> PlanSearch:
    graph = config.dataset.open()
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    order = config.seed_order.order(
        graph.train_idx,
        batch_size=config.batch_size,
        num_devices=len(config.device_plan.devices),
        seed=config.seed,
    )
    devices = config.device_plan.parsed()
    effects = cache_effects(len(devices), None)
    found = PlanModel(
        config,
        graph,
        model,
        ALONE,
        order,
        sampling=config.trained_sampler,
        devices=devices,
        effects=effects,
    )
    return PlanSearch(config, found, order, known)


def test_the_last_hop_is_not_planned_for_where_its_rows_are_ready(settings: Settings) -> None:
    whole = begun(settings("sampler.fanouts=[5,-1]", "device_plan=cpu_x2"))
    ready = begun(
        settings("sampler.fanouts=[5,-1]", "device_plan=cpu_x2", "features=preaggregated")
    )
    assert 0 < ready.predicted.num_edges < whole.predicted.num_edges / 2
    assert sum(each.load for each in ready.predicted.devices) < sum(
        each.load for each in whole.predicted.devices
    )
    # P3 would split rows that are not there.
    assert whole.step_bytes() is not None
    assert ready.step_bytes() is None


def as_expected(planning: PlanSearch, times: float = 1.0) -> list[PlanProfile]:
    """What every worker measures of the proposal, ``times`` as long as predicted."""
    return [
        PlanProfile(
            stages=StageTimes(
                sample=times * each.sample,
                load=times * each.load,
                propagate=times * each.propagate,
                sync=times * each.sync,
            ),
            step_s=times * planning.predicted.step_s,
            num_steps=7,
        )
        for each in planning.predicted.devices
    ]


def test_a_plan_that_keeps_its_promise_is_taken(settings: Settings) -> None:
    planning = begun(settings(LONG, "num_threads=1"))
    proposed = planning.plan
    assert not planning.converged
    assert planning.predictions.rehearsed is None
    assert planning.predictions.by_rates == planning.predicted
    planning.learn(as_expected(planning))
    assert planning.converged
    assert planning.plan == proposed
    found = planning.predictions
    assert found.rehearsed == planning.predicted
    assert found.rehearsed.step_s == pytest.approx(found.by_rates.step_s)
    assert found.window_steps == 7


def test_a_machine_that_is_slower_than_its_rates(settings: Settings) -> None:
    planning = begun(settings(LONG, "num_threads=1"))
    by_rates = planning.predicted.step_s
    planning.learn(as_expected(planning, 3))
    assert planning.converged
    assert planning.predicted.step_s == pytest.approx(3 * by_rates)
    assert planning.predictions.by_rates.step_s == pytest.approx(by_rates)


@pytest.mark.parametrize(("times", "profiled"), [(1.2, True), (1.3, False)])
def test_one_device_also_profiles_another_way_to_prefetch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, times: float, profiled: bool
) -> None:
    planning = begun(settings(LONG, "num_threads=2"))
    first = planning.plan, planning.predicted
    (share,) = planning.plan.shares
    mode = {"none": "one_stage", "one_stage": "none"}[share.prefetch]
    other = (
        replace(planning.plan, shares=(replace(share, prefetch=mode),)),
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


def test_a_device_that_is_slower_than_thought_gets_less(settings: Settings, clock: Any) -> None:
    # On the clock of the test sampling takes no time: other processes do not delay it.
    planning = begun(settings("device_plan=cpu_x2", "num_threads=2", LONG))
    even = planning.plan.split
    found = as_expected(planning)
    slow = replace(
        found[1],
        stages=StageTimes(
            sample=4 * found[1].stages.sample,
            load=4 * found[1].stages.load,
            propagate=4 * found[1].stages.propagate,
        ),
    )
    step_s = 4 * found[0].step_s
    planning.learn([replace(each, step_s=step_s) for each in (found[0], slow)])
    assert not planning.converged
    assert planning.plan.split[1] < even[1]
    # The other plan disappoints: the first one is taken after all.
    while not planning.converged:
        planning.learn([replace(each, step_s=2 * step_s) for each in as_expected(planning)])
    assert planning.plan.split == even
    assert planning.predicted.step_s == pytest.approx(step_s)


def test_another_plans_rehearsal_corrects_no_prediction(settings: Settings) -> None:
    planning = begun(settings("device_plan=cpu_x2", "num_threads=2", LONG))
    first = planning.plan
    planning.learn(as_expected(planning, 3))
    assert planning.predictions.basis == "rehearsed"
    planning.plan = first.with_split([first.split[0] - 1, first.split[1] + 1])
    found = planning.predictions
    assert (found.basis, found.rehearsed) == ("by_rates", None)
    assert found.best == found.by_rates
    assert found.by_rates.step_s < 0.5 * planning.predicted.step_s
    assert 3 <= found.window_steps <= 32


def test_a_plan_that_is_known_stays(settings: Settings) -> None:
    config = settings("device_plan=cpu_x2", "num_threads=2", LONG)
    other = begun(config).plan.with_split([40, 24])
    planning = begun(config, other.to_values())
    assert planning.converged
    assert (
        planning.plan
        == other
        == DevicePlan.from_values(config.device_plan.parsed(), other.to_values())
    )


def test_a_plan_that_is_known_goes_no_further_than_devices_hold(settings: Settings) -> None:
    devices = (
        "device_plan.devices=[cpu,{kind:emulated,macs_per_s:1e10,memory_bandwidth:1e10,"
        "memory_bytes:20000,link_bandwidth:1e9}]"
    )
    config = settings(devices, "device_plan.split=[60,4]", "runtime.prefetch_depth=1")
    found = begun(config).plan.shares[1].max_seeds
    assert found is not None
    assert 4 < found < 60
    # One more mini-batch is on its way, and of another release that kept no limits.
    config = settings(devices, "device_plan.split=[60,4]", "runtime.prefetch_depth=2")
    kept = begun(config).plan.with_split([59, 5]).to_values()
    for each in kept:
        each["max_seeds"] = None
    fewer = begun(config, kept).plan.shares[1].max_seeds
    assert fewer is not None
    assert 5 <= fewer < found


#: A mini-batch of 32 seeds takes some 10 kB.
TIGHT = (
    "device_plan.devices=[cpu,{kind:emulated,name:small,macs_per_s:1e10,memory_bandwidth:1e10,"
    "memory_bytes:MEMORY,link_bandwidth:1e9}]"
)


def test_the_depth_is_what_the_memory_has_room_for(settings: Settings) -> None:
    split = "device_plan.split=[32,32]"
    found = {}
    for memory in (30_000, 50_000, 10_000_000):
        config = settings(TIGHT.replace("MEMORY", str(memory)), split, "runtime.prefetch_depth=6")
        found[memory] = begun(config).plan.shares[1].depth
    assert found[10_000_000] is None
    tight, wider = found[30_000], found[50_000]
    assert tight is not None
    assert wider is not None
    assert 1 <= tight < wider <= 6
    # A kept plan gets the depth of the memory that there is now, and none is deeper than asked for.
    kept = begun(config).plan.to_values()
    config = settings(TIGHT.replace("MEMORY", "30000"), split, "runtime.prefetch_depth=6")
    assert begun(config, kept).plan.shares[1].depth == tight
    config = settings(TIGHT.replace("MEMORY", "30000"), split, f"runtime.prefetch_depth={tight}")
    assert begun(config, kept).plan.shares[1].depth in (None, tight)


def test_without_prefetching_one_mini_batch_is_in_flight(settings: Settings) -> None:
    config = settings(
        *(TIGHT.replace("MEMORY", "30000"), "runtime.prefetch=none"), "runtime.prefetch_depth=6"
    )
    plan = begun(config).plan
    ahead = settings(
        *(TIGHT.replace("MEMORY", "30000"), "runtime.prefetch=one_stage"),
        "runtime.prefetch_depth=6",
    )
    fewer = begun(ahead).plan.shares[1].max_seeds
    assert fewer is not None
    limit = plan.shares[1].max_seeds
    assert limit is None or limit > fewer


@pytest.mark.parametrize("known", [False, True])
def test_a_part_that_does_not_fit_is_refused_before_anything_trains(
    settings: Settings, known: bool
) -> None:
    split = "device_plan.split=[4,60]"
    kept = begun(settings(TIGHT.replace("MEMORY", "10000000"), split)).plan.to_values()
    config = settings(TIGHT.replace("MEMORY", "15000"), split)
    with pytest.raises(
        ConfigError, match=r"^device_plan: small has 60 of batch_size=64 seeds, who"
    ):
        begun(config, kept if known else None)


def test_parts_of_an_order_are_held_against_the_memory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a graph give each device its seeds; the largest step decides, not the first."""
    config = settings(TIGHT.replace("MEMORY", "15000"))
    graph = config.dataset.open()
    parts = [graph.train_idx[:70], graph.train_idx[70:]]
    order = TwoStageOrder(parts, batch_sizes=[32, 32], seed=0)
    counts = [step.counts for step in order.epoch(0)]

    def steps(epoch: int) -> Iterator[StepSeeds]:
        for number, step in enumerate(order_epoch(epoch)):
            few = 0 if number else 2
            assert step.counts is not None
            changed = (len(step.seeds) - few, few) if few else step.counts
            yield StepSeeds(seeds=step.seeds, counts=changed)

    assert counts[0] == (32, 32)
    order_epoch = order.epoch
    monkeypatch.setattr(order, "epoch", steps)
    monkeypatch.setattr(type(config.seed_order), "order", lambda *_, **__: order)
    with pytest.raises(ConfigError, match=r"^device_plan: small has 32 of batch_size=64 seeds"):
        begun(config)


def test_a_plan_that_is_to_repeat_follows_from_nothing_measured(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure() -> None:
        raise AssertionError("this machine is not asked")

    for module in (plan_model, run_settings):
        monkeypatch.setattr(module, "this_machine", measure, raising=False)
        monkeypatch.setattr(module, "usable_cores", measure, raising=False)
    options = ("device_plan=hybrid_emulated", "num_threads=5", "runtime.deterministic=true", LONG)
    first, second = (begun(settings(*options)) for _ in range(2))
    assert first.converged
    assert (first.plan, first.predicted) == (second.plan, second.predicted)
    assert first.predicted.source == "a nominal machine"
    assert first.plan.host_threads == 5


def test_nothing_is_rehearsed_without_a_full_mini_batch(settings: Settings) -> None:
    assert begun(settings("batch_size=1000", LONG)).converged


def test_a_plan_without_a_choice_is_not_rehearsed(settings: Settings) -> None:
    assert not begun(settings(LONG)).converged
    only = begun(settings("runtime.prefetch=none", LONG))
    assert only.converged
    assert only.predicted.step_s > 0
    assert not begun(settings("runtime.prefetch=none", "device_plan=cpu_x2", LONG)).converged


@pytest.mark.parametrize(
    ("num_steps", "step_s", "rehearsals"),
    [
        # A rehearsal takes 0.75 s, and is worth it to a run four times as long.
        (299, 0.01, 0),
        (301, 0.01, 1),
        (599, 0.01, 1),
        (601, 0.01, 2),
        (100_000, 0.01, 3),
        # Or six steps.
        (23, 10.0, 0),
        (25, 10.0, 1),
        (73, 10.0, 3),
    ],
)
def test_rehearsals_take_a_part_of_the_run_only(
    settings: Settings, num_steps: int, step_s: float, rehearsals: int
) -> None:
    planning = begun(settings())
    planning._num_steps = num_steps
    planning.predicted = replace(planning.predicted, step_s=step_s)
    assert planning._how_many_pay() == rehearsals


def test_a_short_run_is_not_rehearsed(settings: Settings) -> None:
    planning = begun(settings("epochs=1"))
    assert planning.converged
    assert planning.predicted.step_s > 0


DEVICES = (Cpu(name="cpu:0"),)


def plan_of(threads: int) -> DevicePlan:
    share = DeviceShare(
        device=DEVICES[0],
        num_seeds=64,
        threads=Threads(sample=threads, load=threads, propagate=threads),
        prefetch="none",
    )
    return DevicePlan(shares=(share,))


@dataclass
class Search:
    """Proposes one plan after the other, and chooses the last."""

    plans: list[DevicePlan]
    step_s: float = 0.01
    learnt: list[list[PlanProfile]] = field(default_factory=list)

    @property
    def plan(self) -> DevicePlan:
        return self.plans[0]

    @property
    def converged(self) -> bool:
        return len(self.plans) == 1

    @property
    def predicted(self) -> Prediction:
        return Prediction(devices=(), step_s=self.step_s, num_edges=0, source="nowhere")

    def learn(self, rehearsed: list[PlanProfile]) -> None:
        self.learnt.append(rehearsed)
        del self.plans[0]


class Profiling:
    """Measures a step of as many seconds as the plan has threads, and of sampling a half."""

    def __init__(self) -> None:
        self.seen: list[DevicePlan] = []

    def __call__(self, plan: DevicePlan) -> PlanProfile:
        self.seen.append(plan)
        return profile(plan.shares[0].threads.sample)


def profile(threads: int) -> PlanProfile:
    return PlanProfile(stages=StageTimes(sample=threads / 2), step_s=float(threads), num_steps=3)


def agreed(search: Any, group: Any = ALONE) -> tuple[DevicePlan, list[DevicePlan]]:
    profiling = Profiling()
    return agree_on_plan(search, DEVICES, group, profiling), profiling.seen


def test_every_proposal_is_profiled_but_the_choice() -> None:
    search = Search([plan_of(3), plan_of(2), plan_of(1)])
    assert agreed(search) == (plan_of(1), [plan_of(3), plan_of(2)])
    assert search.learnt == [[profile(3)], [profile(2)]]


def test_what_has_converged_is_taken_as_it_is() -> None:
    search = Search([plan_of(4)])
    assert agreed(search) == (plan_of(4), [])
    assert search.learnt == []


class Leading:
    """A group as rank 0 of two sees it, or as the other does."""

    def __init__(self, proposals: list[Any], *, is_rank0: bool) -> None:
        self._proposals = iter(proposals)
        self._is_rank0 = is_rank0

    def broadcast_json(self, content: Any) -> Any:
        assert (content is not None) == self._is_rank0
        return json.loads(json.dumps(content if self._is_rank0 else next(self._proposals)))

    def gather(self, content: bytes) -> list[bytes]:
        other = json.dumps(profile(9).to_dict()).encode()
        return [content, other] if self._is_rank0 else []


def test_rank_0_learns_of_every_workers_figures() -> None:
    search = Search([plan_of(2), plan_of(1)])
    assert agreed(search, Leading([], is_rank0=True)) == (plan_of(1), [plan_of(2)])
    assert search.learnt == [[profile(2), profile(9)]]


def test_the_others_profile_what_they_are_told() -> None:
    proposals = [(plan_of(5).to_values(), False), (plan_of(6).to_values(), True)]
    assert agreed(None, Leading(proposals, is_rank0=False)) == (plan_of(6), [plan_of(5)])


@pytest.mark.parametrize(("step_s", "lines"), [(0.4, 0), (2.0, 2)])
def test_slow_rehearsals_are_announced(
    caplog: pytest.LogCaptureFixture, step_s: float, lines: int
) -> None:
    with caplog.at_level(logging.INFO):
        agreed(Search([plan_of(3), plan_of(2), plan_of(1)], step_s=step_s))
    assert len(caplog.messages) == lines
    assert all("about 2.0 s each" in message for message in caplog.messages)
