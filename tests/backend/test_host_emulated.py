from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend import Backend, BatchOutcome, DeviceMemoryError, EmulatedBackend
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.backend.host import link_bytes, passes, size_of_part
from gnnscale.core.stages import Access, Traffic
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GNN, GraphSAGE, Inputs
from gnnscale.planner import Cpu, Emulated
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.stage_work import batch_bytes
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.planner.planner import batch_memory_bytes
from gnnscale.sampling import MiniBatch, NeighborSampler

Open = Callable[..., Any]
NewModel = Callable[[], GNN]


def emulated(**fields: Any) -> Emulated:
    """An accelerator whose stages take no time that could be measured, unless told otherwise."""
    fast = dict.fromkeys(("macs_per_s", "memory_bandwidth", "link_bandwidth"), 1e18)
    return Emulated(**(fast | {"name": "emulated:0", "memory_bytes": 1 << 40} | fields))


def propagated(backend: Backend, batch: MiniBatch, weight: float = 1.0) -> BatchOutcome:
    arrived = backend.transfer(batch, backend.load(batch))
    backend.propagate(arrived, weight)
    return backend.finish(arrived)


def test_sizes_by_hand(tiny_graph: Graph) -> None:
    model = GraphSAGE(hidden=4, dropout=0).build(num_features=2, num_classes=2)
    batch = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0]), 0)
    # 0 <- 1, 2 above; below, 0 <- 1, 2; 1 <- 3; 2 <- 0, 3.
    assert [(b.num_dst, b.num_src, b.num_edges) for b in batch.blocks] == [(3, 4, 5), (1, 3, 2)]
    indptr, index = batch.blocks[0].indptr.itemsize, batch.blocks[0].indices.itemsize
    topology = [4 * indptr + 5 * index, 2 * indptr + 2 * index]
    gathered = FeatureLoader(tiny_graph, model, num_threads=1, aggregates=False).load(batch)
    assert link_bytes(batch, gathered) == (4 * 2 * 4, sum(topology))
    # Aggregated rows have the vertex's own features, too; their edges stay on the host.
    aggregated = FeatureLoader(tiny_graph, model, num_threads=1).load(batch)
    assert link_bytes(batch, aggregated) == (3 * 4 * 4, topology[1])


@pytest.mark.parametrize("fused", [True, False])
def test_answers_are_the_processors(backend: Open, new_model: NewModel, fused: bool) -> None:
    models = new_model(), new_model()
    processor = backend(Cpu(host_aggregates=fused), models[0])
    accelerator = backend(emulated(launch_s=1e-3, host_aggregates=fused), models[1])
    for step in range(3):
        seeds = np.arange(step, 200, 3)
        left, right = processor.sample(seeds, step), accelerator.sample(seeds, step)
        assert left.input_vertices.tolist() == right.input_vertices.tolist()
        mine, theirs = propagated(processor, left, 0.3), propagated(accelerator, right, 0.3)
        assert (mine.loss, mine.num_edges) == (theirs.loss, theirs.num_edges)
    into = [torch.zeros_like(parameter) for parameter in models[1].parameters()]
    accelerator.copy_gradients(into)
    for copy, *parameters in zip(into, *(each.parameters() for each in models), strict=True):
        assert copy.any()
        assert all(torch.equal(copy, parameter.grad) for parameter in parameters)


def test_loading_takes_the_hosts_bandwidth(backend: Open, batch: MiniBatch, clock: Any) -> None:
    # Eq. 7: |V^0| rows of 20 features in float32.
    num_bytes = len(batch.input_vertices) * 20 * 4
    found = backend(emulated(host_bandwidth=num_bytes / 0.1))
    assert clock.took(lambda: found.load(batch))[0] == 0.1
    assert clock.took(lambda: backend(emulated()).load(batch))[0] == 0.0
    # Degrees are no obstacle.
    model = GCN(hidden=16, dropout=0).build(num_features=20, num_classes=5)
    losses = [propagated(backend(each, model), batch).loss for each in (emulated(), Cpu())]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("fused", [True, False])
def test_a_transfer_takes_the_links_time(backend, batch, clock, fused) -> None:
    inputs = backend(Cpu(host_aggregates=fused)).load(batch)
    rows, lists = link_bytes(batch, inputs)
    # Eq. 8, and a latency.
    bandwidth = (rows + lists) / 0.07
    device = emulated(link_bandwidth=bandwidth, link_latency_s=0.03, link_request_bytes=128)
    seconds, arrived = clock.took(lambda: backend(device).transfer(batch, inputs))
    assert seconds == 0.1
    read = len(batch.input_vertices) * 20 * 4
    assert arrived.traffic == Traffic(
        rows=Access(host_bytes=read, link_bytes=rows, link_requests=-(-rows // 128)),
        lists=Access(link_bytes=lists, link_requests=-(-lists // 128)),
    )


def test_what_the_host_has_sampled_crosses_the_link(backend: Open, clock: Any) -> None:
    seeds = np.arange(0, 300, 5)
    found = backend(emulated(sampled_edges_per_s=1000, link_bandwidth=1e6))
    seconds, batch = clock.took(lambda: found.sample_on_host(seeds, 0))
    assert seconds == 0.0
    by_device = found.sample(seeds, 1)
    moved = found.receive_sample(batch, seeds)
    assert moved is batch
    for each, crosses in ((batch, True), (by_device, False)):
        inputs = found.load(each)
        lists = link_bytes(each, inputs)[1]
        traffic = found.transfer(each, inputs).traffic.lists
        assert (traffic.link_bytes == lists) == crosses


def eq_10(batch: MiniBatch, rate: float, bandwidth: float, *, pipelined: bool) -> float:
    """Eq. 10 to 12 for two layers of GraphSAGE with 20, 16 and 5 features, gathered."""
    seconds = 0.0
    for number, (block, width, out) in enumerate(zip(batch.blocks, (20, 16), (16, 5), strict=True)):
        rows = block.num_dst
        read = (block.num_edges + rows) * width * 4
        for products, reads in ((1, 1), (2 - (number == 0), number)):
            aggregate = (reads * read + products * rows * (2 * width + out) * 4) / bandwidth
            update = products * rows * 2 * width * out / rate
            seconds += max(aggregate, update) if pipelined else aggregate + update
    return seconds


@pytest.mark.parametrize("pipelined", [True, False])
def test_propagation_takes_the_devices_time(backend, batch, clock, pipelined) -> None:
    scale = eq_10(batch, 1.0, 0.5, pipelined=pipelined) / 0.1
    rates = {"macs_per_s": scale, "memory_bandwidth": 0.5 * scale, "pipelined": pipelined}
    found = backend(emulated(**rates, launch_s=0.02, host_aggregates=False))
    resident = found.transfer(batch, found.load(batch))
    assert clock.took(lambda: found.propagate(resident, 1.0))[0] == 0.12


def test_gradients_and_weights_cross_the_link(backend: Open, model: GNN, clock: Any) -> None:
    # Eq. 13: all weights once in each direction.
    into = [torch.zeros_like(parameter) for parameter in model.parameters()]
    num_bytes = 4 * sum(parameter.numel() for parameter in into)
    found = backend(emulated(link_bandwidth=num_bytes / 0.06, link_latency_s=0.02), model)
    assert clock.took(lambda: found.copy_gradients(into))[0] == 0.08
    assert clock.took(found.update_weights)[0] == 0.08


def test_a_host_that_is_slower_is_counted(backend, batch, model, clock) -> None:
    model.register_forward_hook(lambda *_: clock.advance(0.2))
    found = backend(emulated(link_latency_s=0.1, launch_s=0.05), model)
    seconds, outcomes = clock.took(lambda: [propagated(found, batch) for _ in range(3)])
    assert seconds == 3 * (0.1 + 0.2)
    # The transfer takes its time, propagation the host's.
    late = {"late_s": 0.2 - 0.05, "late_stages": 1, "late_steps": 1}
    assert [each.counters for each in outcomes] == [pytest.approx(late)] * 3


def test_an_emulated_processor_transfers_nothing(backend, batch, model, clock) -> None:
    found = backend(emulated(link_bandwidth=None, link_latency_s=0.5, launch_s=0.05), model)
    assert found.device.on_host
    inputs = found.load(batch)
    seconds, resident = clock.took(lambda: found.transfer(batch, inputs))
    assert seconds == 0.0
    assert resident.traffic == inputs.traffic
    assert clock.took(lambda: found.propagate(resident, 1.0))[0] == 0.05
    into = [torch.zeros_like(parameter) for parameter in model.parameters()]
    assert clock.took(lambda: found.copy_gradients(into))[0] == 0.0
    assert clock.took(found.update_weights)[0] == 0.0


@pytest.fixture
def need(backend: Open, batch: MiniBatch, model: GNN) -> tuple[int, int, Inputs]:
    """Bytes of the model with gradients and moments, bytes of a mini-batch, and its input."""
    inputs = backend(Cpu(), model).load(batch)
    weights = sum(parameter.numel() for parameter in model.parameters())
    rows = [block.num_dst for block in batch.blocks]
    activations = sum(8 * n * width for n, width in zip(rows, model.widths[1:], strict=True))
    return 16 * weights, sum(link_bytes(batch, inputs)) + activations, inputs


def test_memory_is_refused_beyond_the_budget_and_given_back(backend, batch, need) -> None:
    model, one, inputs = need
    found = backend(emulated(memory_bytes=model + 2 * one, name="small"))
    assert isinstance(found, EmulatedBackend)
    residents = [found.transfer(batch, inputs) for _ in range(2)]
    assert [each.num_bytes for each in residents] == [one, one]
    with pytest.raises(DeviceMemoryError) as error:
        found.transfer(batch, inputs)
    assert "\n" not in str(error.value)
    for part in ("small: out of device memory", f"{len(batch.seeds)} seeds", "smaller cache"):
        assert part in str(error.value)
    found.propagate(residents[0], 1.0)
    found.finish(residents[0])
    found.transfer(batch, inputs)
    with pytest.raises(DeviceMemoryError):
        found.transfer(batch, inputs)


@pytest.mark.parametrize("aggregates", [True, False])
def test_the_planner_counts_what_the_device_does(backend, batch, graph, model, aggregates) -> None:
    device = emulated(host_aggregates=aggregates)
    found = backend(device, model)
    arrived = found.transfer(batch, found.load(batch))
    work = unmeasured_workload(graph, model).on(device)
    assert arrived.num_bytes == int(batch_bytes(work, BatchSize.of(batch)))
    backend(emulated(memory_bytes=device.memory_bytes - batch_memory_bytes(device, work)), model)


@pytest.mark.parametrize("fused", [True, False])
def test_a_mini_batch_larger_than_memory_is_trained_in_parts(
    backend: Open, batch: MiniBatch, new_model: NewModel, clock: Any, caplog: Any, fused: bool
) -> None:
    options = {"host_aggregates": fused, "launch_s": 1.0, "link_latency_s": 10.0}

    def trained(device: Emulated, model: GNN) -> tuple[Any, float, float, float]:
        mine = backend(device, model)
        inputs = mine.load(batch)
        sent_s, arrived = clock.took(lambda: mine.transfer(batch, inputs))
        trained_s, _ = clock.took(lambda: mine.propagate(arrived, 1.0))
        return arrived, sent_s, trained_s, mine.finish(arrived).loss

    models = [new_model(), new_model()]
    one, _, _, loss = trained(emulated(**options), models[0])
    weights = 16 * sum(each.numel() for each in models[0].parameters())
    small = emulated(**options, memory_bytes=weights + int(0.7 * one.num_bytes), name="small")
    cut, sent_s, trained_s, cut_loss = trained(small, models[1])
    num_parts = len(cut.sizes)
    assert len(one.sizes) == 1 < num_parts
    assert cut.num_bytes <= small.memory_bytes - weights < one.num_bytes
    # Each part is sent and launched by itself, and takes rows that others take as well.
    assert sent_s == pytest.approx(10.0 * num_parts)
    assert trained_s == pytest.approx(1.0 * num_parts)
    assert cut.traffic.rows.link_bytes > one.traffic.rows.link_bytes
    # What is learnt is that of the whole.
    assert cut_loss == loss
    for mine, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(mine.grad, other.grad)  # type: ignore[arg-type]
    assert f"are trained in {num_parts} parts" in caplog.text


def test_parts_wait_for_what_is_in_flight_and_a_seed_must_fit(backend, batch, need) -> None:
    model, one, inputs = need
    found = backend(emulated(memory_bytes=model + int(0.7 * one), name="small"))
    first = found.transfer(batch, inputs)
    with pytest.raises(DeviceMemoryError):
        found.transfer(batch, inputs)
    found.propagate(first, 1.0)
    found.finish(first)
    found.transfer(batch, inputs)
    found = backend(emulated(memory_bytes=model + 100, name="small"))
    with pytest.raises(DeviceMemoryError, match=r"^small: out of device memory: a seed of a m"):
        found.transfer(batch, inputs)
    # The model is refused at once.
    backend(emulated(memory_bytes=model))
    with pytest.raises(DeviceMemoryError, match="out of device memory: the model needs"):
        backend(emulated(memory_bytes=model - 1))


SEEDS = np.arange(0, 240, 6)


@pytest.fixture
def sampler(graph: Graph) -> NeighborSampler:
    return NeighborSampler(graph, fanouts=[4, 3], seed=1)


def test_a_part_is_the_mini_batch_of_its_seeds(sampler: NeighborSampler) -> None:
    """Samples follow from seed and step alone: those of some seeds are a part of those of all."""
    batch = sampler.sample(SEEDS, 3)
    for part in (range(40), range(1), range(7, 19), range(39, 40)):
        alone = sampler.sample(SEEDS[part.start : part.stop], 3)
        assert size_of_part(batch, part) == BatchSize.of(alone)


def test_seeds_are_halved_until_each_part_fits(sampler: NeighborSampler) -> None:
    batch: MiniBatch = sampler.sample(SEEDS, 0)
    whole = BatchSize.of(batch)

    def parts(limit: float) -> tuple[BatchSize, ...] | None:
        return passes(batch, range(40), lambda size: size.vertices[0] <= limit)

    assert parts(whole.vertices[0]) == (whole,)
    limit = whole.vertices[0] // 3
    found = parts(limit)
    assert found is not None
    assert len(found) > 2
    assert all(size.vertices[0] <= limit for size in found)
    assert sum(size.vertices[-1] for size in found) == 40
    # No edge to a seed is in two parts, and rows may be.
    assert sum(size.edges[-1] for size in found) == whole.edges[-1]
    assert sum(size.vertices[0] for size in found) > whole.vertices[0]
    # A seed that does not fit.
    assert parts(0) is None
