"""One benchmark of this checkout and of another one, round by round in turn.

    python scripts/compare_checkouts.py ../before bench_epoch [--system gnnscale-bf16] [--rounds 20]

The speed of a machine changes by more than most changes of code do, so that one run after the other
compares moments. Here both processes live side by side, who goes first alternates, and every pair
of rounds gives a ratio. The other checkout needs its own native extension, built in place.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import sysconfig
from pathlib import Path

from benchmarking import Worker, save, show

ROOT = Path(__file__).parents[1]


def workers(base: Path, benchmark: str, system: str, threads: int) -> dict[str, Worker]:
    """Start ``system`` of the benchmark in both checkouts, below the virtual environment."""
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = sysconfig.get_path("purelib")
    found = {}
    for name, root in (("before", base.absolute()), ("now", ROOT)):
        script = str(root / "scripts" / f"{benchmark}.py")
        path = os.pathsep.join([str(root), packages])
        found[name] = Worker(system, [script], threads, python=str(python), PYTHONPATH=path)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("base", type=Path, help="root of the other checkout")
    arguments.add_argument("benchmark", help="bench_sampler, bench_gather, bench_epoch, ...")
    arguments.add_argument("--system", default="gnnscale", help="as the benchmark calls it")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    systems = workers(options.base, options.benchmark, options.system, options.threads)
    if not all(worker.ready for worker in systems.values()):
        raise SystemExit(f"{options.benchmark} did not start in both checkouts")
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for number in range(options.rounds + 2):
        for name in sorted(systems, reverse=number % 2 == 1):
            figures[name].append(systems[name].round(number))
    for worker in systems.values():
        worker.close()
    pairs = list(zip(figures["before"][2:], figures["now"][2:], strict=True))  # two are to warm up
    rows: list[list[str]] = []
    results: dict[str, dict[str, float]] = {}
    for figure in pairs[0][0]:
        before, now, ratio = (
            statistics.median(values)
            for values in zip(
                *((b[figure], n[figure], n[figure] / b[figure]) for b, n in pairs), strict=True
            )
        )
        if all(b[figure] == n[figure] for b, n in pairs):
            continue  # a size, not a time
        results[figure] = {"before": before, "now": now, "ratio": ratio}
        rows.append([figure, f"{before:.4g}", f"{now:.4g}", f"{ratio:.3f}"])
    title = f"{options.benchmark}, {options.system}, {options.threads} threads"
    show(title, ["median of", "before", "now", "now / before, of pairs"], rows)
    save(options.json, results)


if __name__ == "__main__":
    main()
