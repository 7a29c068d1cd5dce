import tracemalloc
from pathlib import Path

import pytest
from vendor_reports import csynth, timing, utilization, write

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.resources import Resources
from gnnscale.fpga_design.vendor import read_csynth, read_slack, read_utilization


def test_a_report_is_read(tmp_path: Path) -> None:
    found = read_csynth(write(tmp_path / "csynth.xml", csynth()))
    assert (found.top, found.part) == ("gnnscale_step", "xcu250-figd2104-2L-e")
    periods = found.target_period_ns, found.estimated_period_ns
    assert (found.version, *periods) == ("2021.2", 3.33, 2.5)
    # Halves of blocks of BRAM.
    assert found.resources == Resources(
        luts=300_000, registers=520_000, dsps=2200, brams=350, urams=264
    )
    # Comments are no document type, and the text of a figure is bounded.
    commented = csynth().replace("<profile>", "<profile><!-- made by hand -->")
    for text in (commented, csynth(top="gnnscale_step" + " " * 2000 + "x")):
        assert read_csynth(write(tmp_path / "csynth.xml", text)).top == "gnnscale_step"


def test_a_document_type_is_refused_in_every_encoding(tmp_path: Path) -> None:
    file = tmp_path / "csynth.xml"
    entity = '<!DOCTYPE a [<!ENTITY part "xcu250-figd2104-2L-e">]>'
    body = csynth(part="&part;").partition("?>")[2]
    for encoding in ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1"):
        declared = "utf-16" if encoding.startswith("utf-16") else encoding
        head = f'<?xml version="1.0" encoding="{declared}"?>'
        file.write_bytes((head + entity + body).encode(encoding))
        with pytest.raises(ConfigError, match="XML with a document type"):
            read_csynth(file)
        file.write_bytes((head + csynth().partition("?>")[2]).encode(encoding))
        assert read_csynth(file).part == "xcu250-figd2104-2L-e"
    # One of 60 MB is refused unread.
    with file.open("wb") as stream:
        stream.truncate(60 << 20)
    with pytest.raises(ConfigError, match="larger than 16,777,216 bytes"):
        read_csynth(file)


@pytest.mark.long
@pytest.mark.parametrize("content", ["<a/>", "<a>\n", "x", "<!-- a -->", "<a b='c'>d</a>"])
def test_a_large_report_takes_no_memory_beyond_its_size(tmp_path: Path, content: str) -> None:
    size = 1 << 20
    filling = content * (size // len(content))
    file = write(tmp_path / "csynth.xml", csynth().replace("<unit>", f"{filling}<unit>", 1))
    tracemalloc.start()
    try:
        if content == "<a>\n":
            with pytest.raises(ConfigError, match="at most 100 levels of elements"):
                read_csynth(file)
        else:
            assert read_csynth(file).top == "gnnscale_step"
        assert tracemalloc.get_traced_memory()[1] < 8 * size
    finally:
        tracemalloc.stop()


def test_slack_and_units_are_read(tmp_path: Path) -> None:
    for slack in ("-0.300", "1.25"):
        assert read_slack(write(tmp_path / "t.rpt", timing(slack))) == float(slack)
    file = write(tmp_path / "impl_1_kernel_util_routed.rpt", utilization(units=2))
    found = read_utilization(file, "gnnscale_step")
    assert list(found) == ["gnnscale_step_1", "gnnscale_step_2"]
    assert found["gnnscale_step_2"] == Resources(
        luts=310_001, registers=540_000, dsps=2110, brams=340, urams=264
    )
