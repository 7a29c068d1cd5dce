"""What Yosys makes of a part for UltraScale+: LUTs, registers, DSP slices and memories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from amaranth.lib import wiring

from gnnscale.fpga_design.resources import Resources, Tool
from rtl.build import MEMORIES, operators, write_rtlil
from rtl.parts import shared
from rtl.quiet_yosys import passes

#: LUTs of a cell; a memory of LUTs takes eight.
_LUTS = {**{f"LUT{inputs}": 1 for inputs in range(1, 7)}, "INV": 1, "SRL16E": 1, "SRLC32E": 1}
_LUTS |= {"RAM32M16": 8, "RAM64M8": 8}
_REGISTERS = ("FDRE", "FDSE", "FDCE", "FDPE")
_BRAMS = {"RAMB36E2": 1.0, "RAMB18E2": 0.5}


def synthesize(name: str, component: wiring.Component, folder: Path) -> Resources:
    """Return what a part takes, its operators included."""
    modules = {name: component, **shared(component)}
    reads = [f"read_rtlil {write_rtlil(each, module, folder)}" for each, module in modules.items()]
    reads += [f"read_verilog -lib {each}" for each in operators(folder)]
    taken = {f"f32_{each}": found for each, found in _operators(folder).items()}
    return _count(name, (*reads, f"read_verilog {MEMORIES}"), taken, folder)


def yosys(folder: Path) -> Tool:
    """Return what Yosys makes of the operators that the parts have; the others are not theirs."""
    found, nothing = _operators(folder), Resources()
    rest = {"compare": nothing, "divide": nothing, "exponential": nothing, "logarithm": nothing}
    rest |= {"multiply_64": nothing, "divide_integers": nothing}
    return Tool(name="Yosys", **found, **rest, holds_in_memory=True, folds_memories=True)


_found: dict[Path, dict[str, Resources]] = {}


def _operators(folder: Path) -> dict[str, Resources]:
    if folder not in _found:
        files = operators(folder)
        names = [each.stem.removeprefix("f32_") for each in files]
        reads = [(f"read_verilog {each}",) for each in files]
        _found[folder] = {
            name: _count(f"f32_{name}", read, {}, folder)
            for name, read in zip(names, reads, strict=True)
        }
    return _found[folder]


def _count(
    name: str, reads: tuple[str, ...], inside: Mapping[str, Resources], folder: Path
) -> Resources:
    report = folder / f"{name}.json"
    target = f"synth_xilinx -family xcup -uram -top {name} -noiopad -noclkbuf"
    passes((*reads, target, f"tee -o {report} stat -json"))
    cells = json.loads(report.read_text())["design"]["num_cells_by_type"]
    taken = Resources(
        luts=sum(cells.get(cell, 0) * luts for cell, luts in _LUTS.items()),
        registers=sum(cells.get(cell, 0) for cell in _REGISTERS),
        dsps=cells.get("DSP48E2", 0),
        brams=sum(cells.get(cell, 0) * blocks for cell, blocks in _BRAMS.items()),
        urams=cells.get("URAM288", 0) + cells.get("URAM288_BASE", 0),
    )
    for module, each in inside.items():
        taken += cells.get(module, 0) * each
    return taken
