"""Preparing a graph with types from Parquet: seconds, and memory beyond the arrays of the graph.

Users buy items: an edge of each order, and its reverse. Ids are texts or integers, and orders draw
their ends uniformly. The whole of ``prepare`` counts, in a process of its own; its peak has the
interpreter and the libraries, too. Figures are medians, and the largest peak.
"""

import argparse
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import in_subprocess, medians, show, take, timed

_SLICE = 1 << 22
#: Orders of a user, and of an item.
_ORDERS = {"user": 16, "item": 80}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=int, default=100_000_000, help="with their reverses")
    parser.add_argument("--ids", choices=["integer", "string"], default="string")
    take(parser, rounds=1, folder=None)


def write_tables(folder: Path, num_orders: int, kind: str) -> None:
    """Write users, items and orders."""
    import pyarrow
    from pyarrow import parquet

    generator = np.random.Generator(np.random.Philox(0))
    ids = {}
    for name, orders in _ORDERS.items():
        numbers = generator.permutation(num_orders // orders)
        texts = [f"{name}-{number:x}" for number in numbers.tolist()]
        ids[name] = pyarrow.array(texts if kind == "string" else numbers)
        columns = {f"{name}_id": ids[name], "age": generator.random(len(numbers), np.float32)}
        if name == "user":
            columns["fan"] = numbers % 47
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    writer = None
    for first in range(0, num_orders, _SLICE):
        count = min(_SLICE, num_orders - first)
        table = pyarrow.table(
            {
                f"{name}_id": of.take(generator.integers(len(of), size=count))
                for name, of in ids.items()
            }
        )
        writer = writer or parquet.ParquetWriter(folder / "orders.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measure(folder: str) -> dict[str, float]:
    """Prepare the graph in ``folder``; return seconds, and bytes of the peak and of the arrays."""
    from gnnscale.data import TypedTables

    store = Path(folder) / "store"
    dataset = TypedTables(
        name="bench",
        raw=folder,
        store=str(store),
        vertices={name: f"{name}.parquet" for name in _ORDERS},
        edges={"user-buys-item": "orders.parquet"},
        target="user",
        label="fan",
        split="random",
    )
    seconds, _ = timed(dataset.prepare)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    arrays = sum(file.stat().st_size for file in store.glob("*.npy"))
    return {"seconds": seconds, "peak_bytes": peak, "array_bytes": arrays}


def run(options: argparse.Namespace) -> Any:
    rounds = []
    with tempfile.TemporaryDirectory(dir=options.folder) as path:
        write_tables(Path(path), options.edges // 2, options.ids)
        for _ in range(options.rounds):
            rounds.append(in_subprocess(measure, path))
            shutil.rmtree(Path(path) / "store")
    figures = {**medians(rounds), "peak_bytes": max(each["peak_bytes"] for each in rounds)}
    beyond = figures["peak_bytes"] - figures["array_bytes"]
    cells = [figures["array_bytes"], figures["peak_bytes"], beyond]
    row = [f"{figures['seconds']:,.1f}", *(f"{cell / 1e6:,.0f}" for cell in cells)]
    columns = ["s", "arrays, MB", "peak, MB", "beyond the arrays, MB"]
    show(f"{options.edges:,} edges of two types, {options.ids} ids", columns, [row])
    return figures
