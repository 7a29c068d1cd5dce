"""Steps of the case ``disk`` with GraphBolt, whose features stay in a mapped file.

GraphBolt needs another release of torch than this project, and so an environment of DGL 2.1 that
lacks everything else: this file imports NumPy, torch and DGL alone. It samples and reads rows, and
computes nothing.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch

warnings.filterwarnings("ignore")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--fanouts", type=json.loads)
    for name in ("--threads", "--seeds", "--steps"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    import dgl.graphbolt as gb

    torch.set_num_threads(options.threads)
    arrays = {name: np.load(options.store / f"{name}.npy") for name in ("indptr", "indices")}
    graph = gb.fused_csc_sampling_graph(*map(torch.from_numpy, arrays.values()))
    rows = gb.TorchBasedFeature(
        torch.from_numpy(np.load(options.store / "features.npy", mmap_mode="r+"))
    )
    train = np.load(options.store / "train_idx.npy")
    order = torch.from_numpy(np.random.default_rng(0).permutation(train))
    start = time.perf_counter()
    for step in range(options.steps):
        nodes = order[step * options.seeds : (step + 1) * options.seeds]
        for fanout in options.fanouts:
            picked = graph.sample_layer_neighbors(nodes, torch.LongTensor([fanout]))
            nodes, _ = gb.unique_and_compact_csc_formats(picked.sampled_csc, unique_dst_nodes=nodes)
        rows.read(nodes)
        print(json.dumps({"step": step, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
