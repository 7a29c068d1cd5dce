import re
from pathlib import Path
from typing import Any

import pytest
from step_files import written_steps

from gnnscale.report.page.devices import devices, traffic
from gnnscale.report.steps import read_steps
from gnnscale.report.summary import summarize


def rows(html: str) -> list[list[str]]:
    found = re.findall("<tr>(.*?)</tr>", html)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found]
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in row] for row in cells]


def column(found: list[list[str]], heading: str) -> list[str]:
    return [row[found[0].index(heading)] for row in found[1:]]


def test_devices_by_hand(cached_run: Any, hybrid_run: Any, cpu_run: Any) -> None:
    summary = summarize(cached_run.result, status="completed")
    found = rows(devices(summary))[:3]
    assert column(found, "device") == ["cpu:0", "emulated:1"]
    assert column(found, "kind") == ["cpu", "emulated"]
    assert column(found, "feature hits") == ["–", "75 %"]
    assert "topology hits" not in found[0]
    assert "exchange s" not in found[0]
    seeds = sum(step.devices[1].num_seeds for step in cached_run.steps) / 3
    # Ten requests of 10 bytes for the row that missed, and one for the list.
    assert column(found, "requests") == ["–", f"{11 * seeds:,.0f}"]
    assert column(found, "over its link") == ["–", f"{110 * seeds / 2**20:.1f} MiB"]
    found = rows(devices(summarize(hybrid_run.result, status="completed")))
    late = {
        "seconds that the host was slower than the emulated device": "0.003",
        "stages for which the host was too slow": "6",
        "steps with such a stage": "3",
    }
    counters = [["emulated:1", name, value] for name, value in late.items()]
    assert found[-4:] == [["device", "counter", "whole run"], *counters]
    assert "counter" not in devices(summarize(cpu_run.result, status="completed"))


BUSY = ("aggregate", "update", "memory")


def test_what_was_simulated_of_an_fpga(simulated_run: Any) -> None:
    shown = devices(summarize(simulated_run.result, status="completed"))
    assert rows(shown)[3:] == [
        ["device", "kind", "cycles", *BUSY, "bottleneck"],
        ["fpga:1", "fpga csim", "1,000", "80 %", "20 %", "40 %", "aggregate"],
        ["device", "kind", "feature", "edge"],
        ["fpga:1", "fpga csim", "3", "1"],
        ["device", "kind", "routing conflicts"],
        ["fpga:1", "fpga csim", "3"],
    ]
    assert "fpga:1: simulating took 6.00 s for 0.30 ms of the card." in shown


def test_a_run_without_an_epoch_has_its_devices(hybrid_run: Any, tmp_path: Path) -> None:
    summary = summarize(hybrid_run.started, status="failed")
    cells = [["device", "kind"], ["cpu:0", "cpu"], ["emulated:1", "emulated"]]
    assert rows(devices(summary)) == cells
    empty = read_steps(tmp_path / "steps.jsonl", num_devices=2)
    assert "No device has" in traffic(hybrid_run.started.plan, empty, summary)
    uncached = summary | {"uncached": {"devices": 1, "of": 1, "reason": "1 of 1 <devices>"}}
    shown = traffic(hybrid_run.started.plan, empty, uncached)
    assert "a cache: 1 of 1 &lt;devices&gt;." in shown


@pytest.mark.parametrize("cached", [True, False])
def test_traffic_by_hand(tmp_path: Path, make_run: Any, cached: bool) -> None:
    run = make_run(num_epochs=1, cached=cached)
    summary = summarize(run.result, status="completed")
    shown = traffic(run.started.plan, written_steps(tmp_path, run.steps), summary)
    assert re.findall('data-label="(.*?)"', shown) == ["emulated:1"]
    found = rows(shown)
    seeds = sum(step.devices[1].num_seeds for step in run.steps)
    assert column(found, "what") == ["features", "topology"]
    assert column(found, "requests") == [f"{(10 if cached else 40) * seeds:,}", f"{seeds:,}"]
    assert "from peers" not in found[0]
    if cached:
        assert column(found, "hits") == [f"{3 * seeds:,}", "–"]
        assert column(found, "misses") == [f"{seeds:,}", "–"]
        assert column(found, "hit rate") == ["75 %", "–"]
    assert ("hit rate" in found[0]) == cached
    assert ("peer hits in" in shown) == cached
