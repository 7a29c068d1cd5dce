"""Every kernel beside the host's code, and what a launch costs."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cuda.bench import TINY, Bench, random_graph
from gnnscale import ops
from gnnscale.backend.cuda.batch import batch_of
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.device_cache import ResidentCache
from gnnscale.backend.cuda.placement import place_graph
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.cache.plan import CliqueCache
from gnnscale.graph import EdgeData
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, Inputs
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling
from gnnscale.sampling.edge_removal import without_edges

ROOT = Path(__file__).parents[3]
SAMPLINGS: tuple[Any, ...] = (
    NeighborSampling(fanouts=[4, 3]),
    NeighborSampling(fanouts=[40, 3]),
    NeighborSampling(fanouts=[4, 3], replace=True),
    NeighborSampling(fanouts=[-1, 2]),
    WeightedSampling(fanouts=[4, 3]),
    WeightedSampling(fanouts=[4, 3], replace=True),
    LayerSampling(layer_sizes=[30, 20]),
)
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


def run(bench: Bench) -> None:
    """Compare, measure a launch, and compare under compute-sanitizer if it is there."""
    kernels_alone(bench)
    launch_cost(bench)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None or bench.on_host:
        bench.missing("check.sanitizer", "compute-sanitizer was not found")
        return
    for tool in ("memcheck", "racecheck"):
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable]
        command += [str(ROOT / "scripts" / "benchmarks" / "bench_cuda.py"), "kernels"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170)
        bench.note(f"check.{tool}", float(done.returncode == 0), "clean")
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-1000:])


def kernels_alone(bench: Bench) -> None:
    """Compare samplers, gathers and layers with the host's; raise if one differs."""
    count = 0
    for sampling in SAMPLINGS:
        for step, wide in product(range(3), (False, True)):
            _same_samples(bench, sampling, step, wide=wide)
            count += 1
    for dtype in _DTYPES:
        for width in (1, 25, 100, 128, 513):
            _same_rows(bench, dtype, width)
            count += 1
    _same_cache(bench)
    count += 1
    for config in (GCN, GraphSAGE, GIN, GAT):
        _same_gradients(bench, config)
        count += 1
    bench.note("check.comparisons", count, "equal")


def launch_cost(bench: Bench) -> None:
    """Measure the host's time of a launch, beside that of an operation of torch."""
    kernels = bench.engine.kernels
    times = torch.zeros(6, dtype=torch.int64, device=bench.engine.device)
    launches = {
        "check.launch_us": lambda: kernels.launch("step_time", times, np.int32(2), grid=1),
        "check.torch_us": lambda: times.add_(1),
    }
    for name, launch in launches.items():
        for _ in range(20):
            launch()
        start = time.perf_counter()
        for _ in range(200):
            launch()
        bench.note(name, (time.perf_counter() - start) / 200 * 1e6, "us")


def _same_samples(bench: Bench, sampling: Any, step: int, *, wide: bool) -> None:
    """Compare a sample, and in every third step one without some edges."""
    graph, sampler = _sampler(bench, sampling, wide=wide, leaves_out=step == 2)
    seeds = np.arange(0, 96, 3)
    native = sampling.sampler(graph, seed=7, num_threads=1).sample(
        seeds.astype(graph.indices.dtype), step
    )
    without = None
    if step == 2:
        destinations = seeds[:20]
        sources = graph.indices[graph.indptr[destinations]].astype(np.int64)
        native = without_edges(native, sources, destinations)
        ends = (torch.from_numpy(each).to(bench.engine.device) for each in (sources, destinations))
        without = tuple(ends)
    found = sampler.sample(
        torch.from_numpy(seeds).to(bench.engine.device), step, without=without
    ).to_minibatch(weight_sums=graph.weight_sums)
    assert np.array_equal(found.input_vertices, native.input_vertices), sampling
    for mine, theirs in zip(found.blocks, native.blocks, strict=True):
        for name in ("indptr", "indices", "importance", "edge_weights", "edge_vertices"):
            left, right = getattr(mine, name), getattr(theirs, name)
            assert (left is None) == (right is None), name
            assert left is None or np.array_equal(left, right), (sampling, name)


def _sampler(
    bench: Bench, sampling: Any, *, wide: bool = False, leaves_out: bool = False
) -> tuple[Any, CudaSampler]:
    graph = random_graph(TINY)
    if wide:
        graph = replace(graph, indices=graph.indices.astype(np.int64))
    if isinstance(sampling, WeightedSampling):
        weights = np.random.default_rng(1).random(graph.num_edges, np.float32)
        graph = replace(graph, edges=EdgeData(weights=weights))
    placed = place_graph(graph, bench.device, bench.engine, kept_bytes=0)
    how: Any = {"seed": 7, "max_seeds": 64, "device": bench.engine.device, "leaves_out": leaves_out}
    return graph, CudaSampler(placed.topology, bench.engine.kernels, sampling, **how)


def _same_rows(bench: Bench, dtype: torch.dtype, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    table = (torch.rand(97, width, generator=generator) * 50).to(dtype)
    ids = torch.randint(0, 97, (41,), generator=generator)
    count = torch.tensor([41], device=bench.engine.device)
    gather = RowGather(table.to(bench.engine.device), bench.engine.kernels, max_ids=41)
    found = gather.gather(ids.to(bench.engine.device), count)
    found.check()
    assert torch.equal(found.out.cpu(), table[ids]), (dtype, width)


def _same_cache(bench: Bench) -> None:
    """Read rows and lists that a device keeps: what it keeps is spoilt at the host."""
    graph, engine = random_graph(TINY), bench.engine
    kept = np.arange(0, graph.num_vertices, 3, dtype=np.int32)
    own = {"names": ("card",), "positions": (0,), "member": 0}
    clique = CliqueCache(**own, features=(kept,), topology=(kept,))
    cache = ResidentCache(clique, graph, engine)
    ids = torch.arange(graph.num_vertices, device=engine.device)
    spoilt = torch.tensor(graph.features, device=engine.device)
    spoilt[torch.from_numpy(kept).long().to(engine.device)] = 77
    gather = RowGather(spoilt, engine.kernels, max_ids=len(ids), cache=cache.rows)
    found = gather.gather(ids, torch.tensor([len(ids)], device=engine.device))
    found.check()
    assert torch.equal(found.out.cpu(), torch.from_numpy(graph.features)), "cached rows"
    assert found.read_counts.tolist() == [len(kept), len(ids) - len(kept)]
    sampling = NeighborSampling(fanouts=[4, 3])
    topology = replace(DeviceGraph.copy_of(graph, engine.device), cached=cache.lists)
    sampler = CudaSampler(
        topology, engine.kernels, sampling, seed=7, max_seeds=64, device=engine.device
    )
    seeds = np.arange(0, 96, 3, dtype=np.int32)
    native = sampling.sampler(graph, seed=7, num_threads=1).sample(seeds, 0)
    mine = sampler.sample(torch.from_numpy(seeds).to(engine.device), 0).to_minibatch()
    assert np.array_equal(mine.input_vertices, native.input_vertices), "cached lists"


def _same_gradients(bench: Bench, config: Any) -> None:
    """Compare losses' gradients of a model over a sampled mini-batch."""
    graph, sampler = _sampler(bench, NeighborSampling(fanouts=[4, 3]))
    device, seeds = bench.engine.device, np.arange(32)
    torch.manual_seed(3)
    model = config(hidden=16, num_layers=2).build(num_features=graph.num_features, num_classes=47)
    twin = config(hidden=16, num_layers=2).build(num_features=graph.num_features, num_classes=47)
    twin.load_state_dict(model.state_dict())
    twin.to(device)
    sampling = NeighborSampling(fanouts=[4, 3]).sampler(graph, seed=7, num_threads=1)
    native = sampling.sample(seeds.astype(np.int32), 1)
    degrees = np.diff(graph.indptr)[native.input_vertices].astype(np.float32)
    rows = ops.empty((len(native.input_vertices), graph.num_features), torch.float32)
    ops.gather((graph.features, "float32"), native.input_vertices, out=rows, num_threads=1)
    known = model(native, Inputs(x=rows, aggregated=False, degrees=degrees))
    sample = sampler.sample(torch.from_numpy(seeds).to(device), 1)
    sizes = sample.sizes()
    batch = batch_of(sample, seeds, sizes, bench.engine.kernels, step=1, weight_sums=None)
    on_device: Any = torch.from_numpy(degrees).to(device)
    found = twin(batch, Inputs(x=rows.to(device), aggregated=False, degrees=on_device))
    for each in (known, found):
        each.square().sum().backward()
    torch.testing.assert_close(found.cpu(), known, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)
