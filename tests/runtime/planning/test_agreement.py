from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Threads
from gnnscale.plan.perf.equations import Prediction
from gnnscale.runtime.planning.agreement import agree_on_plan
from gnnscale.runtime.planning.profile import PlanProfile
from gnnscale.runtime.sync.group import ALONE

DEVICES = (Cpu(name="cpu:0"),)


def plan(threads: int) -> DevicePlan:
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
    search = Search([plan(3), plan(2), plan(1)])
    assert agreed(search) == (plan(1), [plan(3), plan(2)])
    assert search.learnt == [[profile(3)], [profile(2)]]


def test_what_has_converged_is_taken_as_it_is() -> None:
    search = Search([plan(4)])
    assert agreed(search) == (plan(4), [])
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
    search = Search([plan(2), plan(1)])
    assert agreed(search, Leading([], is_rank0=True)) == (plan(1), [plan(2)])
    assert search.learnt == [[profile(2), profile(9)]]


def test_the_others_profile_what_they_are_told() -> None:
    proposals = [(plan(5).to_values(), False), (plan(6).to_values(), True)]
    assert agreed(None, Leading(proposals, is_rank0=False)) == (plan(6), [plan(5)])


@pytest.mark.parametrize(("step_s", "lines"), [(0.4, 0), (2.0, 2)])
def test_slow_rehearsals_are_announced(
    caplog: pytest.LogCaptureFixture, step_s: float, lines: int
) -> None:
    with caplog.at_level(logging.INFO):
        agreed(Search([plan(3), plan(2), plan(1)], step_s=step_s))
    assert len(caplog.messages) == lines
    assert all("about 2.0 s each" in message for message in caplog.messages)
