"""A process of the case ``labor`` that samples with GraphBolt.

GraphBolt needs another release of torch than this project, and so an environment of DGL 2.1 that
lacks everything else: this file imports NumPy, torch and DGL alone. It answers like other workers.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

warnings.filterwarnings("ignore")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--store", "--seeds"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--worker")
    parser.add_argument("--fanouts", type=json.loads)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    import dgl.graphbolt as gb  # prints nothing that is no answer

    torch.set_num_threads(options.threads)
    dtype = torch.int32 if options.worker.endswith("int32") else torch.int64
    indices = torch.from_numpy(np.load(options.store / "indices.npy")).to(dtype)
    graph = gb.fused_csc_sampling_graph(
        torch.from_numpy(np.load(options.store / "indptr.npy")), indices
    )
    rounds = torch.from_numpy(np.load(options.seeds)).to(dtype)

    def sample(nodes: Any) -> tuple[int, int]:
        edges = 0
        for fanout in options.fanouts:
            picked = graph.sample_layer_neighbors(nodes, torch.LongTensor([fanout]))
            nodes, block = gb.unique_and_compact_csc_formats(
                picked.sampled_csc, unique_dst_nodes=nodes
            )
            edges += len(block.indices)
        return edges, len(nodes)

    answer(rounds, sample)


def answer(rounds: Any, sample: Callable[[Any], tuple[int, int]]) -> None:
    """Sample the seeds of each round that is asked for; tell edges a second and their numbers."""
    print(json.dumps({"ready": True}), flush=True)
    while True:
        try:
            batches = rounds[int(input())]
        except EOFError:
            return
        start = time.perf_counter()
        sizes = [sample(seeds) for seeds in batches]
        seconds = time.perf_counter() - start
        edges, inputs = np.array(sizes).sum(0).tolist()
        count = len(batches)
        figures = {"edges_per_s": edges / seconds, "edges": edges / count, "inputs": inputs / count}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
