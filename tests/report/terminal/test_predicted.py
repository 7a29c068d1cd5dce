from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnscale.plan.perf.equations import Prediction
from gnnscale.report.files.steps import StepLog, read_steps
from gnnscale.report.prediction import compare
from gnnscale.report.terminal.predicted import print_prediction
from gnnscale.stages import STAGES, StageTimes

STAGE_TIMES = StageTimes(sample=0.002, load=0.004, propagate=1.5, sync=0.0001)


def printed(directory: Path, run: Any, result: Any, num_steps: int | None = None) -> str:
    log = StepLog(directory / "steps.jsonl")
    for step in run.steps[:num_steps]:
        log.add(step)
    log.flush()
    num_devices = len(run.started.plan.shares)
    compared = compare(result, read_steps(directory / "steps.jsonl", num_devices=num_devices))
    assert compared is not None
    screen = io.StringIO()
    print_prediction(compared, Console(file=screen, width=80))
    return screen.getvalue()


def with_equal_steps(run: Any) -> Any:
    """Every step takes 100 ms, and every device the same."""
    steps = tuple(
        replace(
            step,
            seconds=0.1 * step.step,
            devices=tuple(replace(device, stages=STAGE_TIMES) for device in step.devices),
        )
        for step in run.steps
    )
    return replace(run, steps=steps)


def test_the_table_tells_all_names_and_their_errors(tmp_path: Path, hybrid_run: Any) -> None:
    by_rates = Prediction(
        devices=(STAGE_TIMES, replace(STAGE_TIMES, load=0.005)),
        step_s=0.11,
        num_edges=1,
        source="this_machine",
    )
    rehearsed = replace(by_rates, devices=(STAGE_TIMES, STAGE_TIMES), step_s=0.0985)
    predicted = replace(hybrid_run.started.predicted, by_rates=by_rates, rehearsed=rehearsed)
    result = replace(hybrid_run.result, predicted=predicted)
    shown = printed(tmp_path, with_equal_steps(hybrid_run), result, 9)
    lines = shown.splitlines()
    assert max(len(line) for line in lines if "│" in line) <= 80
    assert "exchange" not in shown
    assert "transfer" not in shown
    emulated = next(i for i, line in enumerate(lines) if "emulated:1" in line)
    rows = [[cell.strip() for cell in lines[emulated + i].split("│")[1:-1]] for i in range(5)]
    assert rows == [
        ["emulated:1", "emulated", "2.00", "4.00", "1,500", "0.10"],
        ["", "by rates", "2.00", "5.00", "1,500", "0.10"],
        ["", "error", "+0 %", "+25 %", "+0 %", "+0 %"],
        ["", "rehearsed", "2.00", "4.00", "1,500", "0.10"],
        ["", "error", "+0 %", "+0 %", "+0 %", "+0 %"],
    ]
    assert lines[-6:] == [
        "step: 100 ms emulated over 9 steps",
        "by rates (of this_machine): 110 ms, error +10.0 %",
        "rehearsed: 98.5 ms, error -1.5 %",
        "noise floor: 0.0 %, by which a window of 2 steps errs about the next, over 4",
        "error of cpu devices alone, without waiting: by rates +0.0 %, rehearsed +0.0 %",
        "error of emulated devices alone, without waiting: by rates +0.0 %, rehearsed +0.0 %",
    ]


def test_a_terminal_is_not_told_what_is_not_known(tmp_path: Path, cpu_run: Any) -> None:
    shown = printed(tmp_path, cpu_run, cpu_run.result)
    assert "emulated" not in shown
    assert " ms measured over 87 steps" in shown
    assert "by rates (of this_machine): 26.8 ms, error " in shown
    assert "rehearsed" not in shown


def test_a_run_without_two_windows_has_no_noise_floor(tmp_path: Path, hybrid_run: Any) -> None:
    shown = printed(tmp_path, hybrid_run, hybrid_run.result, 2)
    assert "noise floor" not in shown


def test_a_step_that_simulates_an_fpga_says_so(tmp_path: Path, simulated_run: Any) -> None:
    shown = printed(tmp_path, simulated_run, simulated_run.result)
    assert " ms csim (simulating included) over 9 steps" in shown


def test_an_exchange_has_a_column_where_there_is_one(tmp_path: Path, exchange_run: Any) -> None:
    shown = printed(tmp_path, exchange_run, exchange_run.result)
    assert "…" not in shown
    heading = next(line for line in shown.splitlines() if "sample" in line)
    assert re.findall(r"\w+", heading) == ["device", *STAGES]
