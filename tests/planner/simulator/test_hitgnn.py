import pytest

from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.hitgnn import ComputeDesign, LayerWorkload
from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.fpga_board import board
from gnnscale.planner.graphs import Degrees
from gnnscale.planner.simulator.hitgnn import (
    ALGORITHMS,
    SimulatedMachine,
    epoch_steps,
    local_share,
    part_batches,
    step,
)

PEAK = Efficiency(processor=1, memory=1, accelerator=1, link=1)
SIZE = BatchSize(vertices=(1000, 100, 10), edges=(900, 90))


def machine(num_cards: int, **figures: float) -> SimulatedMachine:
    usual = {"host_bandwidth": 205e9, "listed_bandwidth": 205e9, "efficiency": PEAK}
    return SimulatedMachine(
        board=board("u250"),
        design=ComputeDesign(n=8, m=2048),
        num_cards=num_cards,
        **usual | figures,
    )


def layer(sources: float = 1e6, rows: float = 1e4) -> LayerWorkload:
    return LayerWorkload(sources=sources, rows=rows, edges=1, width_in=64, width_out=32)


def test_shares_of_four_cards() -> None:
    assert local_share("p3", None, (25, 10), 1024, 4) == 1
    assert local_share("distdgl", None, (25, 10), 1024, 4) == pytest.approx(0.4, abs=0.01)
    # PaGraph's half of the inputs with a fifth of the vertices.
    assert local_share("pagraph", None, (25, 10), 1024, 5) == pytest.approx(0.5, abs=0.01)
    skewed = Degrees.lognormal(1e5, 20, 1.5)
    known = local_share("pagraph", skewed, (25, 10), 1024, 4)
    even = local_share("pagraph", Degrees.lognormal(1e5, 20, 0), (25, 10), 1024, 4)
    assert even == pytest.approx(0.25)
    assert 0.25 < known < 1
    assert {local_share(each, None, (25, 10), 1024, 1) for each in ALGORITHMS} == {1.0}


def test_bandwidths_and_parts_of_cards() -> None:
    assert machine(12).link_bandwidth == 15.75e9
    assert machine(16).link_bandwidth == pytest.approx(205e9 / 16)
    assert machine(4).bandwidth == 205e9 + 4 * 77e9
    assert machine(4).watts == 4 * 45
    # 95, 98.3, 101.7 and 105 % of 60: the largest rests get what rounding down leaves.
    assert part_batches(240, 4) == (57, 59, 61, 63)
    assert part_batches(240, 4, imbalance=0) == (60, 60, 60, 60)
    assert part_batches(7, 1) == (7,)
    assert sorted(part_batches(3, 4)) == [0, 1, 1, 1]


def test_what_limits_a_step() -> None:
    given = {"algorithm": "distdgl", "local": 0.5}
    direct = step(machine(2), [layer()], **given)
    other = step(machine(2), [layer()], **given, direct=False)
    half = 0.5e6 * 64 * 4
    assert other.seconds - direct.seconds == pytest.approx(half / 15.75e9)
    assert direct.bottleneck == "link"
    alone = step(machine(1), [layer()], algorithm="p3", local=1)
    four = step(machine(4), [layer()], algorithm="p3", local=1)
    # A card sends three quarters of the aggregated rows, and gets as much.
    assert four.limits["exchange"] == pytest.approx(2 * 0.75 * 1e4 * 64 * 4 / 15.75e9)
    assert four.limits["sync"] == pytest.approx(2 * 64 * 32 * 4 / 15.75e9)
    together = four.limits["exchange"] + four.limits["sync"]
    assert four.seconds - alone.seconds == pytest.approx(together)
    assert "sync" not in alone.limits


def test_two_stage_scheduling_by_hand() -> None:
    for counts, balanced, alone in (
        # A step of two, and then two from the first part: one each, or one after the other.
        *[((3, 3), 3, 3), ((3, 1), 2, 3), ((4, 0), 2, 4), ((3, 2, 1), 2, 3)],
        # Five mini-batches on two cards: the last step has one.
        ((4, 1), 3, 4),
    ):
        assert epoch_steps(counts, balanced=True) == balanced
        assert epoch_steps(counts, balanced=False) == alone
