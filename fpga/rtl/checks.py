"""What the parts are compared with: C simulation, and the model of resources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gnnscale.fpga_design.resources import DesignSize, Resources
from gnnscale.fpga_design.resources.processes import Processes
from rtl import engine
from rtl.build import Models, compile_cpp, models, run
from rtl.parts import NAMES, PES, SMALL, TILE, part
from rtl.synthesis import synthesize, yosys

_BENCH = ("rtl/streams_test.cpp", "csim/simulation.cpp", "csim/fiber.cpp")


@dataclass(frozen=True, kw_only=True)
class Streams:
    """A part beside its process, fed with the same random streams."""

    part: str
    what: str  #: of it, by its mode
    seed: int
    elements: int  #: that came out
    different: int  #: of them, by value
    other_cycle: int  #: of them, by the cycle in which they were taken
    csim: int  #: cycles until the last was taken
    rtl: int


def streams(folder: Path, m: int, archives: Models, seeds: int, of: str = "all") -> list[Streams]:
    """Feed the parts of a design, and their processes, with ``seeds`` streams each."""
    bench = compile_cpp(folder / f"streams_m{m}", m, _BENCH, archives)
    return [Streams(**json.loads(line)) for line in run(bench, str(seeds), of).splitlines()]


def small_engine(folder: Path, archives: Models, count: int) -> Iterator[engine.Step]:
    """Train for ``count`` steps on the small engine; ``archives`` are those of its parts."""
    return engine.steps(*engine.libraries(folder, archives), count)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a part takes, by Yosys and by the model with Yosys' operators."""

    part: str
    yosys: Resources
    model: Resources


def resources(folder: Path) -> Iterator[Taken]:
    """Synthesize the parts of the design of a die, and ask the model for the same."""
    model = Processes(DesignSize(n=PES, m=TILE), yosys(folder))
    wanted = {
        "scatter": model.scatter(),
        "switch": model.switch(),
        "gather": model.gather(),
        "array": model.array(),
    }
    for name in NAMES:
        found = synthesize(name, part(name, TILE), folder)
        yield Taken(part=name, yosys=found, model=wanted[name])


def tile_and_small(folder: Path) -> tuple[Models, Models]:
    """Return the models of the parts, with a tile of the array and with the small engine's."""
    tile = models(TILE, folder)
    others = {name: found for name, found in tile.items() if name != "array"}
    (folder / "small").mkdir()
    return tile, models(SMALL, folder / "small", known=others)
