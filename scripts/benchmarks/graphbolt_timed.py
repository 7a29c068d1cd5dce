"""A process of the case ``timed_sampling`` that samples with GraphBolt as of cut-offs.

As ``graphbolt.py``, beside it, this file imports NumPy, torch and DGL alone. Its steps are those of
``TemporalNeighborSampler``: neighbours before the time of a seed, and a node for each of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphbolt import answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker")
    parser.add_argument("--fanouts", type=json.loads)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    import dgl.graphbolt as gb  # prints nothing that is no answer
    from dgl.graphbolt.internal import compact_csc_format

    torch.set_num_threads(options.threads)
    arrays = {
        name: torch.from_numpy(np.load(options.folder / f"{name}.npy"))
        for name in ("indptr", "indices", "times", "seeds", "cutoffs")
    }
    graph = gb.fused_csc_sampling_graph(
        arrays["indptr"], arrays["indices"].long(), edge_attributes={"time": arrays["times"]}
    )
    rounds = torch.stack([arrays["seeds"].long(), arrays["cutoffs"]], dim=2)

    def sample(units: Any) -> tuple[int, int]:
        nodes, times = units
        edges = 0
        for fanout in options.fanouts:
            picked = graph.temporal_sample_neighbors(
                nodes, times, torch.LongTensor([fanout]), edge_timestamp_attr_name="time"
            )
            nodes, block, times = compact_csc_format(picked.sampled_csc, nodes, times)
            edges += len(block.indices)
        return edges, len(nodes)

    answer(rounds, sample)


if __name__ == "__main__":
    main()
