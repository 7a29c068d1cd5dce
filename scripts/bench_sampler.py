"""Neighbour sampling with relabelling: millions of sampled edges a second.

    python scripts/bench_sampler.py [--rounds 7] [--json FILE]

Every system samples the same seeds at the same fan-outs. DGL is measured with its default 64-bit
ids and with 32-bit ids. PyG's sampler expands only newly found vertices at each hop, so it draws
fewer edges a batch; the rate is what compares.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from benchmarking import FANOUTS, interleave, open_graph, parser, save, seeds_of, serve, show

SYSTEMS = ["gnnscale", "dgl", "dgl-int32", "pyg"]


def worker(system: str, graph: Any, threads: int, steps: int) -> None:
    torch.set_num_threads(threads)
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


def pyg_sampler(graph: Any, threads: int) -> Any:
    import torch_sparse  # noqa: F401  (registers the operator)
    from peers import csc

    rowptr, col = csc(graph)

    def sample(seeds: Any, step: int) -> int:
        seeds = torch.from_numpy(seeds).long()
        edges = torch.ops.torch_sparse.neighbor_sample(rowptr, col, seeds, FANOUTS, False, True)[1]
        return len(edges)

    return sample


SAMPLERS = {
    "gnnscale": gnnscale_sampler,
    "dgl": dgl_sampler,
    "dgl-int32": lambda graph, threads: dgl_sampler(graph, threads, torch.int32),
    "pyg": pyg_sampler,
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
