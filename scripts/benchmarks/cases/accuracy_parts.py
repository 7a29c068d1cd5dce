"""Test metrics of runs over parts, beside those of runs over the whole graph.

Every partitioner trains with the same seeds and hyper-parameters, with as many parts as workers.
Exit status 1: the mean of a partitioner is further away than a point.
"""

import argparse
import json
import math
import statistics
from typing import Any

from benchmarks.cases.accuracy import ROWS, points_of, train_gnnscale
from benchmarks.runner import data_folder, show, take, tell

PARTITIONERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["hash", "range", "random", "metis", "mtkahypar", "pagraph", "p3"], ()),
    "hierarchical": ("partitioner.nvlink=siton",),
}
OURS = {"gnnscale": train_gnnscale}
#: How far a partitioner may be from no partitioning, in points.
MAX_POINTS = 1.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--devices", nargs="+", type=int, choices=(2, 4), default=[2, 4])
    names = list(PARTITIONERS)
    parser.add_argument("--partitioners", nargs="+", choices=names, default=names)
    take(parser, seeds=3, data=data_folder())


def compare(row: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    experiment, raw = ROWS[row].experiment, options.data.absolute() / ROWS[row].raw
    found = []
    for devices in options.devices:
        common = [f"config={experiment}", f"dataset.raw={raw}", f"device_plan=cpu_x{devices}"]
        whole = points_of(row, OURS, common, options.seeds)["gnnscale"]
        for name in options.partitioners:
            chosen = [*common, f"partitioner={name}", *PARTITIONERS[name]]
            parts = points_of(f"{row} {name}", OURS, chosen, options.seeds)["gnnscale"]
            differences = [mine - theirs for mine, theirs in zip(parts, whole, strict=True)]
            spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
            means = {"whole": whole, "parts": parts, "points": differences}
            figures = {key: statistics.fmean(each) for key, each in means.items()}
            error = spread / math.sqrt(len(differences))
            label = {"row": row, "devices": devices, "partitioner": name}
            found.append({**label, **figures, "standard_error": error})
            tell(json.dumps(found[-1]))
    return found


def run(options: argparse.Namespace) -> Any:
    found = [each for row in options.rows for each in compare(row, options)]
    rows = []
    for each in found:
        means = (f"{each[key]:.2f}" for key in ("whole", "parts"))
        points = f"{each['points']:+.2f} ± {each['standard_error']:.2f}"
        rows.append([each["row"], str(each["devices"]), each["partitioner"], *means, points])
    title = f"Test metrics over parts, mean of {options.seeds} seeds, in points"
    show(title, ["graph", "devices", "partitioner", "whole", "parts", "difference"], rows)
    far = [each for each in found if abs(each["points"]) > MAX_POINTS]
    missed = [f"{e['row']}, {e['partitioner']}: {e['points']:+.2f} points" for e in far]
    return {"figures": found, "missed": missed}
