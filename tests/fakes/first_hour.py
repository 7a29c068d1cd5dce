"""What each section of docs/first-hour.md is to end with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
from pyarrow import parquet

Ended = Mapping[str, CompletedProcess[str]]


def summary(run: Path) -> dict[str, Any]:
    """Return the summary of a run directory."""
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def check_script(folder: Path, ended: Ended) -> None:
    assert "Net: test accuracy 0." in ended["python script.py"].stdout
    assert len(np.load(folder / "classes.npy")) == 900


def check_fraud(folder: Path, ended: Ended) -> None:
    """One command reads the tables, with counts of what it filled and added."""
    found = summary(folder / "fraud")
    assert found["test_metric"] > 5 * found["base_rates"]["test"]
    trained = next(answer for line, answer in ended.items() if " train " in line)
    for words in (
        "100 ids that only the edges have, such as 'A2000', are vertices",
        "empty numbers get the mean of training",
        "opened: days since 2020-01-01",
        "country: 2 categories",
    ):
        assert words in trained.stderr
    table = parquet.read_table(folder / "fraud.parquet")
    assert table.num_rows == 2100
    assert set(table["class"].to_pylist()) <= {"yes", "no"}


def check_recommendations(folder: Path, ended: Ended) -> None:
    found = summary(folder / "films")
    assert found["test_metrics"]["recall@20"] > 2 * found["test_popularity"]["recall@20"]
    table = parquet.read_table(folder / "films.parquet").to_pylist()
    assert {row["target"][:4] for row in table} == {"film"}
    known = {tuple(line.split(",")) for line in (folder / "edges.csv").read_text().split()}
    assert not known & {(row["source"], row["target"]) for row in table}


def check_knowledge_graph(folder: Path, ended: Ended) -> None:
    assert summary(folder / "relations")["test_metric"] > 0.95
    assert summary(folder / "facts")["metric"] == "mrr"


def check_platform(folder: Path, ended: Ended) -> None:
    trained = next(answer for line, answer in ended.items() if "log=json" in line)
    lines = [json.loads(line) for line in trained.stderr.splitlines()]
    assert {"time", "level", "logger", "message"} == lines[-1].keys()
    assert summary(folder / "job")["epochs"] == 5
    assert "\ngnnscale_epoch{" in (folder / "job" / "metrics.prom").read_text()


def check_sweep(folder: Path, ended: Ended) -> None:
    (swept,) = ended.values()
    assert "over 3 seeds" in swept.stdout
    assert "best by validation: " in swept.stdout
    assert len([*(folder / "compared").glob("[0-9]*/report.html")]) == 12


def check_gpu(folder: Path, ended: Ended) -> None:
    doctor, trained = ended.values()
    assert "CUDA devices" in doctor.stdout
    assert "no GPU here" in trained.stderr or trained.returncode == 0


def check_notebook(folder: Path, ended: Ended) -> None:
    (run,) = (folder / "outputs" / "train").iterdir()
    assert summary(run)["test_metric"] > 0.7


CHECKS: dict[str, Callable[[Path, Ended], None]] = {
    "A script": check_script,
    "Fraud": check_fraud,
    "Recommendations": check_recommendations,
    "A knowledge graph": check_knowledge_graph,
    "A platform": check_platform,
    "A sweep": check_sweep,
    "A GPU": check_gpu,
    "A notebook": check_notebook,
}
