import re
from pathlib import Path

import pytest
from vendor_reports import utilization, write

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.resources import Resources
from gnnscale.fpga_design.vendor import read_utilization


def test_compute_units_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "impl_1_kernel_util_routed.rpt", utilization(units=2))
    found = read_utilization(file, "gnnscale_step")
    assert list(found) == ["gnnscale_step_1", "gnnscale_step_2"]
    assert found["gnnscale_step_2"] == Resources(
        luts=310_001, registers=540_000, dsps=2110, brams=340, urams=264
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "table of LUT, REG, DSP, BRAM, URAM"),
        (utilization(units=0), "no compute unit of gnnscale_step; the report is of another design"),
        (utilization().replace("310000 [ 19.00%]", "many"), "LUT='many': expected a number"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text, message) -> None:
    file = write(tmp_path / "kernel_util_routed.rpt", text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_utilization(file, "gnnscale_step")
