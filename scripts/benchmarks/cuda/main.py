"""The command line of ``scripts/benchmarks/bench_cuda.py``."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.cuda.bench import FULL, TARGETS, TINY, Bench, environment
from benchmarks.runner import show
from gnnscale.core import ConfigError

#: The page of GPUs, and the figures of its table.
PAGE = Path(__file__).parents[3] / "docs" / "gpu.md"
FIGURES = PAGE.with_suffix(".json")
SECTIONS = ("check", "gather", "sample", "epoch", "step", "beside", "profile")


def main(arguments: Sequence[str]) -> int:
    """Run the sections that are asked for; return 2 if there is no GPU."""
    parser = argparse.ArgumentParser(prog="python scripts/benchmarks/bench_cuda.py")
    known = [*SECTIONS, "kernels"]
    parser.add_argument("sections", nargs="*", help=f"{', '.join(known)}; all but the last if none")
    parser.add_argument("--out", type=Path, help="also write the figures to this file, as JSON")
    parser.add_argument("--docs", action="store_true", help="write docs/gpu.json and docs/gpu.md")
    parser.add_argument("--index", type=int, default=0, help="of the GPU")
    parser.add_argument("--on-host", action="store_true", help="the host stands for the GPU, tiny")
    options = parser.parse_args(arguments)
    for name in options.sections:
        if name not in known:
            parser.error(f"{name}: sections are {', '.join(known)}")
    if options.docs and (options.on_host or options.sections):
        parser.error("--docs: writes all rows of a card, and so goes with no section and no host")
    try:
        sizes = TINY if options.on_host else FULL
        bench = Bench(on_host=options.on_host, index=options.index, sizes=sizes)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"measured on: {bench.name}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        # Kernels are compiled, and the machine is measured, once for all sections.
        os.environ.setdefault("GNNSCALE_HOME", home)
        for name in options.sections or SECTIONS:
            start = time.perf_counter()
            if name == "kernels":
                import_module("benchmarks.cuda.check").kernels_alone(bench)
            else:
                import_module(f"benchmarks.cuda.{name}").run(bench)
            bench.note(f"{name}.section_s", time.perf_counter() - start, "s")
            _write(bench, options.out)
    _show(bench)
    if options.docs:
        document(bench)
    bench.engine.close()
    return 0


def rows(figures: Mapping[str, Any], *, on_host: bool = False) -> list[list[str]]:
    """Return the table of targets for ``values`` of docs/gpu.json; a host reaches none."""
    lines = []
    for what, name, target, at_least in TARGETS:
        figure = figures.get(name, {})
        value = figure.get("value")
        measured, holds = f"did not run: {figure.get('reason', 'not in the measured sections')}", ""
        if value is not None:
            measured = f"{value:.4g}"
            reached = value >= target if at_least else value <= target
            holds = "" if on_host else "yes" if reached else "no"
        sign = "at least" if at_least else "at most"
        lines.append([what, f"{sign} {target:.4g}", measured, holds])
    return lines


def document(bench: Bench) -> None:
    """Write docs/gpu.json, and the table of docs/gpu.md that follows from it."""
    today = time.strftime("%Y-%m-%d")
    found = {"card": bench.name, "date": today, **environment(), "values": bench.figures}
    FIGURES.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table_of(found)))


#: What stands around the table in docs/gpu.md.
_BEGIN, _END = "<!-- figures of a card -->\n", "<!-- end of figures -->\n"


def table_of(found: Mapping[str, Any]) -> str:
    """Return the table of docs/gpu.md for the content of docs/gpu.json."""
    lines = [
        f"| row | target | {found['card']}, {found['date']} | reached |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows(found["values"])),
    ]
    return "".join(f"{line}\n" for line in lines)


def with_table(page: str, table: str) -> str:
    """Return ``page`` with another table."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}"


def _show(bench: Bench) -> None:
    figures = "emulated by the host" if bench.on_host else bench.name
    lines = rows(bench.figures, on_host=bench.on_host)
    show(f"Figures of: {figures}", ["row", "target", "measured", "reached"], lines)


def _write(bench: Bench, file: Path | None) -> None:
    if file is None:
        return
    kind = "emulated" if bench.on_host else "measured"
    written: dict[str, Any] = {"device": bench.name, "figures": kind, **environment()}
    file.write_text(json.dumps(written | {"values": bench.figures}, indent=1))
