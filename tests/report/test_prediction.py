from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gnnscale.plan.perf.equations import Prediction
from gnnscale.report.files.steps import StepLog, Steps, read_steps
from gnnscale.report.prediction import compare, print_prediction
from gnnscale.stages import STAGES, StageTimes


def read(directory: Path, steps: Any) -> Steps:
    log = StepLog(directory / "steps.jsonl")
    for step in steps:
        log.add(step)
    log.flush()
    return read_steps(directory / "steps.jsonl", num_devices=2)


def test_medians_are_over_full_mini_batches_under_the_first_plan(
    tmp_path: Path, hybrid_run: Any
) -> None:
    compared = compare(hybrid_run.result, read(tmp_path, hybrid_run.steps))
    assert compared is not None
    # Work is moved after step 8.
    before = hybrid_run.steps[:9]
    assert compared["num_steps"] == 9
    cpu, emulated = compared["devices"]
    median = float(np.median([step.devices[0].stages.propagate for step in before]))
    assert cpu["measured_stage_times_s"]["propagate"] == pytest.approx(median, abs=1e-6)
    assert cpu["stage_times_s"]["propagate"] == 0.0265
    assert cpu["error"]["propagate"] == pytest.approx(0.0265 / median - 1, rel=1e-3)
    assert cpu["stage_times_s"]["transfer"] is None
    assert cpu["error"]["transfer"] is None
    assert (emulated["name"], emulated["kind"]) == ("emulated:1", "emulated")
    assert (cpu["figures"], emulated["figures"]) == ("measured", "emulated")
    assert compared["figures"] == "emulated"
    times = np.diff([step.seconds for step in before])
    assert compared["measured_step_s"] == pytest.approx(float(np.median(times)), abs=2e-6)
    assert compared["error"] == pytest.approx(0.0268 / float(np.median(times)) - 1, rel=1e-3)
    assert compared["mteps"] == pytest.approx(0.2 / 0.0268)


def test_other_threads_are_another_plan(tmp_path: Path, hybrid_run: Any) -> None:
    def with_more_threads(step: Any) -> Any:
        cpu, emulated = step.devices
        return replace(step, devices=(replace(cpu, threads=replace(cpu.threads, load=2)), emulated))

    changed = [*hybrid_run.steps[:4], *(with_more_threads(step) for step in hybrid_run.steps[4:8])]
    compared = compare(hybrid_run.result, read(tmp_path, changed))
    assert compared is not None
    assert compared["num_steps"] == 4


def test_what_was_not_measured_is_none(tmp_path: Path, hybrid_run: Any) -> None:
    compared = compare(hybrid_run.result, read(tmp_path, []))
    assert compared is not None
    assert compared["num_steps"] == 0
    assert compared["measured_step_s"] is None
    assert compared["error"] is None
    assert compared["devices"][0]["measured_stage_times_s"]["load"] is None
    assert compare(replace(hybrid_run.result, predicted=None), read(tmp_path, [])) is None


def test_the_table_tells_both_times_and_the_error(tmp_path: Path, hybrid_run: Any) -> None:
    stages = StageTimes(sample=0.002, load=0.004, propagate=1.5, sync=0.0001)
    exact = [
        replace(
            step,
            seconds=0.1 * step.step,
            devices=tuple(replace(device, stages=stages) for device in step.devices),
        )
        for step in hybrid_run.steps[:8]
    ]
    devices = (stages, replace(stages, load=0.005))
    predicted = Prediction(devices=devices, step_s=0.11, num_edges=1, source="this_machine")
    run = replace(hybrid_run.result, predicted=predicted)
    compared = compare(run, read(tmp_path, exact))
    assert compared is not None
    screen = io.StringIO()
    print_prediction(compared, Console(file=screen, width=80))
    lines = screen.getvalue().splitlines()
    # The table fits; the sentence under it is one line.
    assert max(len(line) for line in lines[:-1]) <= 80
    assert "exchange" not in screen.getvalue()
    assert "transfer" not in screen.getvalue()
    emulated = next(i for i, line in enumerate(lines) if "emulated:1" in line)
    rows = [[cell.strip() for cell in lines[emulated + i].split("│")[1:-1]] for i in range(3)]
    assert rows[0] == ["emulated:1", "predicted", "2.00", "5.00", "1,500", "0.10"]
    assert rows[1] == ["", "emulated", "2.00", "4.00", "1,500", "0.10"]
    assert rows[2] == ["", "error", "+0 %", "+25 %", "+0 %", "+0 %"]
    assert lines[-1] == (
        "step: 110 ms predicted with the rates of this_machine, 100 ms emulated over 8 steps, "
        "error +10 %"
    )


def test_a_run_on_real_hardware_is_called_measured(tmp_path: Path, cpu_run: Any) -> None:
    log = StepLog(tmp_path / "steps.jsonl")
    for step in cpu_run.steps:
        log.add(step)
    log.flush()
    compared = compare(cpu_run.result, read_steps(tmp_path / "steps.jsonl", num_devices=1))
    assert compared is not None
    screen = io.StringIO()
    print_prediction(compared, Console(file=screen, width=80))
    shown = screen.getvalue()
    assert "emulated" not in shown
    assert " ms measured over 87 steps" in shown


def test_a_step_that_simulates_an_fpga_says_so(tmp_path: Path, simulated_run: Any) -> None:
    compared = compare(simulated_run.result, read(tmp_path, simulated_run.steps))
    assert compared is not None
    screen = io.StringIO()
    print_prediction(compared, Console(file=screen, width=80))
    assert " ms csim (simulating included) over 9 steps" in screen.getvalue()


def test_an_exchange_has_a_column_where_there_is_one(tmp_path: Path, exchange_run: Any) -> None:
    compared = compare(exchange_run.result, read(tmp_path, exchange_run.steps))
    assert compared is not None
    screen = io.StringIO()
    print_prediction(compared, Console(file=screen, width=80))
    assert "…" not in screen.getvalue()
    heading = next(line for line in screen.getvalue().splitlines() if "sample" in line)
    assert re.findall(r"\w+", heading) == ["device", *STAGES]
