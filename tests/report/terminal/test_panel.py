import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from printed import on_console
from rich.console import Console
from step_files import written_steps

from gnnscale.core.stages import STAGES, StageTimes
from gnnscale.report.prediction import compare
from gnnscale.report.terminal import LivePanel, print_prediction


def draw(run: Any, width: int, num_steps: int) -> str:
    screen = io.StringIO()
    panel = LivePanel(run.started.plan, Console(file=screen, force_terminal=True, width=width))
    task = panel.add_task("epoch 1/3", total=30, figures="loss 0.4")
    for step in run.steps[:num_steps]:
        panel.take(step)
        panel.update(task, completed=step.step)
    shown = io.StringIO()
    Console(file=shown, width=width).print(panel.get_renderable())
    return shown.getvalue()


@pytest.mark.parametrize("width", [200, 112, 80, 60])
def test_kind_share_seeds_and_threads_are_seen_at_any_width(
    hybrid_run, exchange_run, width
) -> None:
    for run in (hybrid_run, exchange_run):  # no cell is cut off
        assert "…" not in "".join(draw(run, width, 8).splitlines()[1:4]).replace("/…/", "//")
    cpu, emulated = draw(hybrid_run, width, 8).splitlines()[2:]
    assert cpu.split()[:2] == ["cpu:0", "cpu"]
    assert emulated.split()[:2] == ["emulated:1", "emulated"]
    assert all(each in cpu for each in ("████████░░  78 %", "800", "1/1/2"))
    assert all(each in emulated for each in ("██░░░░░░░░  22 %", "1/1/0"))


def test_stage_times_are_medians_in_milliseconds(hybrid_run: Any) -> None:
    times = [step.devices[0].stages.propagate for step in hybrid_run.steps[:3]]
    median = sorted(times)[1] * 1e3
    cpu = draw(hybrid_run, 120, 3).splitlines()[2].split()
    assert float(cpu[-2]) == pytest.approx(median, abs=0.06)
    # It has no link.
    assert cpu[-3] == "–"
    assert "DRM" not in draw(hybrid_run, 120, 8)
    last = draw(hybrid_run, 120, 20).splitlines()[-1]
    assert "step 16: T_TC" in last
    assert "150 seeds from cpu:0 to emulated:1" in last
    assert len(draw(hybrid_run, 50, 20).splitlines()[-1].rstrip()) <= 50


def headings(run: Any, width: int) -> list[str]:
    return draw(run, width, 8).splitlines()[1].split()


def test_a_column_for_each_stage(hybrid_run: Any, exchange_run: Any, cpu_run: Any) -> None:
    def stages(run: Any) -> list[str]:
        return [word for word in headings(run, 200) if word in STAGES]

    assert stages(exchange_run) == list(STAGES)
    assert stages(hybrid_run) == [stage for stage in STAGES if stage != "exchange"]
    assert stages(cpu_run) == ["sample", "load", "propagate", "sync"]
    assert headings(hybrid_run, 112)[-2:] == ["sync", "ms"]
    assert headings(exchange_run, 112)[-2:] == ["ms", "sample/load/…/sync"]
    last = draw(exchange_run, 80, 8).splitlines()[3].split()[-1]
    assert len([float(each) for each in last.split("/")]) == len(STAGES)
    assert headings(exchange_run, 60)[-1] == "threads"


STAGE_TIMES = StageTimes(sample=0.002, load=0.004, propagate=1.5, sync=0.0001)


def printed(directory: Path, run: Any, result: Any, num_steps: int | None = None) -> str:
    num_devices = len(run.started.plan.shares)
    compared = compare(result, written_steps(directory, run.steps[:num_steps], num_devices))
    return on_console(print_prediction, compared)


def with_equal_steps(run: Any) -> Any:
    def equal(step: Any) -> Any:
        devices = tuple(replace(device, stages=STAGE_TIMES) for device in step.devices)
        return replace(step, seconds=0.1 * step.step, devices=devices)

    return replace(run, steps=tuple(map(equal, run.steps)))


def test_the_table_tells_all_names_and_their_errors(tmp_path: Path, hybrid_run: Any) -> None:
    predicted = hybrid_run.started.layout.predicted
    devices = (STAGE_TIMES, replace(STAGE_TIMES, load=0.005))
    by_rates = replace(predicted.by_rates, devices=devices, step_s=0.11)
    rehearsed = replace(by_rates, devices=(STAGE_TIMES, STAGE_TIMES), step_s=0.0985)
    predicted = replace(predicted, by_rates=by_rates, rehearsed=rehearsed)
    result = hybrid_run.predicting(predicted)
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


@pytest.mark.parametrize(
    ("run", "num_steps", "shows", "lacks"),
    [
        ("cpu_run", None, " ms measured over 87 steps", "emulated"),
        ("cpu_run", None, "by rates (of this_machine): 26.8 ms, error ", "rehearsed"),
        ("hybrid_run", 2, "by rates", "noise floor"),  # two windows are needed
        ("simulated_run", None, " ms csim (simulating included) over 9 steps", "emulated"),
    ],
)
def test_what_is_not_known_is_not_shown(tmp_path, request, run, num_steps, shows, lacks) -> None:
    found = request.getfixturevalue(run)
    shown = printed(tmp_path, found, found.result, num_steps)
    assert shows in shown
    assert lacks not in shown


def test_an_exchange_has_a_column_where_there_is_one(tmp_path: Path, exchange_run: Any) -> None:
    shown = printed(tmp_path, exchange_run, exchange_run.result)
    assert "…" not in shown
    heading = next(line for line in shown.splitlines() if "sample" in line)
    assert re.findall(r"\w+", heading) == ["device", *STAGES]
