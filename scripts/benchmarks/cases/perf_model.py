"""The performance model against what it predicts: graphs x fan-outs x hidden x devices.

Each run of ``gnnscale train`` says what was predicted of a step, and the median of the steps
measured. Figures are separate:

- *by rates*: the equations and the machine's rates, and no step of the run;
- *rehearsed*: corrected by a rehearsal of the same plan;
- *noise floor*: how far a window of the run's steps, as long as a rehearsal, is from the next one;
- *estimated*, with ``--real``: on five real graphs, by a machine that was never calibrated.

The machine is measured before each round. Finished runs are kept in a file: a second call goes on
where the first one stopped, unless the rates of a round are no longer in force.
"""

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.runner import data_folder, gnnscale, show, take, tell, train

#: Overrides that make a graph, each with about 30,000 training vertices.
GRAPHS = {
    "planted 100k": ["dataset=planted_partition"],
    "R-MAT 300k": [
        *("dataset=rmat", "dataset.num_vertices=300000", "dataset.num_edges=3000000"),
        *("dataset.num_features=128", "dataset.train_fraction=0.1", "dataset.valid_fraction=0.01"),
    ],
    "R-MAT 50k": [
        *("dataset=rmat", "dataset.num_vertices=50000", "dataset.num_edges=1000000"),
        *("dataset.num_features=300", "dataset.train_fraction=0.6", "dataset.valid_fraction=0.05"),
    ],
}
_CNR = ["dataset=csr", "dataset.name=cnr-2000_csr", "dataset.raw={data}/webgraph"]
#: Real graphs, by their folders in ``--data``, and their training vertices. Those of the last two
#: have features that are generated.
REAL = {
    "Cora": (["dataset=gnn_benchmark", "dataset.raw={data}/gnn_benchmark"], 1624),
    "MUSAE GitHub": (["dataset=musae", "dataset.raw={data}/musae_git/git_web_ml.zip"], 22_620),
    "tolokers": (["dataset=heterophilous", "dataset.raw={data}/heterophilous"], 5879),
    "soc-Slashdot": (["dataset=snap", "dataset.raw={data}/snap"], 49_300),
    "cnr-2000": ([*_CNR, "dataset.num_features=128"], 195_334),
}
Point = dict[str, Any]
#: So many that a run is worth a rehearsal.
_STEPS = 400
_TRAINING_VERTICES = 30_000


class Case(NamedTuple):
    """One configuration; each device gets 1,024 seeds, as HyScale-GNN's trainers do."""

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
        graph, vertices = REAL.get(self.graph) or (GRAPHS[self.graph], _TRAINING_VERTICES)
        epochs = max(1, round(_STEPS * self.batch_size / vertices))
        return [
            *(*graph, f"model={self.model}", f"model.hidden={self.hidden}"),
            f"model.num_layers={len(self.fanouts)}",
            f"sampler.fanouts={list(self.fanouts)}".replace(" ", ""),
            *(f"device_plan={self.devices}", f"batch_size={self.batch_size}"),
            *(f"epochs={epochs}", f"runtime.eval_every={epochs}"),
            *("runtime.drm=false", "runtime.checkpoint=false"),
        ]


def cases() -> list[Case]:
    """Every graph, model, fan-outs, width and device plan occurs in several of them."""
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
        ("planted 100k", "sage", (10, 10), 256, "emulated_x4", 4096),
        ("R-MAT 50k", "gcn", (15, 10), 128, "emulated_x4", 4096),
        ("R-MAT 300k", "gin", (10, 10), 128, "hybrid_emulated", 2048),
    )
    return [Case(*row) for row in rows]


def real_cases() -> list[Case]:
    """One configuration of each real graph: wide rows of uint8 and narrow ones, GCN and SAGE."""
    return [
        Case("Cora", "gcn", (10, 10), 64, "cpu", 256),
        Case("MUSAE GitHub", "sage", (10, 10), 64, "cpu", 1024),
        Case("tolokers", "sage", (10, 10), 256, "cpu", 1024),
        Case("soc-Slashdot", "sage", (15, 10), 128, "cpu", 1024),
        Case("cnr-2000", "gcn", (10, 10), 128, "cpu", 1024),
    ]


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--runs", type=int, default=5, help="of each configuration; 0: only show")
    add("--configurations", nargs="*", default=[], metavar="TEXT", help="those whose name has TEXT")
    add("--budget", type=float, default=float("inf"), help="seconds after which no run begins")
    add("--kept", type=Path, default=Path("perf_model_runs.jsonl"), help="where runs are kept")
    add("--real", action="store_true", help="train on real graphs")
    take(parser, data=data_folder())


def measure(case: Case, data: Path, **variables: str) -> Any:
    """Train, and return what was predicted beside what was measured."""
    found = train(*(each.format(data=data) for each in case.options), **variables)
    return found.summary["predicted"]


def estimated(case: Case, data: Path) -> float | None:
    """Train as on a machine that was never calibrated, and return the error of its prediction."""
    from gnnscale.core.hardware import home

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graphs").symlink_to(home() / "graphs")
        return measure(case, data, GNNSCALE_HOME=folder)["by_rates"]["error"]


def point(case: str, run: int, predicted: dict[str, Any], rates: str) -> Point:
    """Return one run's figures: errors have their signs, and are None if there is no figure."""
    by_rates, rehearsed, floor = (predicted[n] for n in ("by_rates", "rehearsed", "noise_floor"))
    return {
        **{"case": case, "run": run, "rates": rates, "measured_s": predicted["measured_step_s"]},
        **{name: predicted[name] for name in ("figures", "num_steps", "devices")},
        **{"by_rates_s": by_rates["step_s"], "by_rates": by_rates["error"]},
        "rehearsed_s": rehearsed and rehearsed["step_s"],
        "rehearsed": rehearsed and rehearsed["error"],
        "noise_floor": floor and floor["mean_absolute_error"],
        "window_steps": floor and floor["window_steps"],
    }


def summarise(points: Sequence[Point]) -> dict[str, Any]:
    by_case: dict[str, list[Point]] = {}
    by_kind: dict[str, list[Point]] = {}
    for each in points:
        by_case.setdefault(each["case"], []).append(each)
        kind = "processors" if each["figures"] == "measured" else "emulated devices"
        by_kind.setdefault(kind, []).append(each)
    if len(by_kind) > 1:
        by_kind["all plans"] = list(points)
    return {
        "configurations": {case: _medians(runs) for case, runs in by_case.items()},
        "kinds": {kind: _scores(runs) for kind, runs in by_kind.items()},
    }


#: What is shown of a run, by its names in a point.
FIGURES = ("estimated", "by_rates", "rehearsed", "noise_floor")


def _medians(runs: Sequence[Point]) -> dict[str, Any]:
    known = {name: _known(runs, name) for name in ("measured_s", *FIGURES)}
    return {
        **{"figures": runs[0]["figures"], "num_runs": len(runs)},
        **{name: statistics.median(each) if each else None for name, each in known.items()},
        "runs": {name: [each.get(name) for each in runs] for name in FIGURES},
    }


def _known(points: Sequence[Point], name: str) -> list[float]:
    return [each[name] for each in points if each.get(name) is not None]


def _scores(points: Sequence[Point]) -> dict[str, Any]:
    scores: dict[str, Any] = {"num_runs": len(points)}
    for name in FIGURES:
        values = _known(points, name)
        scores[name] = statistics.fmean(map(abs, values)) if values else None
        if name != "noise_floor":  # which has none
            scores[f"{name}_signed"] = statistics.fmean(values) if values else None
    rehearsed, floor = scores["rehearsed"], scores["noise_floor"]
    scores["rehearsed_over_noise"] = rehearsed / floor if rehearsed and floor else None
    return scores


def rates_in_force() -> str:
    """Return a name of this machine's rates; empty without a calibration."""
    from gnnscale.planner.platform import platform_file

    try:
        return hashlib.sha256(platform_file().read_bytes()).hexdigest()[:12]
    except FileNotFoundError:
        return ""


def rates_of(run: int, kept: Sequence[Point]) -> str:
    """Return the name of a round's rates; measure the machine if the round is a new one."""
    before = {each["rates"] for each in kept if each["run"] == run}
    if not before:
        with tempfile.TemporaryDirectory() as folder:
            gnnscale("doctor", "calibrate=true", f"hydra.run.dir={folder}")
    elif before != {rates_in_force()}:
        raise SystemExit(f"run {run} rests on other rates than those in force: another --kept")
    return rates_in_force()


def chosen_cases(texts: Sequence[str], known: Sequence[Case]) -> list[Case]:
    """Return those of ``known`` whose name has one of ``texts``; all if there are none."""
    found = [case for case in known if not texts or any(text in case.label for text in texts)]
    if not found:
        names = "\n  ".join(case.label for case in known)
        raise SystemExit(f"--configurations {' '.join(texts)}: in no name; there are\n  {names}")
    return found


def run(options: argparse.Namespace) -> Any:
    began, data = time.monotonic(), options.data.resolve()
    known = real_cases() if options.real else cases()
    chosen, file = chosen_cases(options.configurations, known), options.kept
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(each["case"], each["run"]) for each in kept}
    for number, case in product(range(options.runs), chosen):  # all once, and then once more
        if (case.label, number) in done:
            continue
        if time.monotonic() - began > options.budget:
            tell("out of time: the same command goes on")
            break
        rates = rates_of(number, kept)
        found = point(case.label, number, measure(case, data), rates)
        if options.real:
            found["estimated"] = estimated(case, data)
        kept.append(found)
        with file.open("a") as stream:
            stream.write(json.dumps(found) + "\n")
        tell(f"{case.label}, run {number}: by rates {percent(found['by_rates'])}")
    points = [each for each in kept if each["case"] in {case.label for case in chosen}]
    found = summarise(points)
    report(found)
    return found | {"points": points}


def report(found: dict[str, Any]) -> None:
    rows = []
    for case, row in found["configurations"].items():
        took = "–" if row["measured_s"] is None else f"{row['measured_s'] * 1e3:.1f}"
        errors = (f"{_points(row['runs'][name])}: {percent(row[name])}" for name in FIGURES)
        rows.append([case, took, *errors])
    title = "A training step, predicted and measured; errors of each run, and their median"
    show(title, ["configuration", "ms", *(name.replace("_", " ") for name in FIGURES)], rows)
    for kind, scores in found["kinds"].items():
        means = ", ".join(
            f"{name.replace('_', ' ')} {percent(scores[name], sign=False)}"
            + (f" (signed {percent(signed)})" if (signed := scores.get(f"{name}_signed")) else "")
            for name in FIGURES
        )
        ratio = scores["rehearsed_over_noise"]
        noise = "" if ratio is None else f"; rehearsed / noise floor {ratio:.2f}"
        print(f"{kind}, mean absolute error over {scores['num_runs']} runs: {means}{noise}")


def _points(values: Sequence[float | None]) -> str:
    return " ".join("–" if each is None else f"{each * 100:+.0f}" for each in values)


def percent(error: float | None, *, sign: bool = True) -> str:
    if error is None:
        return "–"
    return f"{error * 100:+.1f} %" if sign else f"{error * 100:.1f} %"
