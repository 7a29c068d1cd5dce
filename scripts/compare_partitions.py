"""Test metrics of runs over parts, beside those of runs over the whole graph.

    python scripts/compare_partitions.py [--rows cora musae tolokers] [--devices 2 4] [--json FILE]

Every partitioner trains with the same seeds, split and hyper-parameters: those of experiments in
``gnnscale/configs/experiment``, with as many parts as workers. What is compared is the mean over
seeds, in points. Exit status 1 says that a partitioner is further away than a point.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarking import save, show

#: Experiment, and where a folder of raw files (``--data``) has its graph.
ROWS = {
    "cora": ("cora_gcn", "planetoid"),
    "musae": ("musae_sage", "musae_git/git_web_ml.zip"),
    "tolokers": ("tolokers_sage", "heterophilous"),
}
PARTITIONERS: dict[str, tuple[str, ...]] = {
    "hash": (),
    "range": (),
    "random": (),
    "metis": (),
    "mtkahypar": (),
    "pagraph": (),
    "p3": (),
    "hierarchical": ("partitioner.nvlink=siton",),
}
#: How far a partitioner may be from no partitioning, in points.
MAX_POINTS = 1.0


def metrics(options: list[str], seeds: int) -> list[float]:
    """Return the test metric of a run for each seed, in points."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = ["-m", f"seed={','.join(map(str, range(seeds)))}"] if seeds > 1 else ["seed=0"]
        run, place = ("sweep", "*/") if seeds > 1 else ("run", "")
        command = [sys.executable, "-m", "gnnscale", "train", *options, *sweep]
        done = subprocess.run(
            [*command, f"hydra.{run}.dir={folder}/out", "runtime.checkpoint=false"],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        summaries = sorted(Path(folder).glob(f"out/{place}summary.json"))
        return [100 * json.loads(file.read_text())["test_metric"] for file in summaries]


def compare(row: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return how far each partitioner is from no partitioning, for each number of devices."""
    experiment, raw = ROWS[row]
    found = []
    for devices in arguments.devices:
        common = [
            *(f"config={experiment}", f"dataset.raw={arguments.data / raw}"),
            f"device_plan=cpu_x{devices}",
        ]
        whole = metrics(common, arguments.seeds)
        for name in arguments.partitioners:
            options = [*common, f"partitioner={name}", *PARTITIONERS[name]]
            parts = metrics(options, arguments.seeds)
            differences = [mine - theirs for mine, theirs in zip(parts, whole, strict=True)]
            spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
            found.append(
                {
                    **{"row": row, "devices": devices, "partitioner": name},
                    "whole": statistics.fmean(whole),
                    "parts": statistics.fmean(parts),
                    "points": statistics.fmean(differences),
                    "standard_error": spread / math.sqrt(len(differences)),
                }
            )
            print(json.dumps(found[-1]), file=sys.stderr)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = Path(os.environ.get("GNNSCALE_TEST_DATA", "../shared/data"))
    arguments.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    arguments.add_argument("--devices", nargs="+", type=int, choices=(2, 4), default=[2, 4])
    arguments.add_argument(
        "--partitioners", nargs="+", choices=PARTITIONERS, default=list(PARTITIONERS)
    )
    arguments.add_argument("--seeds", type=int, default=3, help="runs of each")
    arguments.add_argument("--data", type=Path, default=data, help="folder of raw files")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    given = arguments.parse_args()
    given.data = given.data.absolute()
    found = [each for row in given.rows for each in compare(row, given)]
    show(
        f"Test metrics over parts, mean of {given.seeds} seeds, in points",
        ["graph", "devices", "partitioner", "whole", "parts", "difference"],
        [
            [
                *(each["row"], str(each["devices"]), each["partitioner"]),
                *(f"{each['whole']:.2f}", f"{each['parts']:.2f}"),
                f"{each['points']:+.2f} ± {each['standard_error']:.2f}",
            ]
            for each in found
        ],
    )
    save(given.json, found)
    raise SystemExit(any(abs(each["points"]) > MAX_POINTS for each in found))


if __name__ == "__main__":
    main()
