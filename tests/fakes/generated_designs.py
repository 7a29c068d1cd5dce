"""A design as ``gnnscale generate`` records it."""

import json
from dataclasses import replace
from pathlib import Path

from hydra import compose, initialize_config_module

from gnnscale.core.config.typed import typed
from gnnscale.fpga_design import GenerateConfig
from gnnscale.fpga_design.design import DESIGN_FILE, FORMAT, GeneratedDesign, ResourceUse

U250 = GeneratedDesign(
    format=FORMAT,
    version="1.0",
    sources="0" * 64,
    board="Alveo U250",
    part="xcu250-figd2104-2L-e",
    platform="xilinx_u250_gen3x16_xdma_4_1_202210_1",
    mode="ours",
    n=2,
    m=256,
    row_words=98304,
    clock_hz=300_000_000,
    dies=("SLR0", "SLR1", "SLR2", "SLR3"),
    banks=("DDR[0]", "DDR[1]", "DDR[2]", "DDR[3]"),
    resources=ResourceUse(
        luts=277_675.0, registers=528_151.0, dsps=2103.0, brams=350.0, urams=264.0
    ),
    estimated_cycles=1e6,
)


def write_design(directory: Path, **changes: object) -> GeneratedDesign:
    design = replace(U250, **changes)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DESIGN_FILE).write_text(json.dumps(design.plain()))
    return design


def config(*overrides: str) -> GenerateConfig:
    """Return the options of ``gnnscale generate``."""
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return typed(compose("generate", list(overrides)), GenerateConfig)
