from pathlib import Path

import pytest
from generated_designs import write_design

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.design import DESIGN_FILE, read_design


def test_a_design_is_read_as_it_was_written(tmp_path: Path) -> None:
    design = write_design(tmp_path)
    assert read_design(tmp_path) == design
    assert design.compute_units == 4


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file.*gnnscale generate writes it"):
        read_design(tmp_path)
    write_design(tmp_path, format=99)
    with pytest.raises(ConfigError, match="expected format 1, got 99"):
        read_design(tmp_path)
    (tmp_path / DESIGN_FILE).write_text('{"format": 1}')
    with pytest.raises(ConfigError, match=DESIGN_FILE):
        read_design(tmp_path)
    write_design(tmp_path, n=0)
    with pytest.raises(ConfigError, match=r"n"):
        read_design(tmp_path)
