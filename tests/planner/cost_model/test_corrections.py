import numpy as np
import pytest
from round_figures import accelerator, plan_of, platform, predicted, share, workload

from gnnscale.core.stages import StageTimes
from gnnscale.graph import Graph
from gnnscale.planner import Cpu, DevicePlan, Emulated
from gnnscale.planner.cost_model import corrections as counted
from gnnscale.planner.cost_model.corrections import WorkCounter, nominal_platform
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.workload import KnownSlices
from gnnscale.sampling import NeighborSampler


def beside(device: Emulated) -> DevicePlan:
    return plan_of(share(Cpu(name="cpu:0"), 1, "two_stage"), share(device, 1, "one_stage"))


@pytest.fixture
def size(tiny_graph: Graph) -> BatchSize:
    """The seed 0 reaches 1 and 2, and these reach 0 and 3: 4, 3 and 1 vertices, 5 and 2 edges."""
    return BatchSize.of(NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0]), 0))


def test_work_is_counted_by_hand(size, monkeypatch, tiny_graph) -> None:
    # A thread samples a million edges a second; the link brings a gigabyte a second.
    monkeypatch.setattr(counted, "nominal_platform", platform)
    plan = beside(accelerator(launch_s=0.5))
    found = [WorkCounter(workload(), rank=i, cores=4).stage_times(plan, size) for i in (0, 1)]
    assert [each.sample for each in found] == pytest.approx([7e-6, 7e-6])
    # 4 rows of 20 floats; offsets of 3 + 1 and 1 + 1 vertices, and 5 + 2 edges.
    sent = 4 * 20 * 4 + 8 * (3 + 1) + 4 * 5 + 8 * (1 + 1) + 4 * 2
    assert [each.transfer for each in found] == pytest.approx([0.0, sent / 1e9])
    # Its own clock says that its propagation takes half a second.
    assert found[0].propagate < 1e-4
    assert found[1].propagate == pytest.approx(0.5, rel=1e-3)
    work, plan = WorkCounter(workload(), rank=0, cores=4), beside(accelerator())
    empty = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([], np.int64), 0)
    for size in (None, BatchSize.of(empty)):
        assert work.stage_times(plan, size) == StageTimes()


@pytest.mark.parametrize(("rank", "cores"), [(0, 2), (1, 2), (0, 8), (1, 8)])
def test_what_is_counted_is_what_the_planner_expects(size, rank, cores) -> None:
    # Of a mini-batch with just these sizes, while all threads are busy.
    known = workload(slices=KnownSlices(num_seeds=(1,), sizes=(size,)))
    plan = beside(accelerator())
    work = WorkCounter(known, rank=rank, cores=cores)
    found = work.stage_times(plan, size)
    assert found == work.stage_times(plan, size)
    expected = predicted(plan, nominal_platform(cores), known).devices[rank]
    for stage in ("sample", "load", "transfer", "propagate"):
        told = getattr(expected, stage)
        if cores == 8:
            assert getattr(found, stage) == pytest.approx(told)
        else:  # the planner knows that not all of them are busy all the time
            assert told <= getattr(found, stage) <= 3 * told
