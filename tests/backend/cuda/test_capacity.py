from dataclasses import replace

import numpy as np
import pytest

from gnnscale.backend import DeviceStepInputs
from gnnscale.backend.cuda.capacity import BatchCapacity, DeviceGraph, SampleSizes, envelope
from gnnscale.sampling import LayerSampling, NeighborSampling


def test_it_is_the_most_or_the_largest_and_a_tenth():
    most = BatchCapacity(num_vertices=(100, 900, 5000), num_edges=(900, 9000))
    sizes = [
        SampleSizes(num_vertices=(100, 600, 1000), num_edges=(880, 2000)),
        SampleSizes(num_vertices=(90, 300, 1280), num_edges=(700, 1900)),
    ]
    found = most.around(sizes)
    # 100 and 900 are at most half as much again; 1,280 and a tenth are 1,408, 22 times 64.
    assert found == BatchCapacity(num_vertices=(100, 900, 1408), num_edges=(900, 2240))


def test_it_is_never_more_than_the_most():
    most = BatchCapacity(num_vertices=(10, 151), num_edges=(151,))
    sizes = [SampleSizes(num_vertices=(10, 100), num_edges=(100,))]
    assert most.around(sizes) == BatchCapacity(num_vertices=(10, 128), num_edges=(128,))
    assert most.smallest(BatchCapacity(num_vertices=(7, 200), num_edges=(90,))) == BatchCapacity(
        num_vertices=(7, 151), num_edges=(90,)
    )


@pytest.mark.parametrize(
    "sampling", [NeighborSampling(fanouts=[10, 10, 10]), LayerSampling(layer_sizes=[5, 8])]
)
def test_it_holds_the_first_mini_batches(graph, model, host, sampling):
    slices = tuple(np.arange(first, first + 20, dtype=np.int32) for first in (0, 50))
    own = DeviceStepInputs(
        build_optimizer=lambda _: None, host_optimizer=None, clip_norm=None, first_slices=slices
    )
    sampler = sampling.sampler(graph, seed=1, num_threads=1)
    parts = replace(host(model, step_inputs=own), sampling=sampling, sampler=sampler)
    indptr, indices = graph.indptr, graph.indices
    topology = DeviceGraph(name="graph", indptr=indptr, indices=indices)
    found = envelope(parts, topology, sampling, max_seeds=20)
    degrees = np.diff(graph.indptr)
    for step, seeds in enumerate(slices):
        batch = sampler.sample(seeds, step)
        for hop, block in enumerate(reversed(batch.blocks)):
            assert block.num_src <= found.num_vertices[hop + 1]
            needed = block.num_edges
            if isinstance(sampling, LayerSampling):  # it chooses from all neighbours
                needed = int(degrees[batch.input_vertices[: block.num_dst]].sum())
            assert needed <= found.num_edges[hop]
