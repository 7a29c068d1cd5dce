import pytest

from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.stage_work import step_bytes


def test_by_hand() -> None:
    # Two devices: 10 inputs, 4 hidden rows, 2 seeds, 12 edges; and 5, 3, 1, 6.
    sizes = [
        BatchSize(vertices=(10, 4, 2), edges=(12, 5)),
        BatchSize(vertices=(5, 3, 1), edges=(6, 2)),
    ]
    found = step_bytes(sizes, widths=(100, 8, 3), feature_bytes=4, num_first_weights=1600)
    assert found.features == 15 * 100 * 4
    assert found.first_gradients == 2 * 1600 * 4
    assert found.blocks == (24 + 40 + 16 + 48) + (24 + 20 + 12 + 24)
    assert found.partials == 2 * 7 * 8 * 4
    assert found.data_parallel == 6000 + 12800
    assert found.p3 == 208 + 448
    assert found.cheaper == "p3"
    size = BatchSize(vertices=(10, 4, 2), edges=(12, 5))
    found = step_bytes([size], widths=(8, 8, 3), feature_bytes=1, num_first_weights=64, id_bytes=8)
    assert (found.blocks, found.partials, found.first_gradients) == (0, 0, 0)
    assert found.features == 80


@pytest.mark.parametrize(
    ("inputs", "hidden", "cheaper"), [(1000, 16, "p3"), (16, 1000, "data_parallel")]
)
def test_p3_wins_where_inputs_are_wide_and_hidden_rows_are_not(inputs, hidden, cheaper) -> None:
    sizes, widths = [BatchSize(vertices=(500, 100, 10), edges=(1000, 100))] * 4, (inputs, hidden, 2)
    found = step_bytes(sizes, widths=widths, feature_bytes=4, num_first_weights=inputs * hidden)
    assert found.cheaper == cheaper
