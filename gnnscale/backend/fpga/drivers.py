"""Modules that a board is driven through: XRT's own, and the one that simulates cards."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gnnscale.core.errors import ConfigError


def load_pyxrt() -> Any:
    """Return the Python interface of the Xilinx Runtime.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return import_module("pyxrt")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"a bitstream needs the Xilinx Runtime, and pyxrt cannot be imported ({error}): "
            "install XRT with its Python bindings from AMD's page of the Alveo card, and "
            "`source /opt/xilinx/xrt/setup.sh`; `bitstream: null` simulates instead"
        ) from None


def load_csim() -> Any:
    """Return the module that has the same interface over simulated cards."""
    from gnnscale.backend.fpga.csim import xrt

    return xrt
