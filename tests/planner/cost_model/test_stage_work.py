import pytest
from round_figures import processor, workload

from gnnscale.nn.cost import LayerCost, LayerWork
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.predict import Host
from gnnscale.planner.cost_model.stage_work import (
    activation_bytes,
    load_work,
    propagation_work,
    transfer_bytes,
)

SIZE = BatchSize(vertices=(100.0, 10.0, 2.0), edges=(120.0, 12.0))


def test_what_loading_reads() -> None:
    work = load_work(workload(), SIZE, cache=0)
    assert (work.rows, work.missed_rows) == (100, 100)
    assert (work.cached_bytes, work.memory_bytes) == (0, 100 * 144)
    assert work.lookups == 0
    aligned = LayerCost(width_in=32, width_out=8, products=((32, 8),))
    assert load_work(workload(layers=(aligned,)), SIZE, cache=0).memory_bytes == 100 * 128
    askew = LayerCost(width_in=33, width_out=8, products=((33, 8),))
    assert load_work(workload(layers=(askew,)), SIZE, cache=0).memory_bytes == 100 * (132 + 64)
    work = load_work(workload(host_aggregates=True, uses_degrees=True), SIZE, cache=0)
    assert (work.rows, work.missed_rows) == (130, 100)
    assert (work.cached_bytes, work.memory_bytes) == (30 * 144, 100 * 144)
    assert work.lookups == 220
    small = workload(num_vertices=100)
    assert load_work(small, SIZE, cache=8 * 100 * 80).memory_bytes == 0
    assert load_work(small, SIZE, cache=4 * 100 * 80).memory_bytes == 50 * 144
    concatenated = LayerCost(width_in=20, width_out=8, products=((40, 8),))
    layers = (concatenated, workload().layers[1])
    known = workload(host_aggregates=True, preaggregated=True, feature_bytes=2, layers=layers)
    ready = BatchSize(vertices=(10.0, 10.0, 2.0), edges=(0.0, 12.0))
    work = load_work(known, ready, cache=0)
    # float32 whatever the features are stored as: 160 bytes, and the ends' other cache line.
    assert (work.rows, work.missed_rows, work.memory_bytes) == (10, 10, 10 * (160 + 64))
    assert known.num_vertices * known.row_bytes == 1_000_000 * 160
    # What crosses the link is what the host would have aggregated.
    whole = workload(host_aggregates=True, layers=layers)
    assert transfer_bytes(known, ready) == transfer_bytes(whole, SIZE)


def test_rows_are_widened_and_written() -> None:
    """Wide rows of uint8 are read as few bytes, and make many."""
    narrow = workload(feature_bytes=1)
    size = narrow.size(100)
    work = load_work(narrow, size, cache=4)
    assert work.widened == work.rows * 20
    assert work.written_bytes == size.vertices[0] * 20 * 4
    assert load_work(workload(), size, cache=4).widened == 0
    aggregated = workload(feature_bytes=1, host_aggregates=True)
    assert load_work(aggregated, size, cache=4).written_bytes == size.vertices[1] * 20 * 4

    def seconds(**rates: list[float]) -> float:
        host = Host(processor=processor(1, **rates), num_workers=1, emulates=False)
        return host.load(narrow, size, 1, 1)

    free = seconds()
    assert seconds(widened_per_s=[1e6]) - free == pytest.approx(work.widened / 1e6)
    assert seconds(write_bandwidth=[1e6]) - free == pytest.approx(work.written_bytes / 1e6)


def test_propagation_is_each_layers_own_work() -> None:
    known = workload()
    (first, first_back), (second, second_back) = propagation_work(known, SIZE)
    one, two = known.layers
    assert first == one.forward(edges=120, targets=10, sources=100, aggregated=False)
    assert first_back == one.backward(edges=120, targets=10, sources=100, first=True)
    assert second == two.forward(edges=12, targets=2, sources=10, aggregated=False)
    assert second_back == two.backward(edges=12, targets=2, sources=10, first=False)
    fused = propagation_work(workload(host_aggregates=True), SIZE)
    assert fused[0][0] == one.forward(edges=120, targets=10, sources=100, aggregated=True)
    assert fused[1:] == ((second, second_back),)
    assert sum((w for layer in fused for w in layer), start=LayerWork()).operations == 2
    layer = LayerCost(width_in=20, width_out=8, products=((20, 8),), attention=2)
    attends = workload(host_aggregates=True, layers=(layer,))
    assert not attends.aggregates_on_load
    size = BatchSize(vertices=(100.0, 10.0), edges=(120.0,))
    # Every source is sent with all of its features, and the block with it.
    assert transfer_bytes(attends, size) == (100 * 20 * 4, 8 * 11 + 4 * 120)
    assert activation_bytes(workload(), SIZE) == 8 * (10 * 8 + 2 * 4)
