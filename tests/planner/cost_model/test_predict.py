from dataclasses import replace

import pytest
from round_figures import plan_of, platform, predicted, share, workload

from gnnscale.planner import Cpu
from gnnscale.planner.cost_model.workload import SourceEffect


def effect(seconds: float, *, num_seeds: int) -> SourceEffect:
    rows = workload().size(num_seeds).vertices[0]
    return SourceEffect(row_misses=0.25, row_s=4 * seconds / rows)


@pytest.mark.parametrize("prefetch", ["none", "one_stage", "two_stage"])
def test_a_step_takes_as_long_as_the_disk_if_that_is_longer(prefetch: str) -> None:
    plan = plan_of(share(Cpu(), 100, prefetch=prefetch))
    free = predicted(plan, platform())
    slow = workload(source=effect(10 * free.step_s, num_seeds=100))
    waiting = predicted(plan, platform(), slow)
    assert waiting.step_s == pytest.approx(10 * free.step_s, rel=0.05)
    (before,), (after,) = free.devices, waiting.devices
    assert after.load > before.load
    # It reads while the other stages run.
    fast = workload(source=effect(0.1 * before.load, num_seeds=100))
    assert predicted(plan, platform(), fast) == replace(free, is_mean=True)
