"""One benchmark of this checkout and of another one, round by round in turn.

    python scripts/benchmarks checkouts ../before epoch --system gnnscale-bf16 --rounds 20

Both processes live side by side, and every pair of rounds gives a ratio. The other checkout needs
its own native extension, built in place; with ``GNNSCALE_MEASURE_UNCHECKED`` one shows what checks
cost.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.runner import ROOT, Worker, show, take


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, help="root of the other checkout")
    parser.add_argument("benchmark", help="sampler, gather, epoch, loader")
    parser.add_argument("--system", default="gnnscale", help="as the benchmark calls it")
    take(parser, rounds=20, threads=2)


def base_python() -> str:
    """Return the interpreter below a virtual environment, which may have another checkout."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(sys.base_prefix) / "bin" / name)


def base_path(root: Path) -> str:
    return os.pathsep.join([str(root), *(each for each in sys.path if "site-packages" in each)])


def run(options: argparse.Namespace) -> Any:
    systems = {}
    for name, root in (("before", options.base.absolute()), ("now", ROOT)):
        command = [base_python(), str(root / "scripts" / "benchmarks"), options.benchmark]
        systems[name] = Worker(options.system, command, options.threads, PYTHONPATH=base_path(root))
    if not all(worker.ready for worker in systems.values()):
        raise SystemExit(f"{options.benchmark} did not start in both checkouts")
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for number in range(options.rounds + 2):
        for name in sorted(systems, reverse=number % 2 == 1):
            figures[name].append(systems[name].round(number))
    for worker in systems.values():
        worker.close()
    pairs = list(zip(figures["before"][2:], figures["now"][2:], strict=True))  # two are to warm up
    results: dict[str, dict[str, float]] = {}
    for figure in pairs[0][0]:
        values = [(before[figure], now[figure]) for before, now in pairs]
        if all(before == now for before, now in values):
            continue  # a size, not a time
        before, now = (statistics.median(each) for each in zip(*values, strict=True))
        ratio = statistics.median(now / before for before, now in values)
        results[figure] = {"before": before, "now": now, "ratio": ratio}
    rows = [
        [name, f"{each['before']:.4g}", f"{each['now']:.4g}", f"{each['ratio']:.3f}"]
        for name, each in results.items()
    ]
    title = f"{options.benchmark}, {options.system}, {options.threads} threads"
    show(title, ["median of", "before", "now", "now / before, of pairs"], rows)
    return results
