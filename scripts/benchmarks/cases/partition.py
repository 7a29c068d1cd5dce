"""What edge-cut partitioners cut, balance, and take: METIS and Mt-KaHyPar in one run.

Each partition is made by a process of its own. "MB" is the largest sum of what it and its children
hold at one time; "forecast" is the prediction. "metis" is DGL's if DGL is installed. The cut counts
undirected edges; balances are the largest part over the mean.
"""

import argparse
import json
import os
import subprocess
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.runner import (
    call_of,
    data_folder,
    medians,
    most_of,
    prepared,
    show,
    take,
    tell,
    timed,
)

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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graphs", nargs="*", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--store", nargs="*", type=Path, default=[], help="further graphs")
    parser.add_argument("--parts", nargs="*", type=int, default=[4, 8])
    parser.add_argument("--partitioners", nargs="*", default=["metis", "pymetis", "mtkahypar"])
    take(parser, rounds=1, threads=2, data=data_folder())


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


def work(name: str, store: str, num_parts: int, num_threads: int) -> dict[str, Any]:
    """Make one partition; print a line before, one after, and return what it is worth."""
    import numpy as np

    from gnnscale.graph import Graph
    from gnnscale.partition.edge_cut.multilevel import balances

    graph = Graph.open(Path(store))
    partitioner = partitioner_named(name)
    arguments = {"num_parts": num_parts, "num_hops": 2, "num_threads": num_threads}
    forecast = partitioner.forecast(graph, **arguments)
    memory = forecast.memory_bytes + resident(os.getpid())
    print(json.dumps({"forecast": memory, "forecast_s": forecast.seconds}), flush=True)
    seconds, parts = timed(partial(partitioner.assign, graph, **arguments))
    print(json.dumps({"seconds": seconds}), flush=True)
    crossing = 0
    for first in range(0, graph.num_edges, _SLICE):
        src = graph.indices[first : first + _SLICE]
        dst = np.searchsorted(graph.indptr, np.arange(first, first + len(src)), side="right") - 1
        crossing += int((parts.owner[src] != parts.owner[dst]).sum())
    trained = np.bincount(graph.train_idx, minlength=graph.num_vertices)
    ones = np.ones(graph.num_vertices, np.int64)
    weights = np.stack([ones, np.diff(graph.indptr), trained], axis=1)
    found = balances(weights, parts.owner, parts.num_parts)
    return {
        **{"cut": crossing / 2, "fraction": crossing / max(1, graph.num_edges)},
        **dict(zip(("vertices", "edges", "train"), found, strict=True)),
        **{"topology": graph.topology_bytes, "notes": parts.notes},
    }


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
    command = call_of(work, partitioner, store, parts, threads)
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
    with most_of(lambda: resident(process.pid), _LOOK_EVERY_S) as most:
        found |= json.loads(process.stdout.readline() or "{}")
    found |= json.loads(process.stdout.readline() or "{}")
    if process.wait():
        raise SystemExit(f"{partitioner} on {store}: ended with status {process.returncode}")
    return found | {"memory": most[0]}


def row(label: list[str], figures: dict[str, Any]) -> list[str]:
    return [
        *(*label, f"{figures['cut']:,.0f}", f"{figures['fraction']:.2%}"),
        *(f"{figures[key]:.3f}" for key in ("vertices", "edges", "train")),
        *(f"{figures[key]:.1f}" for key in ("seconds", "forecast_s")),
        *(f"{figures[key] / 1e6:,.0f}" for key in ("memory", "forecast")),
        f"{figures['memory'] / figures['topology']:.1f}",
    ]


def run(options: argparse.Namespace) -> Any:
    stores = {}
    for name in options.graphs:
        chosen = [each.format(data=options.data.absolute()) for each in GRAPHS[name]]
        stores[name] = prepared(*chosen, *(() if name == "rmat" else _UNDIRECTED))
    stores |= {store.name: store for store in options.store}
    rows, everything = [], []
    for (name, store), parts in product(stores.items(), options.parts):
        rounds: dict[str, list[dict[str, Any]]] = {each: [] for each in options.partitioners}
        for _ in range(options.rounds):
            for each in options.partitioners:
                rounds[each].append(measured(each, store, parts, options.threads))
        for each, found in rounds.items():
            numbers = medians([{k: v for k, v in one.items() if k != "notes"} for one in found])
            label = {"graph": name, "parts": parts, "partitioner": each}
            rows.append(row([name, str(parts), each], numbers))
            everything.append(label | numbers | {"rounds": found})
            tell(" ".join(rows[-1]))
    columns = "graph,parts,partitioner,cut,of edges,vertices,edges,train,s,forecast,MB,forecast"
    columns = [*columns.split(","), "x topology"]
    load = os.getloadavg()[0]
    title = f"medians of {options.rounds} rounds, {options.threads} threads, load {load:.1f}"
    show(title, columns, rows)
    return everything
