"""What edge-cut partitioners cut, balance, and take: METIS and Mt-KaHyPar in one run.

    python scripts/bench_partition.py [--data DIR] [--graphs cnr soc rmat] [--parts 4 8]
        [--partitioners metis pymetis mtkahypar] [--rounds 1] [--threads 2] [--json FILE]

Graphs: cnr-2000 and soc-Slashdot0902 from ``--data`` (with the split that their readers make), both
made undirected, and R-MAT products. ``--store`` names further graph stores. Each partition is made
by a process of its own. "memory" is the largest sum of what it and its children hold at one time,
looked at every 5 ms; "told" is what the forecast said before. Figures are medians of the rounds.
"metis" is DGL's where DGL is installed. The cut counts undirected edges; balances are the largest
part over the mean, in vertices, edges (in-degrees) and training vertices.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarking import save, show

#: How each graph is prepared.
GRAPHS = {
    "cnr": ["dataset=csr", "dataset.name=cnr-2000_csr", "dataset.raw={data}/webgraph"],
    "soc": ["dataset=snap", "dataset.raw={data}/snap"],
    "rmat": ["dataset=rmat_products"],
}
_UNDIRECTED = ["dataset.undirected=true", "dataset.self_loops=remove"]
_LOOK_EVERY_S = 0.005
#: Entries whose ends are compared at once.
_SLICE = 1 << 22


def prepared(name: str, data: Path) -> Path:
    """Return the store of a graph, made on first use."""
    options = [option.format(data=data.absolute()) for option in GRAPHS[name]]
    options += [] if name == "rmat" else _UNDIRECTED
    made = subprocess.run(
        [sys.executable, "-m", "gnnscale", "prepare", *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(made.stdout.splitlines()[-1])


def partitioner_named(name: str) -> Any:
    from gnnscale.partition.edge_cut import libraries as metis
    from gnnscale.partition.edge_cut.libraries import EdgeCut, MtKaHyPar
    from gnnscale.partition.hierarchical import Hierarchical

    known = {each.algorithm: each for each in (EdgeCut, metis.Metis, MtKaHyPar)}
    if name == "pymetis":
        metis.is_installed = lambda tool: tool == "metis"
        return metis.Metis()
    if name in known:
        return known[name]()
    return Hierarchical(nvlink=name)  # a machine


def work(options: argparse.Namespace) -> None:
    """Make one partition; a line before, one after, and one with what it is worth."""
    import numpy as np

    from gnnscale.graph import Graph
    from gnnscale.partition.edge_cut.cut_graph import balances

    graph = Graph.open(options.store[0])
    partitioner = partitioner_named(options.worker)
    arguments = {"num_parts": options.parts[0], "num_hops": 2, "num_threads": options.threads}
    forecast = partitioner.forecast(graph, **arguments)
    told = forecast.memory_bytes + resident(os.getpid())
    print(json.dumps({"told": told, "told_s": forecast.seconds}), flush=True)
    start = time.perf_counter()
    parts = partitioner.assign(graph, **arguments)
    print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    crossing = 0
    for first in range(0, graph.num_edges, _SLICE):
        src = graph.indices[first : first + _SLICE]
        edges = np.arange(first, first + len(src))
        dst = np.searchsorted(graph.indptr, edges, side="right") - 1
        crossing += int((parts.owner[src] != parts.owner[dst]).sum())
    weights = np.stack(
        [
            np.ones(graph.num_vertices, np.int64),
            np.diff(graph.indptr),
            np.bincount(graph.train_idx, minlength=graph.num_vertices),
        ],
        axis=1,
    )
    found = balances(weights, parts.owner, parts.num_parts)
    worth = {
        "cut": crossing / 2,
        "fraction": crossing / max(1, graph.num_edges),
        **dict(zip(("vertices", "edges", "train"), found, strict=True)),
        "topology": graph.topology_bytes,
    }
    print(json.dumps(worth | {"notes": parts.notes}), flush=True)


def resident(process: int) -> int:
    """Return the bytes that a process and its children hold at this moment.

    A fork that has not become another program yet shares its parent's memory, and does not count.
    """
    try:
        own = Path(f"/proc/{process}/cmdline").read_bytes()
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        held = pages * os.sysconf("SC_PAGESIZE")
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes() != own:
                held += resident(int(child))
    except OSError:
        return 0  # it has ended
    return held


def measured(partitioner: str, store: Path, parts: int, threads: int) -> dict[str, Any]:
    """Make a partition in a process of its own, and look at what it holds meanwhile."""
    command = [sys.executable, __file__, "--worker", partitioner, "--store", str(store)]
    process = subprocess.Popen(
        [*command, "--parts", str(parts), "--threads", str(threads)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
    peak, done = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(_LOOK_EVERY_S):
            peak = max(peak, resident(process.pid))

    looking = threading.Thread(target=look)
    looking.start()
    found |= json.loads(process.stdout.readline() or "{}")
    done.set()
    looking.join()
    found |= json.loads(process.stdout.readline() or "{}")
    if process.wait():
        raise SystemExit(f"{partitioner} on {store}: ended with status {process.returncode}")
    return found | {"memory": peak}


def row(label: list[str], figures: dict[str, Any]) -> list[str]:
    megabytes = [f"{figures[key] / 1e6:,.0f}" for key in ("memory", "told")]
    return [
        *label,
        *(f"{figures['cut']:,.0f}", f"{figures['fraction']:.2%}"),
        *(f"{figures[key]:.3f}" for key in ("vertices", "edges", "train")),
        *(f"{figures['seconds']:.1f}", f"{figures['told_s']:.1f}", *megabytes),
        f"{figures['memory'] / figures['topology']:.1f}",
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("GNNSCALE_TEST_DATA", Path(__file__).parents[2] / "shared" / "data")
    arguments.add_argument("--data", type=Path, default=Path(default), help="published files")
    arguments.add_argument("--graphs", nargs="*", choices=GRAPHS, default=list(GRAPHS))
    arguments.add_argument("--store", nargs="*", type=Path, default=[], help="further graphs")
    arguments.add_argument("--parts", nargs="*", type=int, default=[4, 8])
    arguments.add_argument("--partitioners", nargs="*", default=["metis", "pymetis", "mtkahypar"])
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--worker", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        work(options)
        return
    stores = {name: prepared(name, options.data) for name in options.graphs}
    stores |= {store.name: store for store in options.store}
    rows, everything = [], []
    for name, store in stores.items():
        for parts in options.parts:
            rounds: dict[str, list[dict[str, Any]]] = {each: [] for each in options.partitioners}
            for _ in range(options.rounds):
                for each in options.partitioners:
                    rounds[each].append(measured(each, store, parts, options.threads))
            for each, found in rounds.items():
                label = {"graph": name, "parts": parts, "partitioner": each}
                numbers = [key for key in found[0] if key != "notes"]
                medians = {key: statistics.median(one[key] for one in found) for key in numbers}
                rows.append(row([name, str(parts), each], medians))
                everything.append(label | medians | {"rounds": found})
                print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    load = os.getloadavg()[0]
    show(
        f"medians of {options.rounds} rounds, {options.threads} threads, load {load:.1f}",
        [
            *("graph", "parts", "partitioner", "cut", "of edges", "vertices", "edges", "train"),
            *("s", "told", "MB", "told", "x topology"),
        ],
        rows,
    )
    save(options.json, everything)


if __name__ == "__main__":
    main()
