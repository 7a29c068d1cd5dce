import numpy as np
from small_plans import CPU, accelerator, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.sampling import ShuffledOrder
from gnnscale.training.drm.rebalancer import Rebalancer, medians
from gnnscale.training.pipeline.slices import Schedule

PLAN = plan_of(
    share(CPU, 60, prefetch="two_stage"),
    share(accelerator(), 60, threads=(1, 1, 0), prefetch="two_stage"),
)


def test_medians_by_hand() -> None:
    steps = [
        (StageTimes(sample=1.0, load=5.0), StageTimes(sync=2.0)),
        (StageTimes(sample=9.0, load=4.0), StageTimes(sync=1.0)),
        (StageTimes(sample=2.0, load=6.0), StageTimes(sync=7.0)),
    ]
    assert medians(steps) == (StageTimes(sample=2.0, load=5.0), StageTimes(sync=2.0))


def test_a_decision_applies_to_steps_that_are_not_under_way() -> None:
    order = ShuffledOrder(np.arange(12_000), batch_size=120, seed=0)
    schedule = Schedule(order, PLAN, rank=0, epochs=1, first_step=0, lead_steps=3)
    rebalancer = Rebalancer(schedule, first_step=0, lead_steps=3)
    slow = (StageTimes(propagate=0.3), StageTimes(propagate=0.1))
    # The first steps tell nothing, the median is of three, and the last of an epoch is not full.
    full = [True, True, True, False, True, True]
    decisions = [rebalancer.observe(step, slow, full=each) for step, each in enumerate(full)]
    assert decisions[:5] == [None] * 5
    assert decisions[5] is not None
    assert [schedule.plan_of(step) for step in range(8)] == [PLAN] * 8
    later = schedule.plan_of(8)
    assert later.shares[0].num_seeds < 60 < later.shares[1].num_seeds
    assert later.batch_size == 120
