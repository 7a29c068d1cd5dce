"""Launchers and sweepers of Hydra: searches by Optuna, and jobs in other processes."""

import csv
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from tiny_runs import TINY

from gnnscale.cli.arguments import check_search, explain_missing_plugin
from gnnscale.cli.command import CommandJob
from gnnscale.cli.commands import TASKS
from gnnscale.core.errors import ConfigError

pytestmark = pytest.mark.timeout(300)

SHORT = (*TINY, "epochs=2", "runtime.checkpoint=false")
SEARCH = (
    *("-m", "hydra/sweeper=optuna", "hydra.sweeper.direction=maximize"),
    *("hydra.sweeper.n_jobs=1", "hydra.sweeper.sampler.seed=1"),
)
Command = Callable[..., Any]


def needs(plugin: str) -> pytest.MarkDecorator:
    missing = find_spec("hydra_plugins") is None or find_spec(f"hydra_plugins.{plugin}") is None
    return pytest.mark.skipif(missing, reason=f"pip install {plugin.replace('_', '-')}")


@needs("hydra_optuna_sweeper")
@pytest.mark.long
def test_a_search_finds_the_best_of_what_does_not_fail(gnnscale, tmp_path) -> None:
    """Half of what is searched is refused."""
    space = ("batch_size=choice(0,64)", "optimizer.lr=tag(log,interval(1e-5,1e-1))")
    what = ("hydra.sweeper.n_trials=4", *space, "output=search")
    answer = gnnscale("train", *SEARCH, *SHORT, *what)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert "batch_size=0: must be at least 1" in answer.stderr
    best = tmp_path / "search" / "optimization_results.yaml"
    found: Any = OmegaConf.load(best)
    assert found.best_params.batch_size == 64
    rows = csv.DictReader((tmp_path / "search" / "results.csv").read_text().splitlines())
    assert {row["batch_size"]: row["status"] for row in rows} == {"0": "failed", "64": "completed"}
    jobs = json.loads((tmp_path / "search" / "results.json").read_text())["jobs"]
    assert len(jobs) == 4
    metrics = {
        job["valid_metric"]: job["options"]
        for job in reversed(jobs)
        if job["status"] == "completed"
    }
    assert found.best_value == max(metrics) > min(metrics)
    best_lr = float(metrics[found.best_value]["optimizer.lr"])
    assert best_lr == found.best_params["optimizer.lr"]


@pytest.mark.integration
@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("joblib", marks=needs("hydra_joblib_launcher")),
        pytest.param("submitit_local", marks=[needs("hydra_submitit_launcher"), pytest.mark.long]),
    ],
)
def test_jobs_in_other_processes(command_in: Any, tmp_path: Path, launcher: str) -> None:
    (tmp_path / "my.yaml").write_text(
        "defaults:\n- override /optimizer: sgd\nnum_threads: ${usable_cores:}\n"
        "batch_size: 64\nseed: 5\n"
    )
    options = tuple(each for each in SHORT if not each.startswith("num_threads"))
    sweep = ("-m", f"hydra/launcher={launcher}", "model.dropout=0,2", "output=sweep")
    answer = command_in(tmp_path)("train", "config=my.yaml", *options, *sweep)
    assert answer.returncode == 1
    jobs = json.loads((tmp_path / "sweep" / "results.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["completed", "failed"]
    assert "model.dropout=2" in jobs[1]["error"]
    values: Any = OmegaConf.load(tmp_path / "sweep" / "0" / "config.yaml")
    assert (values.seed, values.batch_size) == (5, 64)
    assert values.optimizer._target_.endswith("Sgd")
    assert values.num_threads >= 1


def test_code_that_leaves_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user's own code does that calls ``sys.exit``: the command would say nothing."""
    monkeypatch.setattr("gnnscale.cli.command.failures", failures := [])
    monkeypatch.setitem(TASKS, "doctor", lambda *_: sys.exit("no more"))
    assert CommandJob(command="doctor")(OmegaConf.create()) is None
    (error,) = failures
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"SystemExit: no more ({__file__}:")


def test_a_search_says_what_is_better() -> None:
    check_search(["hydra/sweeper=basic"])
    check_search(["hydra/sweeper=optuna", "hydra.sweeper.direction=minimize"])
    with pytest.raises(ConfigError, match="direction=maximize"):
        check_search(["hydra/sweeper=optuna"])
    assert explain_missing_plugin("hydra/launcher", "nope") is None
    line = explain_missing_plugin("hydra/sweeper", "optuna")
    assert line == "hydra/sweeper=optuna: not installed, pip install hydra-optuna-sweeper"


@pytest.mark.parametrize("searches", [False, True])
def test_a_search_needs_a_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], searches: bool
) -> None:
    """A run without validation vertices returns None, which Optuna only calls no number."""
    monkeypatch.setattr("gnnscale.cli.command.failures", failures := [])
    monkeypatch.setitem(TASKS, "train", lambda *_: None)
    assert CommandJob(command="train", searches=searches)(OmegaConf.create()) is None
    assert len(failures) == searches
    assert ("expected a validation metric to search by" in capsys.readouterr().err) == searches
