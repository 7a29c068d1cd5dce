import numpy as np
import pytest

from gnnscale.backend.base import DeviceError
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import (
    check_outcome,
    engine_cycles,
    step_counters,
    train_alone,
)
from gnnscale.core import ConfigError
from gnnscale.nn import GCN
from gnnscale.planner import Fpga
from gnnscale.sampling import NeighborSampler

MAGIC = 0x474E4E53
DEVICE = Fpga(name="card", n=4, m=64, clock_hz=1000)
ON_CARD = Fpga(n=4, m=64, bitstream="gnn.xclbin")


def outcome(*, magic=MAGIC, status=0, stage=0, loss=0, n=4, m=64):
    words = np.zeros(32, np.uint32)
    words[:6] = [magic, status, stage, np.float32(loss).view(np.uint32), n, m]
    return words


def test_a_loss_or_what_a_kernel_may_say_instead():
    assert check_outcome(outcome(loss=1.5), DEVICE) == 1.5
    for fields, message in (
        ({"magic": 0}, "the kernel wrote no outcome; is the bitstream that of gnnscale"),
        ({"n": 2}, "expected a bitstream of n=4 and m=64, got n=2 and m=64"),
        ({"m": 128}, "expected a bitstream of n=4 and m=64, got n=4 and m=128"),
        ({"status": 1, "stage": 2}, "refused stage 2 of a mini-batch: its rows do not fit"),
        ({"status": 2}, "refused stage 0 of a mini-batch: its output rows are too wide"),
        ({"status": 3}, "the model has too many layers"),
        ({"status": 9}, "status 9"),
        # What is of another design may be of another format.
        ({"n": 2, "status": 1}, "expected a bitstream of n=4"),
    ):
        with pytest.raises(DeviceError, match=f"^card: .*{message}") as caught:
            check_outcome(outcome(**fields), DEVICE)
        assert "\n" not in str(caught.value)


def counted(**given):
    names = (
        *("cycles", "forward", "loss", "weight_gradients", "backward", "duplicated", "edges"),
        *("multiplying", "transferring", "feature_words", "edge_words", "weight_words"),
        *("gradient_words", "scratch_words", "other_words", "bursts", "burst_gaps", "latency"),
        *("source_switches", "routing_conflicts", "hazards"),
    )
    return dict.fromkeys(names, 0) | given


def test_engines_by_hand():
    # A row a cycle; or an edge a cycle and PE, if that is more.
    given = counted(duplicated=30, edges=100, multiplying=7, transferring=9)
    assert engine_cycles(given, Fpga(n=4)) == {"aggregate": 30, "update": 7, "memory": 9}
    assert engine_cycles(given, Fpga(n=2)) == {"aggregate": 50, "update": 7, "memory": 9}
    # At 600 MHz, 19.25 GB/s are a word in two cycles, nearly.
    fast = engine_cycles(given, Fpga(clock_hz=600_000_000))
    assert fast["memory"] == pytest.approx(9 * 64 * 600e6 / 19.25e9)


def test_a_step_takes_as_long_as_its_slowest_unit():
    units = [
        counted(cycles=500, edges=8, feature_words=2, scratch_words=1, hazards=3, multiplying=1),
        counted(cycles=700, edges=80, feature_words=5, other_words=4, hazards=4, multiplying=2),
    ]
    counters, seconds = step_counters(units, [0.25, 0.5], DEVICE)
    assert seconds == {"propagate": 0.7}
    # What tables are made of says what it is.
    assert all(name.startswith("csim_") for name in counters)
    expected = {"cycles": 700, "simulating_s": 0.5, "aggregate_cycles": 20, "update_cycles": 2}
    expected |= {"feature_bytes": 64 * 7, "scratch_bytes": 64, "other_bytes": 64 * 4, "edges": 88}
    expected |= {"hazards": 7, "edge_bytes": 0}
    assert {short: counters[f"csim_{short}"] for short in expected} == expected


def test_hardware_and_steps_without_seeds_count_nothing():
    assert step_counters([{}, {}], [0.25, 0.5], ON_CARD) == ({}, {"propagate": 0.5})
    assert step_counters([], [], DEVICE) == step_counters([], [], ON_CARD) == ({}, {})


@pytest.mark.integration
def test_a_unit_alone_trains_a_step(random_graph, csim_home, monkeypatch):
    monkeypatch.setenv("GNNSCALE_HOME", str(csim_home))
    graph, kernels = random_graph(num_features=20), library(SimulatedDesign())
    model = GCN(hidden=9, dropout=0).build(num_features=20, num_classes=graph.num_classes)
    batch = NeighborSampler(graph, fanouts=[5, 5], seed=1).sample(np.arange(12), 0)
    found = train_alone(kernels, ChipLimits(n=2), graph, model, batch)
    assert 0 < found.counters["loss"] < found.counters["cycles"]
    assert np.isfinite(found.gradients.view(np.float32)).all()
    assert found.gradients.any()
    with pytest.raises(ConfigError, match="row"):
        train_alone(kernels, ChipLimits(n=2, row_words=4), graph, model, batch)
