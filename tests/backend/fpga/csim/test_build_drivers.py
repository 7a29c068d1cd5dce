import sys
from types import ModuleType

import pytest

from gnnscale.backend.fpga.csim.build import load_pyxrt
from gnnscale.core.errors import ConfigError


def test_pyxrt_is_imported_or_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("pyxrt")
    monkeypatch.setitem(sys.modules, "pyxrt", installed)
    assert load_pyxrt() is installed
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    with pytest.raises(ConfigError, match="pyxrt cannot be imported") as caught:
        load_pyxrt()
    assert "source /opt/xilinx/xrt/setup.sh" in str(caught.value)
    assert "`bitstream: null` simulates instead" in str(caught.value)
