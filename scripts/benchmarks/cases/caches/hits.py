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
}
PUBLISHED = ("pagraph", "aligraph", "gnnlab", "quiver", "quiver_plus", "pagraph_plus")
#: What a hierarchical partition is compared by: its rows alone, as in the paper.
LEGION, BOUND = "legion, rows alone", "oracle_static"
#: The least part of the bound.
MIN_SHARE = 0.98


def compare(
    graph: Any, machines: list[str], ratios: list[float], names: Iterable[str], **sizes: int
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
    made, traffic = runs.plan(task, name, **options)
    return {
        **runs.hit_rates(traffic),
        "of_devices": [each.feature_hit_rate for each in traffic],
        **moved(task, traffic),
        **{"alpha": made.alpha, "epochs": task.num_epochs, "steps": task.draws.steps_per_epoch},
        "seeds": task.batch_size // task.num_devices,
    }


def moved(task: CacheTask, traffic: Any) -> dict[str, Any]:
    missed = sum(each.rows[-1] for each in traffic)
    return {
        "transactions": sum(each.transactions for each in traffic),
        "row_transactions": missed * task.devices[0].row_transactions(task.row_bytes),
        "link_bytes": sum(each.link_bytes for each in traffic),
    }


def settings(found: Rows) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    place = itemgetter("graph", "machine", "ratio")
    for graph, machine, ratio in dict.fromkeys(map(place, found)):
        same = (each for each in found if place(each) == (graph, machine, ratio))
        of = {each["policy"]: each for each in same}
        steps, seeds, epochs = (of[LEGION][key] for key in ("steps", "seeds", "epochs"))
        drawn = f"{seeds:,} seeds x {steps} steps x {epochs} epochs"
        yield f"{graph}, {machine}, {100 * ratio:.4g} % of rows, {drawn}", of


def hits(options: argparse.Namespace) -> dict[str, Any]:
    found, missed, ratios = [], [], options.ratios or [0.05, 0.1]
    sizes = {"num_epochs": options.epochs or 3, "num_threads": options.threads}
    sizes["num_devices"] = options.devices
    for graph in runs.graphs(options.store):
        found += compare(graph, options.machines, ratios, POLICIES, **sizes)
    for title, of in settings(found):
        base, bound = of["gnnlab"], of[BOUND]["hit_rate"]
        counts = ("row_transactions", "transactions")
        rows = [
            [
                *(label, *(f"{of[label][key]:.2%}" for key in ("hit_rate", "min", "max"))),
                *(f"{of[label][key] / base[key]:.3f}" for key in counts),
                f"{of[label]['hit_rate'] / bound:.2%}",
            ]
            for label in POLICIES
        ]
        columns = ["hit rate", "min", "max", "rows / gnnlab", "all / gnnlab", "of the bound"]
        show(title, ["policy", *columns], rows)
        mine = of[LEGION]["hit_rate"]
        for name in PUBLISHED:
            if (more := of[name]["hit_rate"] - mine) > 0:
                missed.append(f"{title}: {name} hits {more:.2%} more than {LEGION}")
        if mine < MIN_SHARE * bound:
            missed.append(f"{title}: {LEGION} reaches {mine / bound:.2%} of the bound")
    return {"figures": found, "missed": missed}


# --- Legion's figures 2, 3 and 9 ---------------------------------------------------------------

#: Figure 9 compares partition strategies, all by pre-sampled hotness.
STRATEGIES = {"no partition, no NVLink": "gnnlab", "no partition, NVLink": "quiver_plus"}
STRATEGIES |= {"edge cut, no NVLink": "pagraph_plus", "hierarchical, NVLink": LEGION}
#: Figure 2 has these.
SCALED = ("pagraph", "gnnlab", "quiver_plus", "pagraph_plus", LEGION)
_FEW = 0.05


def figures(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    sizes = {"num_epochs": options.epochs or 3, "num_threads": options.threads}
    linked = [machine for machine in options.machines if machine != "dgx_a100"]
    ratios = options.ratios or [0.0125, 0.025, 0.05, 0.1]
    for graph in runs.graphs(options.store):
        scaled: Rows = []
        for count in (1, 2, 4, 8):
            scaled += compare(graph, linked, [_FEW], SCALED, num_devices=count, **sizes)
        show_scaled(graph.name, scaled)
        names = [name for name in POLICIES if name != BOUND]
        eight = [*compare(graph, options.machines, ratios, names, num_devices=8, **sizes)]
        show_devices(eight)
        show_sizes(graph.name, eight)
        found[graph.name] = {"scaled": scaled, "eight": eight}
    return found


def show_scaled(name: str, found: Rows) -> None:
    """Figure 2: transactions of reading rows over GPUs, those of gnnlab on one GPU being 1."""
    counts = sorted({each["devices"] for each in found})
    for machine in dict.fromkeys(each["machine"] for each in found):
        of = {(e["policy"], e["devices"]): e for e in found if e["machine"] == machine}
        base = of["gnnlab", counts[0]]["row_transactions"]
        rows = [
            [label, *(f"{of[label, count]['row_transactions'] / base:.3f}" for count in counts)]
            for label in SCALED
        ]
        columns = [f"{count} GPUs" for count in counts]
        show(f"figure 2: {name}, {machine}, {_FEW:.0%} of rows a GPU", ["policy", *columns], rows)


def show_devices(found: Rows) -> None:
    for title, of in settings([each for each in found if each["ratio"] == _FEW]):
        rows = [[label, *(f"{r:.1%}" for r in each["of_devices"])] for label, each in of.items()]
        show(f"figure 3: {title}", ["policy", *(f"GPU {gpu}" for gpu in range(8))], rows)


def show_sizes(name: str, found: Rows) -> None:
    ratios = sorted({each["ratio"] for each in found})
    for machine in dict.fromkeys(each["machine"] for each in found):
        of = {(e["policy"], e["ratio"]): e for e in found if e["machine"] == machine}
        rows = [
            [label, *(f"{of[used, ratio]['hit_rate']:.2%}" for ratio in ratios)]
            for label, used in STRATEGIES.items()
        ]
        columns = [f"{ratio:.4g} of rows" for ratio in ratios]
        show(f"figure 9: {name}, {machine}, 8 GPUs", ["strategy", *columns], rows)


# --- what crosses the links in an epoch -------------------------------------------------------

#: What Legion is compared with, and the partition of each.
OTHERS = {"pagraph": "pagraph", "gnnlab": None, "quiver": None}
WINDOW = 8


def traffic(options: argparse.Namespace) -> dict[str, Any]:
    found: Rows = []
    settings = [("one GPU", MACHINES[0], 1)]
    settings += [(machine, machine, options.devices) for machine in options.machines]
    for graph in runs.graphs(options.store):
        others = {}
        for devices in dict.fromkeys(devices for _, _, devices in settings):
            sizes = {"num_devices": devices, "num_threads": options.threads}
            for partition in OTHERS.values():
                others[partition, devices] = draw(run_of(graph, partition, **sizes))
        for name, machine, devices in settings:
            sizes = {"num_devices": devices, "num_threads": options.threads}
            run = draw(run_of(graph, "hierarchical", machine=machine, **sizes))
            for ratio in options.ratios or [0.0125, 0.025, 0.05, 0.1]:
                cliques = cliques_of(machine, devices)
                task, of = with_caches(run, ratio, cliques), {}
                for other, used in OTHERS.items():
                    of[other] = measured(
                        with_caches(others[used, devices], ratio, cliques), other, {}
                    )
                of["legion, rows alone"] = measured(task, "legion", {"alpha": 0.0})
                of["legion"] = measured(task, "legion", {})
                # Caches of their own that follow the batches to come.
                belady = runs.policy("belady", window=WINDOW, match=True)
                of["belady + match"] = moved(task, belady.plan(task).predicted)
                found.append({"graph": graph.name, "where": name, "ratio": ratio, "of": of})
    show_traffic(found)
    missed = [
        f"{each['graph']}, {each['where']}, {each['ratio']}: a unified cache moves more"
        for each in found
        if each["of"]["legion"]["transactions"] > each["of"]["legion, rows alone"]["transactions"]
    ]
    return {"figures": found, "missed": missed}


def show_traffic(found: Rows) -> None:
    names = list(found[0]["of"])
    for key, what in (("transactions", "sampling and rows"), ("row_transactions", "rows")):
        rows = []
        for each in found:
            base = each["of"]["gnnlab"][key]
            label = f"{each['graph']}, {each['where']}, {100 * each['ratio']:.4g} %"
            cells = [f"{each['of'][name][key] / base:.3f}" for name in names]
            rows.append([label, f"{base / 1e6:,.1f} M", *cells])
        title = f"transactions of {what} over the links in an epoch, / gnnlab"
        show(title, ["caches", "gnnlab", *names], rows)
