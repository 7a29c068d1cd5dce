"""Preparing a graph from tables: edges a second and peak memory, from CSV and from Parquet.

    python scripts/bench_tables.py [--edges 20000000] [--ids row integer string]
                                   [--formats csv parquet] [--rounds 1]

Edges are drawn uniformly, 16 a vertex. Ids are the numbers of the rows of the vertices (``row``);
or nobody can compute them: distinct random numbers of 40 bits (``integer``), or texts made of them
(``string``). The whole of `prepare` counts, from the files to
the finished store: decoding, finding ids, sorting into in-neighbour lists, checksums. Each
preparation runs in a process of its own, whose peak memory is its alone. Files are written first,
and are in the page cache as far as that has room. Figures are the medians of all rounds, and the
largest peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarking import save, show

_SLICE = 1 << 22
_EDGES_A_VERTEX = 16


def write_tables(folder: Path, form: str, num_edges: int, kind: str) -> int:
    """Write both tables; return their size in bytes."""
    import pyarrow
    from pyarrow import csv, parquet

    generator = np.random.Generator(np.random.Philox(0))
    num_vertices = num_edges // _EDGES_A_VERTEX
    numbers = np.unique(generator.integers(2**40, size=num_vertices + 1000))
    numbers = generator.permutation(numbers)[:num_vertices]
    if kind == "row":
        numbers = np.arange(num_vertices)
    names = [f"u{number:x}" for number in numbers.tolist()] if kind == "string" else numbers
    ids = pyarrow.array(names)

    def tables() -> Any:
        for first in range(0, num_edges, _SLICE):
            shape = (2, min(_SLICE, num_edges - first))
            source, target = generator.integers(num_vertices, size=shape)
            yield pyarrow.table({"source": ids.take(source), "target": ids.take(target)})

    vertices = pyarrow.table(
        {
            "id": ids,
            "label": np.arange(num_vertices) % 47,
            "split": pyarrow.array(["train", "valid", "test", None]).take(
                generator.integers(4, size=num_vertices)
            ),
            "feature": generator.random(num_vertices, np.float32),
        }
    )
    folder.mkdir()
    files = [folder / f"{table}.{form}" for table in ("vertices", "edges")]
    write = csv.write_csv if form == "csv" else parquet.write_table
    write(vertices, files[0])
    for number, table in enumerate(tables()):
        if not number:
            writer_type = csv.CSVWriter if form == "csv" else parquet.ParquetWriter
            writer = writer_type(files[1], table.schema)
        writer.write_table(table)
    writer.close()
    return sum(file.stat().st_size for file in files)


def measure(folder: Path, num_edges: int, memory_bytes: int) -> dict[str, float]:
    """Prepare the graph in ``folder``; return seconds of the clock and of processors, and bytes."""
    from gnnscale.dataset import Tables

    dataset = Tables(
        name="bench", raw=str(folder), store=str(folder / "store"), memory_bytes=memory_bytes
    )
    start, before = time.perf_counter(), os.times()
    dataset.prepare()
    seconds, after = time.perf_counter() - start, os.times()
    return {
        "seconds": seconds,
        "cpu_s": after.user + after.system - before.user - before.system,
        "edges_per_s": num_edges / seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--edges", type=int, default=20_000_000)
    kinds = ["row", "integer", "string"]
    arguments.add_argument("--ids", nargs="+", choices=kinds, default=kinds[:2])
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument(
        "--formats", nargs="+", choices=["csv", "parquet"], default=["csv", "parquet"]
    )
    arguments.add_argument("--memory-bytes", type=int, default=1 << 30)
    arguments.add_argument("--folder", help="where tables and stores go; default: as tempfile says")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.edges, options.memory_bytes)))
        return
    figures = {}
    for ids in options.ids:
        for form in options.formats:
            with tempfile.TemporaryDirectory(dir=options.folder) as path:
                folder = Path(path) / "raw"
                num_bytes = write_tables(folder, form, options.edges, ids)
                argv = [sys.executable, *sys.argv, "--worker", str(folder)]
                rounds = []
                for _ in range(options.rounds):
                    answer = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
                    rounds.append(json.loads(answer.stdout.splitlines()[-1]))
                    shutil.rmtree(folder / "store")
                figures[f"{form}, {ids} ids"] = {
                    name: (max if name == "peak_bytes" else statistics.median)(
                        each[name] for each in rounds
                    )
                    for name in rounds[0]
                } | {"file_bytes": num_bytes}
    rows = [
        [
            name,
            f"{each['file_bytes'] / options.edges:.1f}",
            f"{each['seconds']:.1f}",
            f"{each['cpu_s']:.1f}",
            f"{each['edges_per_s'] / 1e6:.1f}",
            f"{each['peak_bytes'] / 2**20:,.0f}",
        ]
        for name, each in figures.items()
    ]
    columns = ["tables", "bytes an edge", "s", "CPU s", "million edges/s", "peak memory, MiB"]
    show(f"{options.edges:,} edges, dataset.memory_bytes={options.memory_bytes:,}", columns, rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
