"""Sorting edges into in-neighbour lists on disk: time per edge and peak memory as edges grow.

    python scripts/bench_csc.py [--edges 57000000 230000000] [--memory-bytes 1073741824]

Both graphs have 16 edges a vertex, drawn uniformly, and are stored as they are drawn. Each is made
in a process of its own, whose peak memory is its alone; disk beside this script's default is named
with --folder. Drawing does not count.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarking import save, show

_SLICE = 1 << 22
_EDGES_A_VERTEX = 16


def measure(num_edges: int, memory_bytes: int, folder: str | None) -> dict[str, float]:
    """Spool ``num_edges`` edges and sort them; return seconds and bytes."""
    from gnnscale.dataset.storage.store import StoreOptions, StoreWriter

    generator = np.random.Generator(np.random.Philox(0))
    num_vertices = num_edges // _EDGES_A_VERTEX
    drawing = spooling = 0.0
    with tempfile.TemporaryDirectory(dir=folder) as path:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with StoreWriter(Path(path), StoreOptions(memory_bytes=memory_bytes)) as writer:
            writer.set_num_vertices(num_vertices, source="bench")
            for first in range(0, num_edges, _SLICE):
                start = time.perf_counter()
                shape = (2, min(_SLICE, num_edges - first))
                edges = generator.integers(num_vertices, size=shape, dtype=np.int32)
                drawn = time.perf_counter()
                writer.add_edges(*edges, source="bench")
                drawing += drawn - start
                spooling += time.perf_counter() - drawn
            start = time.perf_counter()
            writer.build_topology()
            building = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "spool_s": spooling,
        "build_s": building,
        "ns_per_edge": (spooling + building) / num_edges * 1e9,
        "peak_bytes": peak - before,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--edges", type=int, nargs="+", default=[57_000_000, 230_000_000])
    arguments.add_argument("--memory-bytes", type=int, default=1 << 30)
    arguments.add_argument("--folder", help="where edges and lists go; default: as tempfile says")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        print(json.dumps(measure(options.edges[0], options.memory_bytes, options.folder)))
        return
    figures = {}
    for num_edges in options.edges:
        argv = [sys.executable, *sys.argv, "--worker", "--edges", str(num_edges)]
        answer = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        figures[str(num_edges)] = json.loads(answer.stdout.splitlines()[-1])
    least = next(iter(figures.values()))["ns_per_edge"]
    rows = [
        [
            f"{int(num_edges):,}",
            f"{each['spool_s']:.1f}",
            f"{each['build_s']:.1f}",
            f"{each['ns_per_edge']:.1f}",
            f"{each['ns_per_edge'] / least:.2f}x",
            f"{each['peak_bytes'] / 2**20:,.0f}",
        ]
        for num_edges, each in figures.items()
    ]
    columns = ["edges", "spool, s", "sort, s", "ns an edge", "ratio", "peak memory, MiB"]
    show(f"CSC with dataset.memory_bytes={options.memory_bytes:,}", columns, rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
