from dataclasses import replace

import numpy as np
import pytest
import torch
from device_samples import SEED, Shape, assert_same, seeds_of
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale import ops
from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.device_cache import MAX_MEMBERS, ResidentCache
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.cache.plan import CliqueCache
from gnnscale.core import ConfigError, GraphError
from gnnscale.features import HostFeatures
from gnnscale.features import cached as cached_features
from gnnscale.planner import Cuda
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling

CPU = torch.device("cpu")


def graph_of(*, wide=False, weighted=False, dtype=torch.float32):
    graph = Shape(num_vertices=60, num_edges=900, hub=200, wide=wide, weighted=weighted).graph()
    rows = torch.rand(60, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    stored = rows.view(torch.uint16) if dtype is torch.bfloat16 else rows
    name = str(dtype).removeprefix("torch.")
    return replace(graph, features=stored.numpy(), feature_dtype=name)


def kept_by(num_members, own, *, rows=25, lists=20):
    rng = np.random.default_rng(num_members)

    def some(count):
        """Vertices of each member; nobody keeps what another does."""
        order, size = rng.permutation(60).astype(np.int32), min(count, 45 // num_members)
        return tuple(np.sort(order[size * each :][:size]) for each in range(num_members))

    return CliqueCache(
        names=tuple(f"gpu{each}" for each in range(num_members)),
        positions=tuple(range(num_members)),
        features=some(rows),
        topology=some(lists),
        own=own,
    )


def clique(graph, num_members, **sizes):
    """The caches of a clique, each of which has opened those of the others."""
    engine = HostEngine(Cuda(host_driven=True))
    made = [
        ResidentCache(kept_by(num_members, own, **sizes), graph, engine)
        for own in range(num_members)
    ]
    for each in made:
        each.open_peers([other.address for other in made])
    return made


@pytest.mark.long
@settings(max_examples=15)
@given(
    num_members=st.integers(1, 4),
    own=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    num_ids=st.integers(0, 70),
    converts=st.booleans(),
)
def test_rows_are_the_hosts_and_counted_by_place(num_members, own, dtype, num_ids, converts):
    graph = graph_of(dtype=dtype)
    cached = clique(graph, num_members)[own % num_members].rows
    assert cached is not None
    table = torch.from_numpy(graph.features).view(dtype)
    # What is kept must not be read at the host.
    spoilt = table.clone()
    spoilt[cached.slots.of_vertex >= 0] = 77
    out_dtype = torch.float32 if converts else None
    gather = RowGather(
        spoilt, HostKernels(num_threads=2), max_ids=70, dtype=out_dtype, cache=cached
    )
    ids = torch.from_numpy(np.random.default_rng(num_ids).integers(0, 60, 70))
    for _ in range(2):  # counts begin again at 0
        found = gather.gather(ids, torch.tensor([num_ids]))
    found.check()
    expected = table[ids[:num_ids]]
    assert torch.equal(found.out[:num_ids], expected.float() if converts else expected)
    kept = kept_by(num_members, 0).features
    slots = cached_features.rank_slots(60, kept)
    out = ops.empty((num_ids, 5), torch.float32)
    host = HostFeatures.of(graph)
    tables = [(np.ascontiguousarray(graph.features[each]), host.stored[1]) for each in kept]
    counts = ops.gather_cached(
        host.stored, tables, slots, ids[:num_ids].numpy().astype(np.int32), out=out, num_threads=1
    )
    assert found.read_counts.tolist() == counts.tolist()


SAMPLINGS = [
    NeighborSampling(fanouts=[3, 12, 40]),
    NeighborSampling(fanouts=[4, -1], replace=True),
    WeightedSampling(fanouts=[5, 40]),
    WeightedSampling(fanouts=[5, 4], replace=True),
    LayerSampling(layer_sizes=[20, 30]),
]


@pytest.mark.long
@pytest.mark.parametrize(("number", "sampling"), [*enumerate(SAMPLINGS)])
def test_samples_are_the_native_samplers_and_lists_are_counted(number, sampling):
    wide = number % 2 == 0
    graph = graph_of(wide=wide, weighted=wide or isinstance(sampling, WeightedSampling))
    cached = clique(graph, 3)[1].lists
    assert cached is not None
    host = DeviceGraph.copy_of(graph, CPU)
    # Lists that are kept must not be read at the host.
    indices = host.indices.clone()
    for vertex in np.flatnonzero(cached.slots.of_vertex.numpy() >= 0):
        indices[host.indptr[vertex] : host.indptr[vertex + 1]] = 1 << 29
    sampler = CudaSampler(
        replace(host, indices=indices, cached=cached),
        HostKernels(num_threads=2),
        sampling,
        seed=SEED,
        max_seeds=20,
        device=CPU,
    )
    native = sampling.sampler(graph, seed=SEED, num_threads=1)
    counter = cached_features.CachedAdjacency(
        cached_features.rank_slots(60, kept_by(3, 1).topology),
        num_members=3,
        own=1,
        request_bytes=128,
        id_bytes=graph.indices.itemsize,
    )
    for step in range(2):
        seeds = seeds_of(graph, 20, step)
        found = sampler.sample(torch.from_numpy(seeds), step)
        expected = native.sample(seeds, step)
        assert_same(found.to_minibatch(weight_sums=graph.weight_sums), expected)
        access = counter.read(expected)
        reads = found.read_counts.tolist()
        assert (reads[1], reads[0] + reads[2], reads[3]) == (
            access.hits,
            access.peer_hits,
            access.misses,
        )


def test_what_nobody_keeps_and_what_cannot_be_kept():
    (found,) = clique(graph_of(), 1, rows=0, lists=0)
    assert found.has_no_peers
    assert found.rows is found.lists is None
    graph, engine = graph_of(), HostEngine(Cuda(host_driven=True))
    kept = replace(kept_by(1, 0), topology=(np.arange(60, dtype=np.int32),))
    for place, value in ((7, -5), (8, 1 << 40)):
        indptr = np.array(graph.indptr)
        indptr[place] = value
        with one_line("the neighbours of vertex", error=GraphError):
            ResidentCache(kept, replace(graph, indptr=indptr), engine)
    with one_line("a cache of 0.0 MB does not fit", error=DeviceMemoryError):
        ResidentCache(kept_by(1, 0), graph, HostEngine(Cuda(host_driven=True, memory_bytes=100)))
    with one_line(f"expected at most {MAX_MEMBERS}", error=ConfigError):
        ResidentCache(kept_by(MAX_MEMBERS + 1, 0), graph, engine)
    with one_line("a peer's cache cannot be opened", error=DeviceError):
        ResidentCache(kept_by(2, 0), graph, engine).open_peers(["", "/proc/1/fd/99999"])
