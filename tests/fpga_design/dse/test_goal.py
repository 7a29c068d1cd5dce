import pytest
from design_goals import goal
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.dse.goal import Point, best_of, pareto, part_of
from gnnscale.nn import GAT, GIN, GraphSAGE


def test_slices_share_neighbours_and_an_equal_part_has_its_part_of_everything() -> None:
    whole = goal()
    (batch,), (quarter,) = whole.batches, whole.slices(4)
    assert batch.size.num_seeds == 1024
    assert quarter.size.num_seeds == 256
    assert 4 * quarter.size.vertices[0] > batch.size.vertices[0]
    part = part_of(batch, 4)
    assert part.layers[0].edges == batch.layers[0].edges / 4
    assert part.layers[1].rows == batch.layers[1].rows / 4
    assert part.layers[0].width_in == batch.layers[0].width_in
    assert part.size is batch.size


def test_units_share_the_link() -> None:
    whole = goal(local=0.5)
    one, four = (
        whole.passes(whole.batches, clock_hz=3e8, bandwidth=1e9, units=units)[0][0]
        for units in (1, 4)
    )
    assert four.link_s == pytest.approx(4 * one.link_s)
    assert four.memory_s == one.memory_s


def test_layers_are_those_of_the_model() -> None:
    (sage,) = goal(model=GraphSAGE(hidden=32)).batches
    assert [layer.slots for layer in sage.layers] == [2, 2]
    (gin,) = goal(model=GIN(hidden=32)).batches
    # The second product of a layer has no edges.
    assert [layer.edges > 0 for layer in gin.layers] == [True, False, True, False]
    with pytest.raises(ConfigError, match="attention or weighted messages in layer 0"):
        goal(model=GAT(hidden=32, num_heads=4))


def point(nvtps: float, fullest: float) -> Point:
    shares = {"luts": fullest, "dsps": fullest / 2}
    design = {"n": 2, "m": 256, "dies": ("SLR0", "SLR1"), "limit": "luts of SLR0"}
    return Point(**design, nvtps=nvtps, bottleneck="update", shares=shares)


def test_the_fastest_is_best_and_of_equals_that_which_takes_less() -> None:
    fast, small, large = point(2, 0.8), point(1, 0.3), point(2, 0.7)
    assert best_of([fast, small, large]) is large
    # A card has what its dies have together.
    assert (small.card, small.fullest) == ((4, 512), 0.3)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_no_point_of_the_front_is_beaten(pairs: list[tuple[int, int]]) -> None:
    points = [point(nvtps, fullest / 10) for nvtps, fullest in pairs]
    front = pareto(points)
    assert best_of(points).nvtps == max(each.nvtps for each in front)
    for one in points:
        size = one.nvtps, one.fullest
        others = [p for p in points if (p.nvtps, p.fullest) != size]
        beaten = any(p.nvtps >= one.nvtps and p.fullest <= one.fullest for p in others)
        assert any((p.nvtps, p.fullest) == size for p in front) != beaten
