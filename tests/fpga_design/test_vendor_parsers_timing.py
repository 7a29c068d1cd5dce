from pathlib import Path

import pytest
from vendor_reports import timing, write

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.vendor import read_slack


def test_the_worst_slack_is_read(tmp_path: Path) -> None:
    assert read_slack(write(tmp_path / "t.rpt", timing("-0.300"))) == -0.3
    assert read_slack(write(tmp_path / "t.rpt", timing("1.25"))) == 1.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "with a design timing summary"),
        ("| Design Timing Summary\n", "with a design timing summary"),
        (timing("NA"), "'NA': expected a number of nanoseconds"),
        (timing("nan"), "'nan': expected a number"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text, message) -> None:
    with pytest.raises(ConfigError, match=message):
        read_slack(write(tmp_path / "t.rpt", text))
