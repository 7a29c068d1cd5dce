"""docs/training.md: what its programs say, they do."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "num_threads=1"),
)


@pytest.mark.long
def test_a_loss_and_an_observer_of_ones_own(
    tmp_path: Path, write_figures: Callable[[Path], Path]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(programs) == 2
    (tmp_path / "mine.py").write_text("\n\n".join(programs))
    environment = {**os.environ, "GNNSCALE_HOME": str(write_figures(home))}

    def command(*line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gnnscale", *line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    mine = ("loss.function=mine.py:focal", "observers=[mine.py:Slowest]")
    done = command(
        *("train", *TINY, "epochs=2", "loss=custom", *mine, "logger=csv"),
        *("metrics=[macro_f1,accuracy]", "hydra.run.dir=run"),
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text())
    score = f"{summary['test_metric']:.3f}"
    assert re.fullmatch(rf"epoch [12], macro_f1 {score}\n", (run / "slowest.txt").read_text())
    assert f"test macro_f1 {summary['test_metric']:.4f}, accuracy" in done.stdout

    # A directory that was found imports nothing.
    (run / "slowest.txt").unlink()
    refused = command("train", "resume=run", "epochs=3")
    assert refused.returncode == 1
    assert "loss.function, observers: names code" in refused.stderr
    again = " ".join(f"'{each}'" if "[" in each else each for each in sorted(mine))
    assert refused.stderr.endswith(f"gnnscale train resume=run {again}\n")
    resumed = command("train", "resume=run", "epochs=3", *mine)
    assert resumed.returncode == 0, resumed.stderr
    assert (run / "slowest.txt").exists()
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    expected = [json.loads(line)["valid_metrics"] for line in lines]
    found = [
        {name: float(row[f"valid_{name}"]) for name in ("macro_f1", "accuracy")} for row in rows
    ]
    assert found == expected
    assert len(rows) == 3
