"""The best partners of vertices among candidates, beside the matrix product alone.

Rows are random, and given. The product multiplies the same rows, in slices whose scores fit into 64
MiB, and keeps nothing. Both are one process, in turn.
"""

import argparse
import statistics
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.runner import show, take, timed


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vertices", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--k", type=int, default=10)
    take(parser, threads=2, rounds=5)


class Given:
    """Stands for a predictor whose rows are there."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def prepare(self, vertices: Any) -> None:
        pass

    def rows(self, vertices: Any) -> Iterator[Any]:
        yield self._rows if vertices is None else self._rows[vertices]


def product(rows: Any, vertices: Any, candidates: Any) -> None:
    """Multiply, in slices as large as those that are compared."""
    step = max(1, (64 << 20) // (4 * len(candidates)))
    own, others = rows[vertices], rows[candidates]
    for first in range(0, len(vertices), step):
        own[first : first + step] @ others.T


def run(options: argparse.Namespace) -> Any:
    import torch

    from gnnscale.data.interop import from_arrays
    from gnnscale.inference.predictor import PairScorer
    from gnnscale.nn import GraphSAGE
    from gnnscale.nn.link_decoder import LinkGNN, make_decoder

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    count, width = options.candidates, options.hidden
    ends = np.zeros(1, np.int32)
    graph = from_arrays((ends, ends), np.zeros((count, 1), np.float32))
    gnn = GraphSAGE(hidden=width).build(num_features=1, num_classes=width)
    rows = torch.randn(count, width)
    given: Any = Given(rows.numpy())
    scorer = PairScorer(LinkGNN(gnn, make_decoder("dot", width)), given, graph)
    vertices = np.random.Generator(np.random.PCG64(0)).permutation(count)[: options.vertices]
    seconds: dict[str, list[float]] = {"product": [], "partners": []}
    for _ in range(options.rounds):
        seconds["product"].append(timed(product, rows, vertices, np.arange(count))[0])
        found = scorer.partners(vertices, None, options.k)
        seconds["partners"].append(timed(deque, found, 0)[0])
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    figures = {name: statistics.median(each) for name, each in seconds.items()}
    figures["ratio"] = statistics.median(ratios)
    title = f"Best {options.k} of {count:,} candidates for {options.vertices:,} vertices"
    show(title, ["what", "seconds"], [[name, f"{figures[name]:.2f}"] for name in seconds])
    print(f"ratio {figures['ratio']:.2f}")
    return figures
