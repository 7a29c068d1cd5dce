"""Hit rates of all policies, each over the partition of its publication (Legion, figure 9)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from bench.cases.caches.runs import (
    CacheTask,
    Graph,
    cliques_of,
    draw,
    graphs,
    hit_rates,
    plan,
    run_of,
    total_rows,
    with_caches,
)
from bench.runner import show

#: Label: the policy, its options, and the partition that its publication uses.
POLICIES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "pagraph": ("pagraph", {}, "pagraph"),
    "aligraph": ("aligraph", {}, None),
    "gnnlab": ("gnnlab", {}, None),
    "quiver": ("quiver", {}, None),
    "quiver_plus": ("quiver_plus", {}, None),
    "pagraph_plus": ("pagraph_plus", {}, "mtkahypar"),
    "legion, rows alone": ("legion", {"alpha": 0.0}, "hierarchical"),
    "legion": ("legion", {}, "hierarchical"),
    "legion, rows alone, by counts": (
        *("legion", {"alpha": 0.0, "hotness": "presampled"}),
        "hierarchical",
    ),
    "oracle_static": ("oracle_static", {}, "hierarchical"),
}
PUBLISHED = ("pagraph", "aligraph", "gnnlab", "quiver", "quiver_plus", "pagraph_plus")
#: What a hierarchical partition is compared by: its rows alone, as in the paper.
LEGION, BOUND = "legion, rows alone", "oracle_static"
#: The least part of the bound.
MIN_SHARE = 0.98


def compare(
    graph: Graph,
    machines: list[str],
    ratios: list[float],
    *,
    num_devices: int,
    num_epochs: int = 1,
    num_threads: int,
    policies: dict[str, tuple[str, dict[str, Any], str | None]] = POLICIES,
) -> Iterator[dict[str, Any]]:
    """Yield what each policy reaches on each machine with caches of each size.

    Runs over the same parts are drawn once; those over a hierarchical partition once a machine.
    """
    for partition in dict.fromkeys(used for _, _, used in policies.values()):
        run: CacheTask | None = None
        for machine in machines:
            if run is None or partition == "hierarchical":
                run = draw(
                    run_of(
                        *(graph, partition),
                        machine=machine,
                        num_devices=num_devices,
                        num_epochs=num_epochs,
                        num_threads=num_threads,
                    )
                )
            for ratio in ratios:
                task = with_caches(run, ratio, cliques_of(machine, num_devices))
                for label, (name, options, used) in policies.items():
                    if used == partition:
                        yield {
                            **{"graph": graph.name, "machine": machine, "ratio": ratio},
                            **{"policy": label, "devices": num_devices},
                            **measured(task, name, options),
                        }


def measured(task: CacheTask, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one plan over the run's epoch."""
    made, traffic = plan(task, name, **options)
    _, missed = total_rows(traffic)
    transactions = missed * task.devices[0].row_transactions(task.row_bytes)
    return {
        **hit_rates(traffic),
        "of_devices": [each.feature_hit_rate for each in traffic],
        "transactions": sum(each.transactions for each in traffic),
        "row_transactions": transactions,
        "link_bytes": sum(each.link_bytes for each in traffic),
        "alpha": made.alpha,
        "epochs": task.num_epochs,
        "steps": task.draws.steps_per_epoch,
        "seeds": task.batch_size // task.num_devices,
    }


def settings(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the figures by policy of each graph, machine and size of caches."""
    for graph, machine, ratio in dict.fromkeys(
        (each["graph"], each["machine"], each["ratio"]) for each in found
    ):
        of = {
            each["policy"]: each
            for each in found
            if (each["graph"], each["machine"], each["ratio"]) == (graph, machine, ratio)
        }
        steps, seeds, epochs = (of[LEGION][key] for key in ("steps", "seeds", "epochs"))
        drawn = f"{seeds:,} seeds x {steps} steps x {epochs} epochs"
        yield f"{graph}, {machine}, {100 * ratio:.4g} % of rows, {drawn}", of


def hits(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, show, and hold against what must be reached."""
    found: list[dict[str, Any]] = []
    for graph in graphs(options.store):
        found += compare(
            graph,
            options.machines,
            options.ratios or [0.05, 0.1],
            num_devices=options.devices,
            num_epochs=options.epochs or 3,
            num_threads=options.threads,
        )
    missed = []
    for title, of in settings(found):
        base, bound = of["gnnlab"], of[BOUND]["hit_rate"]
        rows = [
            [
                label,
                *(f"{each[key]:.2%}" for key in ("hit_rate", "min", "max")),
                f"{each['row_transactions'] / base['row_transactions']:.3f}",
                f"{each['transactions'] / base['transactions']:.3f}",
                f"{each['hit_rate'] / bound:.2%}",
            ]
            for label in POLICIES
            for each in [of[label]]
        ]
        columns = ["hit rate", "min", "max", "rows / gnnlab", "all / gnnlab", "of the bound"]
        show(title, ["policy", *columns], rows)
        mine = of[LEGION]["hit_rate"]
        better = {name: of[name]["hit_rate"] - mine for name in PUBLISHED}
        missed += [
            f"{title}: {name} hits {more:.2%} more than {LEGION}"
            for name, more in better.items()
            if more > 0
        ]
        if mine < MIN_SHARE * bound:
            missed.append(f"{title}: {LEGION} reaches {mine / bound:.2%} of the bound")
    return {"figures": found, "missed": missed}
