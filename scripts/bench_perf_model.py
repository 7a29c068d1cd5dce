"""The performance model against what it predicts: graphs x fan-outs x hidden x devices.

    python scripts/bench_perf_model.py [--no-calibration] [--only TEXT] [--json FILE]

Measures this machine first (``gnnscale doctor --calibrate``). Each configuration is a run of
``gnnscale train`` without dynamic resource management, whose ``summary.json`` has the step that the
model predicted before training, and the median of the steps measured. A run's prediction rests on
the rates of the machine, corrected by a rehearsal of a few mini-batches; what the rates alone say
of the same plan is shown beside it. None of the graphs, mini-batches and widths is one that
calibration uses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking import save, show

#: Overrides that make a graph, each with about 30,000 training vertices.
GRAPHS = {
    "planted 100k": ["dataset=planted_partition"],
    "R-MAT 300k": [
        "dataset=rmat",
        "dataset.num_vertices=300000",
        "dataset.num_edges=3000000",
        "dataset.num_features=128",
        "dataset.train_fraction=0.1",
        "dataset.valid_fraction=0.01",
    ],
    "R-MAT 50k": [
        "dataset=rmat",
        "dataset.num_vertices=50000",
        "dataset.num_edges=1000000",
        "dataset.num_features=300",
        "dataset.train_fraction=0.6",
        "dataset.valid_fraction=0.05",
    ],
}
#: So many that a run is worth a rehearsal.
_STEPS = 400
_TRAINING_VERTICES = 30_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration."""

    graph: str
    model: str
    fanouts: tuple[int, ...]
    hidden: int
    devices: str
    batch_size: int

    @property
    def label(self) -> str:
        return f"{self.graph} {self.model} {list(self.fanouts)} {self.hidden} {self.devices}"

    @property
    def options(self) -> list[str]:
        epochs = max(1, round(_STEPS * self.batch_size / _TRAINING_VERTICES))
        return [
            *GRAPHS[self.graph],
            f"model={self.model}",
            f"model.hidden={self.hidden}",
            f"model.num_layers={len(self.fanouts)}",
            f"sampler.fanouts={list(self.fanouts)}".replace(" ", ""),
            f"device_plan={self.devices}",
            f"batch_size={self.batch_size}",
            f"epochs={epochs}",
            f"runtime.eval_every={epochs}",
            "runtime.drm=false",
            "runtime.checkpoint=false",
        ]


def cases() -> list[Case]:
    """Every graph, model, fan-outs, width and device plan occurs in several of them.

    Each device gets 1,024 seeds, as HyScale-GNN's trainers do.
    """
    rows = (
        ("planted 100k", "sage", (25, 10), 256, "cpu", 1024),
        ("planted 100k", "sage", (10, 10), 64, "cpu_x2", 2048),
        ("planted 100k", "gcn", (15, 10), 256, "cpu_x2", 2048),
        ("planted 100k", "gcn", (10, 5, 5), 128, "cpu", 1024),
        ("planted 100k", "sage", (15, 10), 128, "hybrid_emulated", 2048),
        ("planted 100k", "gin", (10, 10), 64, "emulated_x4", 4096),
        ("R-MAT 300k", "sage", (25, 10), 256, "cpu", 1024),
        ("R-MAT 300k", "sage", (15, 10), 128, "cpu_x2", 2048),
        ("R-MAT 300k", "gcn", (25, 10), 64, "cpu", 1024),
        ("R-MAT 300k", "gcn", (15, 10), 256, "hybrid_emulated", 2048),
        ("R-MAT 300k", "sage", (10, 10), 128, "emulated_x4", 4096),
        ("R-MAT 50k", "sage", (25, 10), 128, "cpu_x2", 2048),
        ("R-MAT 50k", "gcn", (10, 10), 256, "cpu", 1024),
        ("R-MAT 50k", "gat", (10, 5), 64, "cpu", 1024),
        ("R-MAT 50k", "sage", (5, 5, 5), 64, "hybrid_emulated", 2048),
    )
    names = ("graph", "model", "fanouts", "hidden", "devices", "batch_size")
    return [Case(**dict(zip(names, row, strict=True))) for row in rows]


def gnnscale(*arguments: str) -> None:
    """Run a command and end with its complaint if it fails."""
    run = subprocess.run(
        [sys.executable, "-m", "gnnscale", *arguments],
        capture_output=True,
        text=True,
        # From the root of a checkout, -m would find its sources, which may have no native code.
        cwd=Path(__file__).parent,
    )
    if run.returncode:
        raise SystemExit(f"gnnscale {' '.join(arguments)}\n{run.stderr}")


def measure(case: Case) -> dict[str, Any]:
    """Train, and return the prediction beside what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        gnnscale("train", *case.options, f"hydra.run.dir={folder}")
        predicted: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    found = predicted["predicted"]
    if found["by_rates_error"] is None:  # too short for a rehearsal all the same
        found |= {"by_rates_step_s": found["step_s"], "by_rates_error": found["error"]}
    return {"case": case.label, **found}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--no-calibration", action="store_true", help="take the figures kept")
    arguments.add_argument("--only", default="", help="configurations whose name has this text")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    if not options.no_calibration:
        with tempfile.TemporaryDirectory() as folder:
            gnnscale("doctor", "--calibrate", f"hydra.run.dir={folder}")
    found = []
    for case in cases():
        if options.only in case.label:
            found.append(measure(case))
            print(f"{case.label}: {100 * found[-1]['error']:+.1f} %", file=sys.stderr)
    show(
        "A training step, predicted and measured, ms",
        ["configuration", "by rates", "rehearsed", "measured", "error by rates", "error"],
        [
            [
                each["case"],
                f"{each['by_rates_step_s'] * 1e3:.1f}",
                f"{each['step_s'] * 1e3:.1f}",
                f"{each['measured_step_s'] * 1e3:.1f}",
                f"{100 * each['by_rates_error']:+.1f} %",
                f"{100 * each['error']:+.1f} %",
            ]
            for each in found
        ],
    )
    for name, what in (("by_rates_error", "by rates alone"), ("error", "after the rehearsal")):
        mean = statistics.fmean(abs(each[name]) for each in found)
        print(f"mean error {what}: {100 * mean:.1f} % over {len(found)} configurations")
    save(options.json, found)


if __name__ == "__main__":
    main()
