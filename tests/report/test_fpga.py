from typing import Any

import pytest
from printed import on_console

from gnnscale.planner import Cpu, Fpga
from gnnscale.report.fpga import csim_figures, is_simulated, print_csim

#: Four steps.
COUNTERS = {
    **{"csim_cycles": 4000, "csim_aggregate_cycles": 3000, "csim_update_cycles": 1000},
    **{"csim_memory_cycles": 2000, "csim_simulating_s": 12.4, "csim_feature_bytes": 4 << 20},
    **{"csim_edge_bytes": 2 << 20, "csim_edges": 800, "csim_hazards": 6, "rows_from:host": 7},
}


def figures(**changes: float) -> dict[str, Any]:
    counters = COUNTERS | {f"csim_{name}": value for name, value in changes.items()}
    return csim_figures(counters, num_steps=4, clock_hz=200e3)


def device(rank: int, csim: dict[str, Any] | None) -> dict[str, Any]:
    return {"name": f"fpga:{rank}", "kind": "fpga", "figures": "csim", "csim": csim}


def printed(*devices: dict[str, Any]) -> str:
    return on_console(print_csim, devices)


def test_figures_by_hand() -> None:
    assert figures() == {
        "cycles": 1000,
        "busy": {"aggregate": 0.75, "update": 0.25, "memory": 0.5},
        "bottleneck": "aggregate",
        "memory_bytes": {"feature": 1 << 20, "edge": 1 << 19},
        "events": {"edges": 200, "hazards": 1.5},
        "card_s": 0.02,
        "simulating_s": 12.4,
    }
    for counters in ({}, {"late_s": 0.1}, {"csim_cycles": 0}):
        assert csim_figures(counters, num_steps=3, clock_hz=3e8) is None
    assert csim_figures(COUNTERS, num_steps=0, clock_hz=3e8) is None


@pytest.mark.parametrize(
    ("changes", "bottleneck"),
    [
        ({"update_cycles": 3500}, "update"),
        ({"memory_cycles": 3999}, "memory"),
        ({"aggregate_cycles": 2001}, "aggregate"),
        ({"aggregate_cycles": 2000}, "latency"),
    ],
)
def test_what_is_busy_most_is_the_bottleneck(changes: dict[str, float], bottleneck: str) -> None:
    assert figures(**changes)["bottleneck"] == bottleneck


def test_the_tables_fit_a_terminal_and_carry_the_mark() -> None:
    text = printed(device(0, figures()), device(1, None), device(2, figures(cycles=8_000_000)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("csim" in line for line in lines) == 8
    assert "fpga:1" not in text
    first = next(line for line in lines if "fpga:0" in line)
    cells = [cell.strip() for cell in first.strip("│").split("│")]
    assert cells == ["fpga:0 (csim)", "1,000", "75 %", "25 %", "50 %", "aggregate"]
    assert "2,000,000" in text
    assert lines[-2:] == [
        "fpga:0 (csim): simulating took 12.4 s for 20.0 ms of the card",
        "fpga:2 (csim): simulating took 12.4 s for 40.0 s of the card",
    ]
    assert printed(device(0, None)) == ""
    assert is_simulated(Fpga())
    assert not is_simulated(Fpga(bitstream="gnnscale.xclbin"))
    assert not is_simulated(Cpu())
