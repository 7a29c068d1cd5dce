"""A process of the case ``typed`` that samples with GraphBolt.

As ``graphbolt.py``, beside it, this file imports NumPy, torch and DGL alone. GraphBolt has one list
a vertex, in which edges of a type follow each other.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphbolt import answer


def fused_graph(folder: Path) -> Any:
    """Return the graph of all edge types, in one id space."""
    import dgl.graphbolt as gb

    schema = json.loads((folder / "schema.json").read_text())
    names, sizes = list(schema["vertices"]), list(schema["vertices"].values())
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    edges = {":".join(each): number for number, each in enumerate(schema["edges"])}
    lengths = np.zeros(offsets[-1], np.int64)
    lists = []
    for number, (source, _, destination) in enumerate(schema["edges"]):
        indptr = np.load(folder / f"{number}-indptr.npy")
        indices = np.load(folder / f"{number}-indices.npy") + offsets[names.index(source)]
        first = offsets[names.index(destination)]
        lengths[first : first + len(indptr) - 1] += np.diff(indptr)
        lists.append((first, indptr, indices))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices, types = np.empty(indptr[-1], np.int64), np.empty(indptr[-1], np.uint8)
    filled = indptr[:-1].copy()
    for number, (first, ends, sources) in enumerate(lists):
        degrees = np.diff(ends)
        begins = filled[first : first + len(degrees)]
        places = np.arange(len(sources)) + np.repeat(begins - ends[:-1], degrees)
        indices[places], types[places] = sources, number
        begins += degrees
    return gb.fused_csc_sampling_graph(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        node_type_offset=torch.from_numpy(offsets),
        type_per_edge=torch.from_numpy(types),
        node_type_to_id={name: number for number, name in enumerate(names)},
        edge_type_to_id=edges,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker")
    parser.add_argument("--fanouts", type=json.loads)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    import dgl.graphbolt as gb

    torch.set_num_threads(options.threads)
    graph = fused_graph(options.folder)
    num_types = len(graph.edge_type_to_id)
    rounds = torch.from_numpy(np.load(options.folder / "seeds.npy"))
    first = next(iter(graph.node_type_to_id))

    def sample(seeds: Any) -> tuple[int, int]:
        nodes, edges = {first: seeds}, 0
        for fanout in options.fanouts:
            picked = graph.sample_layer_neighbors(nodes, torch.LongTensor([fanout] * num_types))
            nodes, block = gb.unique_and_compact_csc_formats(
                picked.sampled_csc, unique_dst_nodes=nodes
            )
            edges += sum(len(each.indices) for each in block.values())
        return edges, sum(map(len, nodes.values()))

    answer(rounds, sample)


if __name__ == "__main__":
    main()
