from typing import Any

import pytest
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
