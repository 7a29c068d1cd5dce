"""What plans foretell, against what the run's batches read: hit rates and transactions."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarking import show

from caches.runs import draw, graphs, hit_rates, plan, run_of, with_caches

#: Policies whose rows stay, and Legion with lists, by expectation and by counts.
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {})
        for name in ("pagraph", "aligraph", "gnnlab", "pagerank", "inclusion", "random")
    },
    "legion": ("legion", {}),
    "legion, by counts": ("legion", {"hotness": "presampled"}),
}
#: A hit rate may be so far off, and so may the transactions of an epoch, as a part.
MAX_POINTS, MAX_ERROR = 0.01, 0.05


def foretold(options: argparse.Namespace) -> dict[str, Any]:
    """Foretell, count and compare, on one GPU whose run has five epochs."""
    found: list[dict[str, Any]] = []
    for graph in graphs(options.store):
        epochs = options.epochs or 5
        run = draw(
            run_of(graph, None, num_devices=1, num_epochs=epochs, num_threads=options.threads)
        )
        for ratio in options.ratios or [0.05, 0.2, 0.5]:
            task = with_caches(run, ratio)
            for label, (name, choices) in POLICIES.items():
                made, counted = plan(task, name, **choices)
                assert made.predicted is not None
                transactions = sum(each.transactions for each in counted) / epochs
                told = sum(each.transactions for each in made.predicted)
                found.append(
                    {
                        **{"graph": graph.path.name if graph.path else graph.name, "ratio": ratio},
                        **{"policy": label, "epochs": epochs},
                        "foretold": hit_rates(made.predicted)["hit_rate"],
                        "counted": hit_rates(counted)["hit_rate"],
                        "error": told / transactions - 1 if transactions else 0.0,
                    }
                )
    for ratio in dict.fromkeys(each["ratio"] for each in found):
        show(
            f"hit rates, foretold and counted, {100 * ratio:.4g} % of rows",
            ["graph", *POLICIES, "transactions: legion", "by counts"],
            [row(found, graph, ratio) for graph in dict.fromkeys(e["graph"] for e in found)],
        )
    missed = [
        f"{each['graph']}, {each['ratio']}, {each['policy']}: "
        f"{100 * (each['foretold'] - each['counted']):+.2f} points, {each['error']:+.1%}"
        for each in found
        if abs(each["foretold"] - each["counted"]) > MAX_POINTS
        or (each["policy"].startswith("legion") and abs(each["error"]) > MAX_ERROR)
    ]
    return {"figures": found, "missed": missed}


def row(found: list[dict[str, Any]], graph: str, ratio: float) -> list[str]:
    of = {e["policy"]: e for e in found if (e["graph"], e["ratio"]) == (graph, ratio)}
    rates = [f"{100 * each['foretold']:.1f} / {100 * each['counted']:.1f}" for each in of.values()]
    errors = [f"{of[name]['error']:+.2%}" for name in ("legion", "legion, by counts")]
    return [graph, *rates, *errors]
