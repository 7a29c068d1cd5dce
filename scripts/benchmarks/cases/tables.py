"""Preparing a graph from tables: edges a second and peak memory, from CSV and from Parquet.

Edges are drawn uniformly, 16 a vertex. Ids are the numbers of the rows of the vertices (``row``),
distinct random numbers of 40 bits (``integer``), or texts made of them (``string``). The whole of
``prepare`` counts, in a process of its own. Figures are medians, and the largest peak.
"""

import argparse
import resource
import shutil
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import in_subprocess, medians, show, take, timed

_SLICE = 1 << 22
_EDGES_A_VERTEX = 16


def options(parser: argparse.ArgumentParser) -> None:
    kinds, forms = ["row", "integer", "string"], ["csv", "parquet"]
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--ids", nargs="+", choices=kinds, default=kinds[:2])
    parser.add_argument("--formats", nargs="+", choices=forms, default=forms)
    parser.add_argument("--memory-bytes", type=int, default=1 << 30)
    take(parser, rounds=1, folder=None)


def write_tables(folder: Path, form: str, num_edges: int, kind: str) -> int:
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

    splits = pyarrow.array(["train", "valid", "test", None])
    columns = {"id": ids, "label": np.arange(num_vertices) % 47}
    columns |= {"split": splits.take(generator.integers(4, size=num_vertices))}
    vertices = pyarrow.table(columns | {"feature": generator.random(num_vertices, np.float32)})
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


def measure(folder: str, num_edges: int, memory_bytes: int) -> dict[str, float]:
    """Prepare the graph in ``folder``; return seconds of the clock and of processors, and bytes."""
    from gnnscale.data import Tables

    dataset = Tables(name="bench", raw=folder, store=f"{folder}/store", memory_bytes=memory_bytes)
    before = time.process_time()
    seconds, _ = timed(dataset.prepare)
    cpu_s = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rate = num_edges / seconds
    return {"seconds": seconds, "cpu_s": cpu_s, "edges_per_s": rate, "peak_bytes": peak}


def rounds_of(ids: str, form: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=options.folder) as path:
        folder = Path(path) / "raw"
        num_bytes = write_tables(folder, form, options.edges, ids)
        rounds = []
        for _ in range(options.rounds):
            rounds.append(in_subprocess(measure, folder, options.edges, options.memory_bytes))
            shutil.rmtree(folder / "store")
    peak = max(each["peak_bytes"] for each in rounds)
    return {**medians(rounds), "peak_bytes": peak, "file_bytes": num_bytes}


def run(options: argparse.Namespace) -> Any:
    figures, rows = {}, []
    for ids, form in product(options.ids, options.formats):
        name, each = f"{form}, {ids} ids", rounds_of(ids, form, options)
        cells = [each["file_bytes"] / options.edges, each["seconds"], each["cpu_s"]]
        cells += [each["edges_per_s"] / 1e6, each["peak_bytes"] / 2**20]
        rows.append([name, *(f"{cell:,.1f}" for cell in cells)])
        figures[name] = each
    columns = ["tables", "bytes an edge", "s", "CPU s", "million edges/s", "peak memory, MiB"]
    show(f"{options.edges:,} edges, dataset.memory_bytes={options.memory_bytes:,}", columns, rows)
    return figures
