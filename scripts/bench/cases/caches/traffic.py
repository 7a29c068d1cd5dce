"""What crosses the links in an epoch: Legion, published policies, and look-ahead on top."""

from __future__ import annotations

import argparse
from typing import Any

from bench.cases.caches.hits import measured
from bench.cases.caches.runs import (
    MACHINES,
    CacheTask,
    cliques_of,
    draw,
    graphs,
    policy,
    run_of,
    with_caches,
)
from bench.runner import show

#: What Legion is compared with, and the partition of each.
OTHERS = {"pagraph": "pagraph", "gnnlab": None, "quiver": None}
WINDOW = 8


def traffic(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, show, and look whether a unified cache ever moves more than rows alone."""
    found: list[dict[str, Any]] = []
    for graph in graphs(options.store):
        common: dict[str, Any] = {"num_threads": options.threads}
        settings = [("one GPU", MACHINES[0], 1)]
        settings += [(machine, machine, options.devices) for machine in options.machines]
        others = {
            (partition, devices): draw(run_of(graph, partition, num_devices=devices, **common))
            for devices in dict.fromkeys(devices for _, _, devices in settings)
            for partition in OTHERS.values()
        }
        for name, machine, devices in settings:
            run = draw(
                run_of(graph, "hierarchical", machine=machine, num_devices=devices, **common)
            )
            for ratio in options.ratios or [0.0125, 0.025, 0.05, 0.1]:
                cliques = cliques_of(machine, devices)
                task = with_caches(run, ratio, cliques)
                of = {
                    other: measured(with_caches(others[used, devices], ratio, cliques), other, {})
                    for other, used in OTHERS.items()
                }
                of["legion, rows alone"] = measured(task, "legion", {"alpha": 0.0})
                of["legion"] = measured(task, "legion", {})
                of["belady + match"] = looking_ahead(task)
                found.append({"graph": graph.name, "where": name, "ratio": ratio, "of": of})
    show_traffic(found)
    missed = [
        f"{each['graph']}, {each['where']}, {each['ratio']}: a unified cache moves more"
        for each in found
        if each["of"]["legion"]["transactions"] > each["of"]["legion, rows alone"]["transactions"]
    ]
    return {"figures": found, "missed": missed}


def looking_ahead(task: CacheTask) -> dict[str, Any]:
    """Return what caches of their own read that follow the batches to come."""
    predicted = policy("belady", window=WINDOW, match=True).plan(task).predicted
    assert predicted is not None
    rows = sum(each.rows[-1] for each in predicted)
    return {
        "row_transactions": rows * task.devices[0].row_transactions(task.row_bytes),
        "transactions": sum(each.transactions for each in predicted),
        "link_bytes": sum(each.link_bytes for each in predicted),
    }


def show_traffic(found: list[dict[str, Any]]) -> None:
    names = list(found[0]["of"])
    for key, what in (
        ("transactions", "transactions of sampling and rows"),
        ("row_transactions", "transactions of rows"),
    ):
        rows = []
        for each in found:
            base = each["of"]["gnnlab"][key]
            label = f"{each['graph']}, {each['where']}, {100 * each['ratio']:.4g} %"
            cells = [f"{each['of'][name][key] / base:.3f}" for name in names]
            rows.append([label, f"{base / 1e6:,.1f} M", *cells])
        show(f"{what} over the links in an epoch, / gnnlab", ["caches", "gnnlab", *names], rows)
