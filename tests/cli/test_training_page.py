"""docs/training.md: what its programs say, they do."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TINY

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.long
def test_a_loss_and_an_observer_of_ones_own(gnnscale: Any, tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(programs) == 4
    (tmp_path / "mine.py").write_text("\n\n".join(programs))
    mine = ("loss.function=mine.py:focal", "observers=[mine.py:Slowest]")
    done = gnnscale(
        *("train", *TINY, "batch_size=64", "epochs=2", "loss=custom", *mine, "logger=csv"),
        *("metrics=[macro_f1,accuracy]", "hydra.run.dir=run"),
    ).succeeded()
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text())
    score = f"{summary['test_metric']:.3f}"
    assert re.fullmatch(rf"epoch [12], macro_f1 {score}\n", (run / "slowest.txt").read_text())
    assert f"test macro_f1 {summary['test_metric']:.4f}, accuracy" in done.stdout

    measured = gnnscale("evaluate", "run=run", "metrics=[mine.py:caught]").succeeded()
    assert re.search(r"^test caught [01]\.\d{4}$", measured.stdout, re.M)

    # A directory that was found imports nothing.
    (run / "slowest.txt").unlink()
    refused = gnnscale("train", "resume=run", "epochs=3").refused()
    assert "loss.function, observers: names code" in refused.stderr
    again = " ".join(f"'{each}'" if "[" in each else each for each in sorted(mine))
    assert refused.stderr.endswith(f"if you trust it, add {again}\n")
    gnnscale("train", "resume=run", "epochs=3", *mine).succeeded()
    assert (run / "slowest.txt").exists()
    rows = list(csv.DictReader((run / "metrics.csv").read_text().splitlines()))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    expected = [json.loads(line)["valid_metrics"] for line in lines]
    names = ("macro_f1", "accuracy")
    found = [{name: float(row[f"valid_{name}"]) for name in names} for row in rows]
    assert found == expected
    assert len(rows) == 3

    (tmp_path / "soon.py").write_text(programs[-1].replace("+ 600", "+ 0"))
    stopped = gnnscale("train", *TINY, "epochs=3", "observers=[soon.py:TimeLimit]").succeeded()
    line = "stopped after epoch 1: by observers=soon.py:TimeLimit: ten minutes are over; best was"
    assert line in stopped.stderr
