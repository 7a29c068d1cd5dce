import re
from pathlib import Path

import pytest
from vendor_reports import csynth, write

from gnnscale.core.errors import ConfigError
from gnnscale.generator.vendor.csynth import read_csynth
from gnnscale.plan.resources import Resources


def test_a_report_is_read(tmp_path: Path) -> None:
    found = read_csynth(write(tmp_path / "csynth.xml", csynth()))
    assert found.top == "gnnscale_step"
    assert found.part == "xcu250-figd2104-2L-e"
    assert (found.version, found.target_period_ns, found.estimated_period_ns) == (
        "2021.2",
        3.33,
        2.5,
    )
    # Halves of blocks of BRAM.
    assert found.resources == Resources(
        luts=300_000, registers=520_000, dsps=2200, brams=350, urams=264
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no XML", "not XML"),
        ("<profile></profile>", "ReportVersion/Version: missing"),
        (csynth(version="2019.2"), "report of version '2019.2', known are 2020.2 and later"),
        (csynth(version="x" * 99), "report of version 'xxx"),
        (csynth(dsp="many"), "AreaEstimates/Resources/DSP='many': must be a number"),
        (csynth(dsp=-1), "DSP='-1': must be a number"),
        (csynth(dsp="nan"), "DSP='nan': must be a number"),
        (csynth(period=""), "TargetClockPeriod: missing"),
        (
            '<!DOCTYPE a [<!ENTITY b "c">]>' + csynth().partition("?>")[2],
            "declares a document type",
        ),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text, message) -> None:
    file = write(tmp_path / "csynth.xml", text)
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        read_csynth(file)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


def test_comments_are_no_document_type(tmp_path: Path) -> None:
    text = csynth().replace("<profile>", "<profile><!-- made by hand -->")
    assert read_csynth(write(tmp_path / "csynth.xml", text)).top == "gnnscale_step"
