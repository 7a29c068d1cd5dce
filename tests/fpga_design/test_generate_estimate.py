import pytest

from gnnscale.fpga_design.dse import explore, make_goal
from gnnscale.fpga_design.generate import SimulationComparison, estimate
from gnnscale.nn import GCN
from gnnscale.planner.fpga_board import board, total
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.simulate import published_task
from gnnscale.sampling import NeighborSampling

CSIM = SimulationComparison(num_seeds=32, csim_cycles=110, equation_cycles=100.0)


@pytest.fixture(scope="module")
def made():
    graph = PUBLISHED["products"]
    sampler = NeighborSampling(fanouts=[25, 10])
    task = published_task("products", graph, GCN(hidden=64), sampler, batch_size=1024)
    goal = make_goal([(task, 1.0)], batch_size=1024, link_bandwidth=12e9)
    u250 = board("u250")
    found = explore(u250, goal, "ours")
    return u250, goal, found.best, estimate(u250, goal, found.best, CSIM)


@pytest.mark.long
def test_cycles_are_those_of_the_slowest_task_of_every_pass(made) -> None:
    _, _, _, found = made
    slowest = sum(max(each.load, each.aggregate, each.update) for each in found.passes)
    assert found.cycles == pytest.approx(found.groups * slowest)
    assert found.step_s == pytest.approx(found.cycles / 300e6)
    passes = ["0, forward", "1, forward", *(f"{n}, gradients of weights" for n in (0, 1))]
    names = [f"layer {each}" for each in (*passes, "1, gradients of rows")]
    assert [each.name for each in found.passes] == names


def test_throughput_is_that_of_the_exploration_and_said_to_be_estimated(made) -> None:
    _, goal, point, found = made
    assert found.nvtps == pytest.approx(point.nvtps)
    assert found.num_seeds == goal.batches[0].size.num_seeds == 1024
    plain = found.plain()
    assert plain["figures"] == "estimated"
    sizes = {"num_seeds": 32, "csim_cycles": 110, "equation_cycles": 100.0}
    assert plain["csim"] == sizes | {"ratio": 1.1}


def test_resources_are_those_of_the_parts(made) -> None:
    u250, _, point, found = made
    whole = total(found.processes.values())
    for die in u250.dies:
        share = (whole.luts + die.shell.luts) / die.has.luts
        assert found.shares[die.name]["luts"] == pytest.approx(share)
    assert found.fits
    assert point.shares["luts"] == pytest.approx(found.shares["SLR0"]["luts"])
