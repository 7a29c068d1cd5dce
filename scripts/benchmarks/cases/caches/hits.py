"""Hit rates and traffic of all policies, each over the partition of its publication."""

import argparse
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from benchmarks.cases.caches import runs
from benchmarks.cases.caches.runs import MACHINES, CacheTask, cliques_of, draw, run_of, with_caches
from benchmarks.runner import show

Rows = list[dict[str, Any]]

#: Label: the policy, its options, and the partition that its publication uses.
_BY_COUNTS = {"alpha": 0.0, "hotness": "presampled"}
POLICIES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "pagraph": ("pagraph", {}, "pagraph"),
    **{name: (name, {}, None) for name in ("aligraph", "gnnlab", "quiver", "quiver_plus")},
    "pagraph_plus": ("pagraph_plus", {}, "mtkahypar"),
    "legion, rows alone": ("legion", {"alpha": 0.0}, "hierarchical"),
    "legion": ("legion", {}, "hierarchical"),
    "legion, rows alone, by counts": ("legion", _BY_COUNTS, "hierarchical"),
    "oracle_static": ("oracle_static", {}, "hierarchical"),
    # Caches of their own that follow the batches to come.
    "belady + match": ("belady", {"window": 8, "match": True}, "hierarchical"),
}
PUBLISHED = ("pagraph", "aligraph", "gnnlab", "quiver", "quiver_plus", "pagraph_plus")
#: What a hierarchical partition is compared by: its rows alone, as in the paper.
LEGION, BOUND = "legion, rows alone", "oracle_static"
#: The least part of the bound.
MIN_SHARE = 0.98
#: Figure 9 compares partition strategies, all by pre-sampled hotness.
STRATEGIES = {"no partition, no NVLink": "gnnlab", "no partition, NVLink": "quiver_plus"}
STRATEGIES |= {"edge cut, no NVLink": "pagraph_plus", "hierarchical, NVLink": LEGION}
#: Policies whose traffic is compared.
CROSSING = ("pagraph", "gnnlab", "quiver", LEGION, "legion", "belady + match")
_RATIOS = [0.0125, 0.025, 0.05, 0.1]


def compare(
    graph: Any, machines: Iterable[str], ratios: list[float], names: Iterable[str], **sizes: int
) -> Iterator[dict[str, Any]]:
    """Yield what each policy reaches on each machine with caches of each size.

    Runs over the same parts are drawn once; those over a hierarchical partition once a machine.
    """
    policies, num_devices = {name: POLICIES[name] for name in names}, sizes["num_devices"]
    for partition in dict.fromkeys(used for _, _, used in policies.values()):
        run: CacheTask | None = None
        for machine in machines:
            if run is None or partition == "hierarchical":
                run = draw(run_of(graph, partition, machine=machine, **sizes))
            for ratio in ratios:
                task = with_caches(run, ratio, cliques_of(machine, num_devices))
                place = {"graph": graph.name, "machine": machine, "ratio": ratio}
                for label, (name, options, used) in policies.items():
                    if used == partition:
                        whose = {"policy": label, "devices": num_devices}
                        yield {**place, **whose, **measured(task, name, options)}


def measured(task: CacheTask, name: str, options: dict[str, Any]) -> dict[str, Any]:
    made = runs.policy(name, **options).plan(task)
    # What a cache that changes will read is known from its plan alone.
    traffic = made.predicted if name == "belady" else runs.counted_traffic(task, made)
    missed = sum(each.rows[-1] for each in traffic)
    return {
        **runs.hit_rates(traffic),
        "of_devices": [each.feature_hit_rate for each in traffic],
        "transactions": sum(each.transactions for each in traffic),
        "row_transactions": missed * task.devices[0].row_transactions(task.row_bytes),
        "link_bytes": sum(each.link_bytes for each in traffic),
        **{"alpha": made.alpha, "epochs": task.num_epochs, "steps": task.draws.steps_per_epoch},
        "seeds": task.batch_size // task.num_devices,
    }


def settings(found: Rows) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield each graph, machine and size of caches, and what policies reach there."""
    place = itemgetter("graph", "machine", "devices", "ratio")
    for graph, machine, devices, ratio in dict.fromkeys(map(place, found)):
        same = (each for each in found if place(each) == (graph, machine, devices, ratio))
        of = {each["policy"]: each for each in same}
        yield f"{graph}, {devices} GPUs of {machine}, {100 * ratio:.4g} % of rows", of


def hits(options: argparse.Namespace) -> dict[str, Any]:
    found, missed, ratios = [], [], options.ratios or [0.05, 0.1]
    names = [name for name in POLICIES if name != "belady + match"]
    sizes = {"num_epochs": options.epochs or 3, "num_threads": options.threads}
    sizes["num_devices"] = options.devices
    for graph in runs.graphs(options.store):
        found += compare(graph, options.machines, ratios, names, **sizes)
    for title, of in settings(found):
        base, bound, mine = of["gnnlab"], of[BOUND]["hit_rate"], of[LEGION]["hit_rate"]
        counts = ("row_transactions", "transactions")
        rows = [
            [
                *(label, *(f"{of[label][key]:.2%}" for key in ("hit_rate", "min", "max"))),
                *(f"{of[label][key] / base[key]:.3f}" for key in counts),
                f"{of[label]['hit_rate'] / bound:.2%}",
            ]
            for label in names
        ]
        columns = ["hit rate", "min", "max", "rows / gnnlab", "all / gnnlab", "of the bound"]
        seeds, steps, epochs = (base[key] for key in ("seeds", "steps", "epochs"))
        drawn = f"{seeds:,} seeds x {steps} steps x {epochs} epochs"
        show(f"{title}, {drawn}", ["policy", *columns], rows)
        for name in PUBLISHED:
            if (more := of[name]["hit_rate"] - mine) > 0:
                missed.append(f"{title}: {name} hits {more:.2%} more than {LEGION}")
        if mine < MIN_SHARE * bound:
            missed.append(f"{title}: {LEGION} reaches {mine / bound:.2%} of the bound")
    return {"figures": found, "missed": missed}


def figures(options: argparse.Namespace) -> dict[str, Any]:
    """Show Legion's figure 9: hit rates of strategies over the sizes of caches."""
    found: dict[str, Rows] = {}
    sizes = {"num_epochs": options.epochs or 3, "num_threads": options.threads}
    ratios, names = options.ratios or _RATIOS, STRATEGIES.values()
    for graph in runs.graphs(options.store):
        eight = [*compare(graph, options.machines, ratios, names, num_devices=8, **sizes)]
        for machine in options.machines:
            of = {(e["policy"], e["ratio"]): e for e in eight if e["machine"] == machine}
            rows = [
                [label, *(f"{of[used, ratio]['hit_rate']:.2%}" for ratio in ratios)]
                for label, used in STRATEGIES.items()
            ]
            columns = [f"{ratio:.4g} of rows" for ratio in ratios]
            show(f"figure 9: {graph.name}, {machine}, 8 GPUs", ["strategy", *columns], rows)
        found[graph.name] = eight
    return found


def traffic(options: argparse.Namespace) -> dict[str, Any]:
    """Show what crosses the links in an epoch, of one GPU and of the machines."""
    found: Rows = []
    ratios = options.ratios or _RATIOS
    for graph in runs.graphs(options.store):
        for machines, count in ((MACHINES[:1], 1), (options.machines, options.devices)):
            sizes = {"num_devices": count, "num_threads": options.threads}
            found += compare(graph, machines, ratios, CROSSING, **sizes)
    for key, what in (("transactions", "sampling and rows"), ("row_transactions", "rows")):
        rows = []
        for title, of in settings(found):
            base = of["gnnlab"][key]
            cells = [f"{of[name][key] / base:.3f}" for name in CROSSING]
            rows.append([title, f"{base / 1e6:,.1f} M", *cells])
        title = f"transactions of {what} over the links in an epoch, / gnnlab"
        show(title, ["caches", "gnnlab", *CROSSING], rows)
    missed = [
        f"{title}: a unified cache moves more"
        for title, of in settings(found)
        if of["legion"]["transactions"] > of[LEGION]["transactions"]
    ]
    return {"figures": found, "missed": missed}
