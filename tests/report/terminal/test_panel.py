from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gnnscale.report.terminal.panel import LivePanel
from gnnscale.stages import STAGES


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
def test_kind_share_seeds_and_threads_are_seen_at_any_width(hybrid_run: Any, width: int) -> None:
    cpu, emulated = draw(hybrid_run, width, 8).splitlines()[2:]
    assert cpu.split()[:2] == ["cpu:0", "cpu"]
    assert emulated.split()[:2] == ["emulated:1", "emulated"]
    assert "████████░░  78 %" in cpu
    assert "██░░░░░░░░  22 %" in emulated
    assert "800" in cpu
    assert "1/1/2" in cpu
    assert "1/1/0" in emulated


def test_stage_times_are_medians_in_milliseconds(hybrid_run: Any) -> None:
    first, second, third = (step.devices[0].stages.propagate for step in hybrid_run.steps[:3])
    median = sorted([first, second, third])[1] * 1e3
    cpu = draw(hybrid_run, 120, 3).splitlines()[2].split()
    assert float(cpu[-2]) == pytest.approx(median, abs=0.06)
    # It has no link.
    assert cpu[-3] == "–"


def test_the_last_decision_stays(hybrid_run: Any) -> None:
    assert "DRM" not in draw(hybrid_run, 120, 8)
    last = draw(hybrid_run, 120, 20).splitlines()[-1]
    assert "step 16: T_TC" in last
    assert "150 seeds from cpu:0 to emulated:1" in last
    assert len(draw(hybrid_run, 50, 20).splitlines()[-1].rstrip()) <= 50


def headings(run: Any, width: int) -> list[str]:
    return draw(run, width, 8).splitlines()[1].split()


def test_a_column_for_each_stage_that_a_device_has(
    hybrid_run: Any, exchange_run: Any, cpu_run: Any
) -> None:
    def stages(run: Any) -> list[str]:
        return [word for word in headings(run, 200) if word in STAGES]

    assert stages(exchange_run) == list(STAGES)
    assert stages(hybrid_run) == [stage for stage in STAGES if stage != "exchange"]
    assert stages(cpu_run) == ["sample", "load", "propagate", "sync"]


def test_stages_share_a_column_where_they_have_no_room(exchange_run: Any, hybrid_run: Any) -> None:
    assert headings(hybrid_run, 112)[-2:] == ["sync", "ms"]
    assert headings(exchange_run, 112)[-2:] == ["ms", "sample/load/…/sync"]
    last = draw(exchange_run, 80, 8).splitlines()[3].split()[-1]
    assert len([float(each) for each in last.split("/")]) == len(STAGES)
    assert headings(exchange_run, 60)[-1] == "threads"


@pytest.mark.parametrize("width", [200, 112, 80, 60])
def test_no_cell_is_cut_off(hybrid_run: Any, exchange_run: Any, width: int) -> None:
    for run in (hybrid_run, exchange_run):
        table = draw(run, width, 8).splitlines()[1:4]
        assert not any("…" in line.replace("/…/", "//") for line in table)
