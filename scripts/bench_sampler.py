"""Neighbour sampling with relabelling: millions of sampled edges a second.

    python scripts/bench_sampler.py [--rounds 7] [--json FILE]

Every system samples the same seeds at the same fan-outs. DGL is measured with its default 64-bit
ids and with 32-bit ids, PyG with each of the libraries that it samples with. PyG's sampler expands
only newly found vertices at each hop, so it draws fewer edges a batch; the rate is what compares.
A system that is not installed is left out.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from benchmarking import (
    FANOUTS,
    installed,
    interleave,
    open_graph,
    parser,
    save,
    seeds_of,
    serve,
    show,
)

SYSTEMS = ["gnnscale", "dgl", "dgl-int32", "pyg-lib", "torch-sparse"]


def worker(system: str, graph: Any, threads: int, steps: int) -> None:
    torch.set_num_threads(threads)
    with installed(system):
        sample = SAMPLERS[system](graph, threads)

    def measure(number: int) -> dict[str, float]:
        batches = [seeds_of(graph, number * steps + step) for step in range(steps)]
        start = time.perf_counter()
        edges = sum(sample(seeds, number * steps + step) for step, seeds in enumerate(batches))
        seconds = time.perf_counter() - start
        return {"edges_per_s": edges / seconds, "edges": edges / steps, "s": seconds / steps}

    serve(measure)


def gnnscale_sampler(graph: Any, threads: int) -> Any:
    from gnnscale.sampler import NeighborSampler

    sampler = NeighborSampler(graph, fanouts=FANOUTS, num_threads=threads)
    return lambda seeds, step: sampler.sample(seeds, step).num_edges


def dgl_sampler(graph: Any, threads: int, dtype: torch.dtype = torch.int64) -> Any:
    import dgl
    from peers import dgl_graph

    topology = dgl_graph(graph, dtype)
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])

    def sample(seeds: Any, step: int) -> int:
        blocks = sampler.sample_blocks(topology, torch.from_numpy(seeds).to(dtype))[2]
        return sum(block.num_edges() for block in blocks)

    return sample


def pyg_sampler(graph: Any, threads: int, library: str) -> Any:
    from peers import pyg_data, sample_with
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    sample_with(library)
    sampler = NeighborSampler(pyg_data(graph), FANOUTS, is_sorted=True)

    def sample(seeds: Any, step: int) -> int:
        chosen = NodeSamplerInput(input_id=None, node=torch.from_numpy(seeds).long())
        return len(sampler.sample_from_nodes(chosen).row)

    return sample


SAMPLERS = {
    "gnnscale": gnnscale_sampler,
    "dgl": dgl_sampler,
    "dgl-int32": lambda graph, threads: dgl_sampler(graph, threads, torch.int32),
    "pyg-lib": lambda graph, threads: pyg_sampler(graph, threads, "pyg-lib"),
    "torch-sparse": lambda graph, threads: pyg_sampler(graph, threads, "torch-sparse"),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    if options.worker:
        worker(options.worker, open_graph(options.store), options.threads, options.steps)
        return
    rows, results = [], {}
    for threads in (1, 2):
        results[threads] = interleave(SYSTEMS, rounds=options.rounds, threads=threads)
        rates = {name: each["edges_per_s"] for name, each in results[threads].items()}
        for name, rate in rates.items():
            ratio = f"{rates['gnnscale'] / rate:.1f}x"
            rows.append([name, str(threads), f"{rate / 1e6:.1f}", ratio])
    show("Neighbour sampling", ["system", "threads", "M edges/s", "gnnscale is"], rows)
    save(options.json, results)


if __name__ == "__main__":
    main()
