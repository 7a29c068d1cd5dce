"""What plans foretell against counts: hit rates, transactions, and the division of memory."""

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cases.caches import runs
from benchmarks.cases.caches.runs import CacheTask, graphs, policy, run_of, with_caches
from benchmarks.runner import show
from gnnscale import ops
from gnnscale.cache import CachePlan, PresampledBatch

#: Divisions of the memory that are predicted and counted, and those that brute force looks at.
COARSE, FINE = range(0, 101, 10), range(101)
#: A hit rate may be so far off, and so may transactions, and those above the best division.
MAX_POINTS, MAX_ERROR, MAX_EXCESS = 0.01, 0.05, 0.01
#: Policies whose rows stay, and Legion with lists, by expectation and by counts.
_STATIC = ("pagraph", "aligraph", "gnnlab", "pagerank", "inclusion", "random", "legion")
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in _STATIC},
    "legion, by counts": ("legion", {"hotness": "presampled"}),
}


@dataclass(kw_only=True)
class Counted:
    """What the epochs of a run read: of each device rows, edges and visits by vertex."""

    num_epochs: int

    rows: dict[int, Any]
    edges: dict[int, Any]
    visits: dict[int, Any]

    @classmethod
    def of(cls, run: CacheTask) -> "Counted":
        empty = [
            {each.position: np.zeros(run.graph.num_vertices, np.int32) for each in run.devices}
            for _ in range(3)
        ]
        found = cls(num_epochs=run.num_epochs, rows=empty[0], edges=empty[1], visits=empty[2])

        def count(draw: PresampledBatch) -> None:
            batch, device = draw.batch, draw.device
            ops.count_uses(batch.input_vertices, found.rows[device], num_threads=1)
            for block in batch.blocks:
                vertices = batch.input_vertices[: block.num_dst]
                ops.count_reads(block.indptr, vertices, found.edges[device], num_threads=1)
                ops.count_uses(vertices, found.visits[device], num_threads=1)

        for epoch in range(run.num_epochs):
            for draw in run.draws.epoch(epoch):
                count(draw)
        return found

    def transactions(self, task: CacheTask, made: CachePlan) -> float:
        of_lists = of_rows = 0
        for device in task.devices:
            clique = [made.of(each) for each in made.clique_of(device.position)]
            lists = [each.topology for each in clique]
            of_lists += missed(self.edges[device.position], lists)
            of_lists += missed(self.visits[device.position], lists)
            rows = missed(self.rows[device.position], [each.features for each in clique])
            of_rows += rows * int(device.row_transactions(task.row_bytes))
        return (of_lists + of_rows) / self.num_epochs


def missed(counts: Any, kept: list[Any]) -> int:
    """Return the sum of ``counts`` of vertices that nobody keeps."""
    hits = sum(int(counts[vertices].sum(dtype=np.int64)) for vertices in kept)
    return int(counts.sum(dtype=np.int64)) - hits


def model(options: argparse.Namespace) -> dict[str, Any]:
    """Predict, count and compare; a plan knows the first epoch of three, and no other."""
    found, failed = [], []
    machine = options.machines[0]
    for graph in graphs(options.store):
        sizes = {"num_devices": options.devices, "num_epochs": options.epochs or 3}
        sizes["num_threads"] = options.threads
        run = runs.draw(run_of(graph, "hierarchical", machine=machine, **sizes))
        counted = Counted.of(run)
        for ratio in options.ratios or [0.0125, 0.025, 0.05, 0.1]:
            task = with_caches(run, ratio, runs.cliques_of(machine, options.devices))
            found.append({"graph": graph.name, "ratio": ratio, **measured(task, counted)})
            print(f"{graph.name}, {ratio}: {found[-1]['mean_error']:.2%}", flush=True)
    show_model(f"cost model, {options.devices} GPUs of {machine}", found)
    errors = [each["mean_error"] for each in found]
    print(f"mean error over all: {statistics.fmean(errors):.2%}")
    for each in found:
        place = f"{each['graph']}, {each['ratio']:.4g}"
        if each["mean_error"] > MAX_ERROR:
            failed.append(f"{place}: predictions are off by {each['mean_error']:.2%}")
        if each["excess"] > MAX_EXCESS:
            failed.append(f"{place}: {each['excess']:.2%} above the best division")
    return {"figures": found, "mean_error": statistics.fmean(errors), "missed": failed}


def measured(task: CacheTask, counted: Counted) -> dict[str, Any]:
    counts, predicted = {}, {}
    for step in FINE:
        made = policy("legion", alpha=step / 100).plan(task)
        counts[step] = counted.transactions(task, made)
        predicted[step] = made.curve[step].n_total
    errors = {step: predicted[step] / counts[step] - 1 for step in COARSE if counts[step]}
    best = min(FINE, key=lambda step: counts[step])
    chosen = policy("legion").plan(task)
    picked = counted.transactions(task, chosen)
    # Spearman's rank correlation; values are distinct, or nearly so.
    coarse = ([each[step] for step in COARSE] for each in (predicted, counts))
    ranks = [np.argsort(np.argsort(values)) for values in coarse]
    off = [abs(error) for error in errors.values()]
    return {
        **{"mean_error": statistics.fmean(off), "max_error": max(off), "errors": errors},
        "spearman": float(np.corrcoef(*ranks)[0, 1]),
        **{"alpha": chosen.alpha, "best_alpha": best / 100, "excess": picked / counts[best] - 1},
        **{"transactions": picked, "rows_alone": counts[0]},
        **{"counted": counts, "predicted": predicted},
    }


def show_model(title: str, found: list[dict[str, Any]]) -> None:
    forms = {"mean_error": ".2%", "max_error": ".2%", "spearman": ".3f"}
    forms |= {"alpha": ".3f", "best_alpha": ".2f", "excess": "+.2%"}
    rows = []
    for each in found:
        cells = (f"{each[key]:{form}}" for key, form in forms.items())
        alone = f"{each['transactions'] / each['rows_alone']:.3f}"
        rows.append([f"{each['graph']}, {100 * each['ratio']:.4g} %", *cells, alone])
    columns = ["mean error", "max", "Spearman", "alpha", "best", "above best", "/ rows alone"]
    show(title, ["graph, cache", *columns], rows)


def foretold(options: argparse.Namespace) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for graph in graphs(options.store):
        epochs = options.epochs or 5
        sizes = {"num_devices": 1, "num_epochs": epochs, "num_threads": options.threads}
        run = runs.draw(run_of(graph, None, **sizes))
        for ratio in options.ratios or [0.05, 0.2, 0.5]:
            task = with_caches(run, ratio)
            for label, (name, choices) in POLICIES.items():
                made = policy(name, **choices).plan(task)
                counted = runs.counted_traffic(task, made)
                transactions = sum(each.transactions for each in counted) / epochs
                foreseen = sum(each.transactions for each in made.predicted)
                place = {"graph": graph.path.name if graph.path else graph.name, "ratio": ratio}
                both = {"foretold": made.predicted, "counted": counted}
                rates = {key: runs.hit_rates(each)["hit_rate"] for key, each in both.items()}
                error = foreseen / transactions - 1 if transactions else 0.0
                found.append({**place, "policy": label, "epochs": epochs, **rates, "error": error})
    for ratio in dict.fromkeys(each["ratio"] for each in found):
        rows = [row(found, graph, ratio) for graph in dict.fromkeys(e["graph"] for e in found)]
        columns = ["graph", *POLICIES, "transactions: legion", "by counts"]
        show(f"hit rates, foretold and counted, {100 * ratio:.4g} % of rows", columns, rows)
    missed = []
    for each in found:
        off, far = each["foretold"] - each["counted"], abs(each["error"]) > MAX_ERROR
        if abs(off) > MAX_POINTS or (each["policy"].startswith("legion") and far):
            place = f"{each['graph']}, {each['ratio']}, {each['policy']}"
            missed.append(f"{place}: {100 * off:+.2f} points, {each['error']:+.1%}")
    return {"figures": found, "missed": missed}


def row(found: list[dict[str, Any]], graph: str, ratio: float) -> list[str]:
    of = {e["policy"]: e for e in found if (e["graph"], e["ratio"]) == (graph, ratio)}
    rates = [f"{100 * each['foretold']:.1f} / {100 * each['counted']:.1f}" for each in of.values()]
    errors = [f"{of[name]['error']:+.2%}" for name in ("legion", "legion, by counts")]
    return [graph, *rates, *errors]
