"""Laying out a mini-batch for a streaming kernel, beside sampling and loading of the same one.

    python scripts/bench_arrange.py [--rounds 7] [--banks 2] [--store STORE] [--json FILE]

Each step is another mini-batch, so that nothing is in cache. All its layers are arranged, forward
and, but for the first layer, backward; the rows of its first layer's sources are then gathered in
the order that this gives.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from benchmarking import FANOUTS, interleave, open_graph, parser, save, seeds_of, serve, show

STAGES = {
    "sampling": "sample",
    "loading, rows one after another": "gather",
    "arranging, own row added": "arrange_add",
    "arranging, own row concatenated": "arrange_concat",
    "loading, words of 16 columns": "gather_columns",
}


class Preparation:
    """What the host does for each mini-batch, stage by stage."""

    def __init__(self, graph: Any, options: argparse.Namespace) -> None:
        from gnnscale import ops
        from gnnscale.sampler import NeighborSampler

        self._graph, self._ops, self._options = graph, ops, options
        self._sampler = NeighborSampler(graph, fanouts=FANOUTS, num_threads=options.threads)
        self._rows = (graph.features, graph.feature_dtype)
        self._columns = np.empty(0, np.float32)

    def prepare(self, step: int) -> dict[str, float]:
        """Prepare one mini-batch; return the seconds of each stage, and sizes."""
        begin = time.perf_counter()
        batch = self._sampler.sample(seeds_of(self._graph, step), step)
        seconds = {"sample": time.perf_counter() - begin}
        begin = time.perf_counter()
        self._gather(batch.input_vertices)
        seconds["gather"] = time.perf_counter() - begin
        for term in ("add", "concat"):
            begin = time.perf_counter()
            sources = self._arrange(batch, term)
            seconds[f"arrange_{term}"] = time.perf_counter() - begin
        out = self._room(len(sources))
        begin = time.perf_counter()
        self._ops.gather_columns(
            *(self._rows, batch.input_vertices[sources]),
            out=out,
            num_threads=self._options.threads,
        )
        seconds["gather_columns"] = time.perf_counter() - begin
        return {**seconds, "edges": batch.num_edges, "rows": len(sources)}

    def _gather(self, vertices: Any) -> None:
        out = self._ops.empty((len(vertices), self._graph.num_features), torch.float32)
        self._ops.gather(self._rows, vertices, out=out, num_threads=self._options.threads)

    def _arrange(self, batch: Any, term: str) -> Any:
        """Arrange the layers from the last one on, and return the first one's sources."""
        wanted = np.arange(batch.num_seeds, dtype=np.int32)
        for layer in reversed(range(len(batch.blocks))):
            block = batch.blocks[layer]
            made = self._ops.arrange_block(
                *(block.indptr, block.indices, block.num_src),
                destinations=wanted,
                dst_scale=1 / np.maximum(np.diff(block.indptr), 1).astype(np.float32),
                self_term=term,
                tile_rows=self._options.tile_rows,
                backward_tile_rows=self._options.tile_rows if layer else None,
                num_banks=self._options.banks,
            )
            wanted = made.sources
        return wanted

    def _room(self, num_rows: int) -> Any:
        """Return a buffer that is used again for each mini-batch, as a device's would be."""
        words = (self._graph.num_features + 15) // 16
        if self._columns.size < words * num_rows * 16:
            self._columns = np.zeros(words * num_rows * 20, np.float32)
        return self._columns[: words * num_rows * 16].reshape(words, num_rows, 16)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--tile-rows", type=int, default=16384, help="rows that a tile has")
    arguments.add_argument("--banks", type=int, default=2, help="scatter-gather PEs of the kernel")
    options = arguments.parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        preparation = Preparation(open_graph(options.store), options)

        def measure(number: int) -> dict[str, float]:
            steps = [preparation.prepare(step) for step in range(options.steps)]
            return {key: float(np.median([each[key] for each in steps])) for key in steps[0]}

        serve(measure)
        return
    figures = interleave(["gnnscale"], rounds=options.rounds, threads=options.threads)["gnnscale"]
    rows = [
        [name, f"{figures[key] * 1e3:.2f}", f"{figures[key] / figures['sample']:.2f}"]
        for name, key in STAGES.items()
    ]
    sizes = f"{figures['edges']:,.0f} edges, {figures['rows']:,.0f} rows"
    title = f"One mini-batch of {sizes}; {options.threads} threads, one to arrange"
    show(title, ["stage", "ms", "over sampling"], rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
