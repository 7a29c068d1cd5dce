"""Legion's figures 2, 3 and 9: transactions over GPUs, hit rates of each GPU, and over sizes."""

from __future__ import annotations

import argparse
from typing import Any

from bench.cases.caches.hits import LEGION, POLICIES, compare, settings
from bench.cases.caches.runs import graphs
from bench.runner import show

#: Figure 9 compares partition strategies, all by pre-sampled hotness.
STRATEGIES = {
    "no partition, no NVLink": "gnnlab",
    "no partition, NVLink": "quiver_plus",
    "edge cut, no NVLink": "pagraph_plus",
    "hierarchical, NVLink": LEGION,
}
#: Figure 2 has these.
SCALED = ("pagraph", "gnnlab", "quiver_plus", "pagraph_plus", LEGION)
_FEW = 0.05


def figures(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and show the three figures."""
    found: dict[str, Any] = {}
    for graph in graphs(options.store):
        common: dict[str, Any] = {
            **{"num_epochs": options.epochs or 3, "num_threads": options.threads}
        }
        scaled = [
            each
            for num_devices in (1, 2, 4, 8)
            for each in compare(
                graph,
                [machine for machine in options.machines if machine != "dgx_a100"],
                [_FEW],
                num_devices=num_devices,
                policies={name: POLICIES[name] for name in SCALED},
                **common,
            )
        ]
        show_scaled(graph.name, scaled)
        eight = list(
            compare(
                graph,
                options.machines,
                options.ratios or [0.0125, 0.025, 0.05, 0.1],
                num_devices=8,
                policies={name: POLICIES[name] for name in POLICIES if name != "oracle_static"},
                **common,
            )
        )
        show_devices(eight)
        show_sizes(graph.name, eight)
        found[graph.name] = {"scaled": scaled, "eight": eight}
    return found


def show_scaled(name: str, found: list[dict[str, Any]]) -> None:
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


def show_devices(found: list[dict[str, Any]]) -> None:
    """Figure 3: the hit rate of each GPU."""
    few = [each for each in found if each["ratio"] == _FEW]
    for title, of in settings(few):
        rows = [
            [label, *(f"{rate:.1%}" for rate in each["of_devices"])] for label, each in of.items()
        ]
        show(f"figure 3: {title}", ["policy", *(f"GPU {gpu}" for gpu in range(8))], rows)


def show_sizes(name: str, found: list[dict[str, Any]]) -> None:
    """Figure 9: hit rates over sizes of the caches."""
    ratios = sorted({each["ratio"] for each in found})
    for machine in dict.fromkeys(each["machine"] for each in found):
        of = {(e["policy"], e["ratio"]): e for e in found if e["machine"] == machine}
        rows = [
            [label, *(f"{of[used, ratio]['hit_rate']:.2%}" for ratio in ratios)]
            for label, used in STRATEGIES.items()
        ]
        columns = [f"{ratio:.4g} of rows" for ratio in ratios]
        show(f"figure 9: {name}, {machine}, 8 GPUs", ["strategy", *columns], rows)
