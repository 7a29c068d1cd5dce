"""Files about FPGA designs: damaged boards, records of designs, the vendor's reports."""

import json
import math
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from gnnscale.core.config.typed import typed
from gnnscale.fpga_design.design import FORMAT, GeneratedDesign, ResourceUse
from gnnscale.fpga_design.dse import MODES, Goal, explore, make_goal
from gnnscale.fpga_design.vendor import compare
from gnnscale.nn import GCN
from gnnscale.planner.fpga_board import Board, board_values, boards
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.simulate import published_task
from gnnscale.report import fpga_design as report
from gnnscale.sampling import NeighborSampling

from ..case import Input, WrongResultError
from .folders import Artefact, Valid, YamlFile, check_shown


@cache
def _goal() -> Goal:
    sampler = NeighborSampling(fanouts=[5, 5])
    task = published_task("yelp", PUBLISHED["yelp"], GCN(hidden=32), sampler, batch_size=256)
    return make_goal([(task, 0.5)], batch_size=256, link_bandwidth=1e10)


class Boards(YamlFile):
    """``board=FILE.yaml``, and the designs that are explored for it."""

    name, file = "board", "board.yaml"
    names = ("board", "die ")

    def valid(self, folder: Path) -> list[Valid]:
        return [Valid(self.written(values)) for values in self.shipped(boards())]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        values = board_values(path / self.file)
        board = typed(OmegaConf.create(values), Board, group="board")
        for mode in MODES:
            found = explore(board, _goal(), mode)
            rates = [point.nvtps for point in found.points]
            if not all(math.isfinite(each) and each > 0 for each in rates):
                raise WrongResultError("throughputs that cannot be")
            if any(point.fullest > 1 for point in found.points):
                raise WrongResultError("a design takes more than there is")


_CSYNTH = """<profile><ReportVersion><Version>2022.1</Version></ReportVersion><UserAssignments>
<Part>xcu250-figd2104-2L-e</Part><TopModelName>gnnscale_step</TopModelName>
<TargetClockPeriod>3.33</TargetClockPeriod></UserAssignments><PerformanceEstimates>
<SummaryOfTimingAnalysis><EstimatedClockPeriod>2.4</EstimatedClockPeriod></SummaryOfTimingAnalysis>
</PerformanceEstimates><AreaEstimates><Resources><BRAM_18K>700</BRAM_18K><DSP>2103</DSP>
<FF>528151</FF><LUT>277675</LUT><URAM>264</URAM></Resources></AreaEstimates></profile>"""
_UTILIZATION = """
| Name | LUT | LUTAsMem | REG | BRAM | URAM | DSP |
| Platform | 120401 [ 13.83%] | 1 [ 1%] | 186047 [ 10%] | 133 [ 9.90%] | 0 [ 0%] | 4 [ 0%] |
|    gnnscale_step_1 | 277675 [ 20%] | 1 [ 1%] | 528151 [ 1%] | 350 [ 1%] | 264 [ 1%] | 2103 [ 1%] |
"""
_TIMING = """
| Design Timing Summary
| ---------------------

    WNS(ns)      TNS(ns)
    -------      -------
     -0.103       -2.000
"""


class VendorReports(Artefact):
    """``gnnscale generate report=DIR``: the record of a design, and the vendor's reports."""

    name = "vendor"

    def valid(self, folder: Path) -> list[Valid]:
        made = {"format": FORMAT, "version": "1", "sources": "0", "mode": "ours"}
        card = {"board": "Alveo U250", "part": "xcu250-figd2104-2L-e", "platform": "p"}
        sizes = {"n": 2, "m": 256, "row_words": 98304, "clock_hz": 300_000_000}
        places = {"dies": ("SLR0",), "banks": ("DDR[0]",), "estimated_cycles": 1e6}
        use = ResourceUse(luts=1e5, registers=1e5, dsps=100.0, brams=10.0, urams=10.0)
        design = GeneratedDesign(**made, **card, **sizes, **places, resources=use)
        files = {
            "design.json": json.dumps(design.plain()),
            "build/csynth.xml": _CSYNTH,
            "build/a_kernel_util_routed.rpt": _UTILIZATION,
            "build/a_timing_summary_routed.rpt": _TIMING,
        }
        return [Valid({name: text.encode() for name, text in files.items()})]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        found = compare(path / "build", None)
        json.dumps(report.describe_comparison(found), allow_nan=False)
        report.comparison_page(found)
        check_shown(lambda: "", lambda console: report.print_comparison(found, console))
