"""What ``gnnscale generate`` shows of a design."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from rich.console import Console

from gnnscale.core.config.typed import typed
from gnnscale.fpga_design import DesignPackage, GenerateConfig, generate
from gnnscale.report.fpga_design import describe, page, pareto_plot, print_design, summary


def composed(*overrides: str) -> Any:
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return compose("generate", list(overrides))


@pytest.fixture(scope="module")
def generated() -> DesignPackage:
    return generate(typed(composed("model.hidden=32"), GenerateConfig))


@pytest.mark.long
def test_the_summary_says_what_the_design_is_and_what_limits_it(generated) -> None:
    first, second, third = summary(generated)
    n, m = generated.exploration.best.card
    assert first.startswith(f"design: ({n}, {m}) on the Alveo U250")
    assert "M vertices/s, limited by" in second
    assert re.fullmatch(r"C simulation of 32 seeds: [\d,]+ cycles, 1\.\d\d x the equations'", third)
    plain = describe(generated)
    assert plain["figures"] == "estimated"
    assert set(plain["sources"]) >= {"dies", "bandwidth", "clock_hz", "power_w"}
    assert plain["design"]["card"] == list(generated.exploration.best.card)
    assert {each["n"] for each in plain["refused"]} == {1, 2, 4, 8, 16}
    assert all(each["limit"] for each in plain["refused"])


def test_the_page_has_every_process_and_pass(generated) -> None:
    html = page(generated)
    for name in (*generated.estimate.processes, *(p.name for p in generated.estimate.passes)):
        assert name in html
    assert "No vendor&#x27;s tool was run" in html
    assert html.count("<circle") > len(generated.exploration.points)
    assert "<script" not in html
    drawn = pareto_plot(generated.exploration)
    assert drawn.count('class="best"') == 1
    assert drawn.count('class="front"') == len(generated.exploration.pareto)


def test_the_terminal_says_what_does_not_fit(generated) -> None:
    console = Console(width=140, record=True)
    print_design(generated, console)
    assert "does not fit" not in console.export_text()
    full = {"SLR0": {"luts": 0.5, "dsps": 1.27}}
    over = replace(generated.estimate, fits=False, shares=full)
    print_design(replace(generated, estimate=over), console)
    shown = " ".join(console.export_text().split())
    assert "by the model of the parts it does not fit: 127% of the DSP slices of SLR0" in shown
