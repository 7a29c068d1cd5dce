import numpy as np
import pytest

from gnnscale.core.stages import StageTimes
from gnnscale.graph import Graph
from gnnscale.nn.cost import LayerWork
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model.equations import BatchSize, PlanPredictions, Prediction
from gnnscale.sampling import NeighborSampler

Layers = tuple[tuple[LayerWork, LayerWork], ...]
#: Two layers, forward and backward.
LAYERS = (
    (LayerWork(read_bytes=320, macs=50), LayerWork(macs=50, stream_bytes=32)),
    (LayerWork(read_bytes=64, macs=10), LayerWork(read_bytes=64, macs=20)),
)


def trainer(layers: Layers = LAYERS, *, pipelined: bool) -> float:
    rates = {"memory_bandwidth": 32, "macs_per_s": 10}
    return equations.trainer_seconds(layers, **rates, pipelined=pipelined)


def test_sizes_of_a_batch(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3: the seed 0 reaches 1 and 2, and these reach 0 and 3.
    batch = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0]), 0)
    assert BatchSize.of(batch) == BatchSize(vertices=(4, 3, 1), edges=(5, 2))
    assert BatchSize.of(batch).num_edges == batch.num_edges == 7


def test_equations_7_8_and_13() -> None:
    assert equations.load_seconds(300, 100) == 3
    assert equations.transfer_seconds(300, 100, 0.5) == 3.5
    assert equations.sync_seconds(300, 100, 0.5) == 7


def test_trainer_with_overlap_is_the_maximum() -> None:
    assert trainer(pipelined=True) == 10 + 5 + 2 + 2
    # Without, it is the sum: aggregation takes 10 + 1 + 2 + 2, update 5 + 5 + 1 + 2.
    assert trainer(pipelined=False) == 15 + 13


def test_operands_are_read_while_products_multiply_forward() -> None:
    layers = (
        (LayerWork(macs=50, operand_bytes=64), LayerWork(macs=50, operand_bytes=64)),
        (LayerWork(macs=10, operand_bytes=96), LayerWork(macs=20)),
    )
    found = equations.product_seconds(layers, macs_per_s=10, operand_bandwidth=32)
    assert found == 5 + (5 + 2) + 3 + 2
    # An accelerator's memory has them too.
    assert trainer(layers, pipelined=False) == 2 + 2 + 3 + 13


@pytest.mark.parametrize(
    ("prefetch", "seconds"), [("none", 16), ("one_stage", 9), ("two_stage", 7)]
)
def test_stages_that_overlap_count_as_the_longest(prefetch: str, seconds: float) -> None:
    stages = StageTimes(sample=2, load=2, exchange=1, transfer=4, propagate=6, sync=1)
    assert equations.pipeline_seconds(stages, prefetch) == seconds


def test_a_rehearsal_goes_before_rates() -> None:
    rates, rehearsed = (
        Prediction(devices=(), step_s=s, num_edges=1, source="here") for s in (1.0, 2.0)
    )
    found = PlanPredictions(by_rates=rates, window_steps=3)
    assert (found.basis, found.best) == ("by_rates", rates)
    found = PlanPredictions(by_rates=rates, rehearsed=rehearsed, window_steps=3)
    assert (found.basis, found.best) == ("rehearsed", rehearsed)
