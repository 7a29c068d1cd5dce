"""Neighbour sampling with relabelling: millions of sampled edges a second.

Every system samples the same seeds at the same fan-outs. DGL is measured with its default 64-bit
ids and with 32-bit ids, PyG with each of its libraries; PyG draws fewer edges a batch, since it
expands new vertices alone. The case ``weighted`` draws by weights of the edges.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.runner import FANOUTS, Measure, interleave, open_graph, seeds_of, show, take, timed


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None, avx2=False)


def worker(system: str, options: argparse.Namespace) -> Measure:
    graph = open_graph(options.store)
    return rate_of(
        SAMPLERS[system](graph, options.threads), options.steps, partial(seeds_of, graph)
    )


def rate_of(sample: Any, steps: int, seeds: Callable[[int], Any]) -> Measure:
    """Return the measure of ``sample``, which returns edges and input vertices of a mini-batch.

    ``seeds`` are those of a step.
    """

    def measure(number: int) -> dict[str, float]:
        numbers = range(number * steps, (number + 1) * steps)
        batches = [(seeds(step), step) for step in numbers]
        seconds, sizes = timed(lambda: [sample(*batch) for batch in batches])
        edges, inputs = (sum(each) for each in zip(*sizes, strict=True))
        found = {"edges_per_s": edges / seconds, "edges": edges / steps, "inputs": inputs / steps}
        return found | {"s": seconds / steps}

    return measure


def own_sampler(kind: Any, graph: Any, threads: int, **options: Any) -> Any:
    from gnnscale import ops

    ops.keep_freed_memory()  # as every training run does; DGL has it, too
    sampler = kind(graph, fanouts=FANOUTS, num_threads=threads, **options)

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        batch = sampler.sample(seeds, step)
        return batch.num_edges, len(batch.input_vertices)

    return sample


def gnnscale(graph: Any, threads: int) -> Any:
    from gnnscale.sampling import NeighborSampler

    return own_sampler(NeighborSampler, graph, threads)


def dgl_sampler(graph: Any, threads: int, dtype: Any = torch.int64, **weighted: Any) -> Any:
    """Return what samples; ``weighted`` has the weights of the edges, and how they are drawn by."""
    import dgl

    from benchmarks.peers import dgl_graph

    topology = dgl_graph(graph, dtype)
    if weighted:
        topology.edata["weight"] = torch.from_numpy(weighted.pop("weights"))
        weighted["prob"] = "weight"
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], **weighted)

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        chosen = torch.from_numpy(seeds).to(dtype)
        inputs, _, blocks = sampler.sample_blocks(topology, chosen)
        return sum(block.num_edges() for block in blocks), len(inputs)

    return sample


def pyg_sampler(graph: Any, threads: int, library: str) -> Any:
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    from benchmarks.peers import pyg_data, sample_with

    sample_with(library)
    sampler = NeighborSampler(pyg_data(graph), FANOUTS, is_sorted=True)

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        chosen = NodeSamplerInput(input_id=None, node=torch.from_numpy(seeds).long())
        found = sampler.sample_from_nodes(chosen)
        return len(found.row), len(found.node)

    return sample


SAMPLERS = {
    **{"gnnscale": gnnscale, "dgl": dgl_sampler},
    "dgl-int32": partial(dgl_sampler, dtype=torch.int32),
    **{name: partial(pyg_sampler, library=name) for name in ("pyg-lib", "torch-sparse")},
}


def run(options: argparse.Namespace) -> Any:
    rows, results = [], {}
    for threads in (1, 2):
        options.threads = threads
        results[threads] = interleave(SAMPLERS, options)
        rates = {name: each["edges_per_s"] for name, each in results[threads].items()}
        for name, rate in rates.items():
            ratio = f"{rates['gnnscale'] / rate:.1f}x"
            rows.append([name, str(threads), f"{rate / 1e6:.1f}", ratio])
    show("Neighbour sampling", ["system", "threads", "M edges/s", "gnnscale is"], rows)
    return results
