from dataclasses import replace
from pathlib import Path

from generated_designs import U250
from rich.console import Console

from gnnscale.fpga_design.vendor import Comparison, Figure
from gnnscale.report.fpga_design import comparison_page, describe_comparison, print_comparison

LUTS = Figure(
    name="luts", unit="of a compute unit", estimated=200.0, synthesized=None, routed=250.0
)
CLOCK = Figure(name="clock", unit="MHz", estimated=300.0, synthesized=400.0, routed=None)
FOUND = Comparison(design=U250, files=(Path("a/csynth.xml"),), figures=(LUTS, CLOCK))


def test_the_table_and_the_page_have_every_figure() -> None:
    luts, clock = describe_comparison(FOUND)["figures"]
    assert (luts["synthesized"], luts["ratio"]) == (None, 1.25)
    assert (clock["routed"], clock["ratio"]) == (None, None)
    assert describe_comparison(FOUND)["files"] == ["a/csynth.xml"]
    console = Console(width=120, record=True)
    print_comparison(FOUND, console)
    shown = console.export_text()
    for text in ("LUTs, of a compute unit", "200", "250", "1.25", "clock, MHz", "400"):
        assert text in shown
        assert text in comparison_page(FOUND)
    assert "read: a/csynth.xml" in shown
    other = replace(FOUND, files=(Path("[/b]<card>.xml"),))
    assert "&lt;card&gt;" in comparison_page(other)
    print_comparison(other, console)
    assert "read: [/b]<card>.xml" in console.export_text()
