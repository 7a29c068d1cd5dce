import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import runner
from benchmarks.cases import perf_model as bench


def predicted(by_rates: float, rehearsed: float | None, figures: str = "measured") -> Any:
    """What ``summary.json`` says of a run whose steps took 10 ms."""

    def step(error: float) -> dict[str, float]:
        return {"step_s": 0.01 * (1 + error), "error": error, "mteps": 1.0}

    return {
        **{"figures": figures, "measured_step_s": 0.01, "num_steps": 400, "devices": []},
        "by_rates": step(by_rates),
        "rehearsed": None if rehearsed is None else step(rehearsed),
        "noise_floor": {"mean_absolute_error": 0.02, "mean_error": 0.0, "window_steps": 32},
    }


def test_configurations_are_enough_and_all_different() -> None:
    labels = [case.label for case in bench.cases()]
    assert len(set(labels)) == len(labels) >= 15
    assert len({case.label for case in bench.real_cases()} - set(labels)) >= 5
    assert sum("emulated" in label for label in labels) >= 5
    with pytest.raises(SystemExit, match="--configurations nothing: in no name"):
        bench.chosen_cases(["nothing"], bench.cases())


def test_errors_keep_their_signs_and_kinds_stay_apart() -> None:
    values = [("a", -0.3, 0.01), ("a", 0.1, -0.05), ("a", 0.2, 0.03)]
    points = [
        bench.point(case, run, predicted(by_rates, rehearsed), "r")
        for run, (case, by_rates, rehearsed) in enumerate(values)
    ]
    points.append(bench.point("b", 0, predicted(-0.02, None, "emulated"), "r"))
    found = bench.summarise(points)
    alone = found["configurations"]["a"]
    assert (alone["by_rates"], alone["rehearsed"], alone["noise_floor"]) == (0.1, 0.01, 0.02)
    assert alone["runs"]["by_rates"] == [-0.3, 0.1, 0.2]
    assert found["configurations"]["b"]["rehearsed"] is None
    processors = found["kinds"]["processors"]
    wanted = {"by_rates": 0.2, "by_rates_signed": 0.0}
    wanted |= {"rehearsed": 0.03, "rehearsed_over_noise": 1.5}
    assert {name: processors[name] for name in wanted} == pytest.approx(wanted)
    emulated = found["kinds"]["emulated devices"]
    assert emulated["by_rates"] == pytest.approx(0.02)
    assert emulated["rehearsed"] is None
    assert found["kinds"]["all plans"]["num_runs"] == 4


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the script; returns the configurations that it trained, and what it wrote."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("GNNSCALE_HOME", str(home))
    trained: list[str] = []
    times = itertools.count()

    def measure(case: bench.Case, data: Path, **variables: str) -> dict[str, Any]:
        if "GNNSCALE_HOME" not in variables:
            trained.append(case.label)
            return predicted(0.1, 0.01)
        # A machine without rates, and with the graphs that are there.
        found = Path(variables["GNNSCALE_HOME"])
        assert [each.name for each in found.iterdir()] == ["graphs"]
        return predicted(-0.4, None)

    def calibrate(*arguments: str) -> None:
        assert arguments[:2] == ("doctor", "calibrate=true")
        (home / "platform.yaml").write_text(f"name: this machine, time {next(times)}")

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "gnnscale", calibrate)

    def run(*arguments: str) -> tuple[list[str], dict[str, Any]]:
        trained.clear()
        files = ["--kept", str(tmp_path / "kept.jsonl"), "--json", str(tmp_path / "all.json")]
        assert runner.main(["perf_model", *files, *arguments]) == 0
        return list(trained), json.loads((tmp_path / "all.json").read_text())

    return run


def test_finished_runs_are_not_run_again(benchmark: Any, tmp_path: Path) -> None:
    gin = [case.label for case in bench.cases() if " gin " in case.label]
    once, _ = benchmark("--runs", "1", "--configurations", " gin ")
    assert once == gin
    # In turn, and only what is not there; a second configuration joins.
    gat = [case.label for case in bench.cases() if " gat " in case.label]
    more, found = benchmark("--runs", "2", "--configurations", " gin ", " gat ")
    assert more == [*gat, *(case.label for case in bench.cases() if case.label in gin + gat)]
    assert len(found["points"]) == 2 * len(gin + gat)
    assert {each["num_runs"] for each in found["configurations"].values()} == {2}
    assert benchmark("--runs", "0")[0] == []


def test_real_graphs_are_predicted_by_an_estimate_too(benchmark: Any, tmp_path: Path) -> None:
    arguments = ("--runs", "2", "--real", "--data", str(tmp_path), "--configurations", "Cora")
    trained, found = benchmark(*arguments)
    (cora,) = set(trained)
    assert found["configurations"][cora]["runs"]["estimated"] == [-0.4, -0.4]
    assert found["configurations"][cora]["by_rates"] == 0.1
    assert found["kinds"]["processors"]["estimated"] == pytest.approx(0.4)
    assert found["kinds"]["processors"]["estimated_signed"] == pytest.approx(-0.4)


def test_each_round_has_rates_of_its_own(benchmark: Any) -> None:
    trained, found = benchmark("--runs", "3", "--configurations", " gin ", "--budget", "-1")
    assert trained == found["points"] == []  # its time is over
    _, found = benchmark("--runs", "2", "--configurations", " gin ")
    rates = {(each["run"], each["rates"]) for each in found["points"]}
    assert sorted(run for run, _ in rates) == [0, 1]  # one for each
    assert len({rate for _, rate in rates}) == 2


def test_a_round_is_not_finished_by_other_rates(benchmark: Any, tmp_path: Path) -> None:
    benchmark("--runs", "1", "--configurations", " gat ")
    (tmp_path / "home" / "platform.yaml").write_text("name: measured by somebody else")
    with pytest.raises(SystemExit, match="run 0 rests on other rates than those in force"):
        benchmark("--runs", "1", "--configurations", " gat ", " gin ")
