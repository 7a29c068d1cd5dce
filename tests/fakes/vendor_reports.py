"""Made-up reports in the documented forms of Vitis HLS and Vivado."""

from pathlib import Path

CSYNTH = """<?xml version="1.0" encoding="UTF-8"?>
<profile>
<ReportVersion><Version>{version}</Version></ReportVersion>
<UserAssignments>
<unit>ns</unit>
<ProductFamily>virtexuplus</ProductFamily>
<Part>{part}</Part>
<TopModelName>{top}</TopModelName>
<TargetClockPeriod>{period}</TargetClockPeriod>
<ClockUncertainty>0.90</ClockUncertainty>
<FlowTarget>vitis</FlowTarget>
</UserAssignments>
<PerformanceEstimates>
<PipelineType>none</PipelineType>
<SummaryOfTimingAnalysis>
<unit>ns</unit>
<EstimatedClockPeriod>2.500</EstimatedClockPeriod>
</SummaryOfTimingAnalysis>
<SummaryOfOverallLatency>
<unit>clock cycles</unit>
<Best-caseLatency>undef</Best-caseLatency>
<Average-caseLatency>undef</Average-caseLatency>
<Worst-caseLatency>undef</Worst-caseLatency>
<Interval-min>undef</Interval-min>
<Interval-max>undef</Interval-max>
</SummaryOfOverallLatency>
</PerformanceEstimates>
<AreaEstimates>
<Resources>
<BRAM_18K>700</BRAM_18K>
<DSP>{dsp}</DSP>
<FF>520000</FF>
<LUT>300000</LUT>
<URAM>264</URAM>
</Resources>
<AvailableResources>
<BRAM_18K>5376</BRAM_18K>
<DSP>12288</DSP>
<FF>3456000</FF>
<LUT>1728000</LUT>
<URAM>1280</URAM>
</AvailableResources>
</AreaEstimates>
</profile>
"""

_UNIT = "|    gnnscale_step_{number} | {luts} [ 19.00%] | 9000 [  1.00%] | 540000 [ 18.00%] \
| 340 [ 17.00%] | 264 [ 20.63%] | 2110 [ 18.34%] |"

UTILIZATION = """Copyright 1986-2021 Xilinx, Inc. All Rights Reserved.
| Tool Version : Vivado v.2021.2 (lin64)
| Device       : xcu250figd2104-2L
+----------------------+---------+----------+--------+------+------+-----+
| Name                 | LUT | LUTAsMem | REG | BRAM | URAM | DSP |
+----------------------+---------+----------+--------+------+------+-----+
| Platform             | 120401 [  6.97%] | 19539 [  2.47%] | 186047 [  5.38%] | 212 [  7.89%] \
| 0 [  0.00%] | 4 [  0.03%] |
| User Budget          | 1607599 [100.00%] | 771701 [100.00%] | 3269953 [100.00%] \
| 2476 [100.00%] | 1280 [100.00%] | 12284 [100.00%] |
| gnnscale_step | 1240000 [ 77.13%] | 36000 [  4.67%] | 2160000 [ 66.06%] \
| 1360 [ 54.93%] | 1056 [ 82.50%] | 8440 [ 68.71%] |
{units}
+----------------------+---------+----------+--------+------+------+-----+
"""

TIMING = """
------------------------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)
    -------      -------  ---------------------  -------------------      -------      -------
      {slack}       -5.000                      5               200000        0.010        0.000

Timing constraints are not met.
"""


def csynth(**values: object) -> str:
    usual = {"version": "2021.2", "part": "xcu250-figd2104-2L-e", "top": "gnnscale_step"}
    return CSYNTH.format(**usual | {"period": "3.33", "dsp": 2200} | values)


def utilization(units: int = 4, luts: int = 310_000) -> str:
    rows = (_UNIT.format(number=number + 1, luts=luts + number) for number in range(units))
    return UTILIZATION.format(units="\n".join(rows))


def timing(slack: str = "-0.300") -> str:
    return TIMING.format(slack=slack)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file
