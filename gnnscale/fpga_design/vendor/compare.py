"""The vendor's figures beside the estimates of the design that was built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import ConfigError
from gnnscale.fpga_design.design import DESIGN_FILE, GeneratedDesign, read_design
from gnnscale.fpga_design.resources import Resources
from gnnscale.fpga_design.vendor.parsers import Synthesis, read_csynth, read_slack, read_utilization
from gnnscale.planner.fpga_board import NAMES

KERNEL = "gnnscale_step"
_MAX_FILES = 100_000
#: Periods that differ by less are those of one clock.
_SAME_PERIOD = 0.02
_PATTERNS = ("csynth.xml", f"{KERNEL}_csynth.xml")
_ROUTED = ("kernel_util_routed.rpt", "timing_summary_routed.rpt")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the design."""

    name: str
    unit: str
    estimated: float
    synthesized: float | None  #: by Vitis HLS, None if it says nothing
    routed: float | None  #: of the placed and routed design, the mean over its compute units


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the reports say of a design."""

    design: GeneratedDesign
    files: tuple[Path, ...]  #: that were read
    figures: tuple[Figure, ...]


def compare(reports: Path, design: Path | None) -> Comparison:
    """Compare the vendor's reports below ``reports`` with a design.

    Args:
        design: its directory; None for the nearest one above ``reports``.

    Raises:
        ConfigError: there are no reports, or no design; or the reports are of another one, or of a
            version that this does not know.
    """
    if not reports.is_dir():
        raise ConfigError(f"report={reports}: no such folder")
    record = read_design(_design_above(reports) if design is None else design)
    files = _found(reports)
    if files == (None, None, None):
        raise ConfigError(
            f"report={reports}: neither csynth.xml nor *_{' nor *_'.join(_ROUTED)} is in there"
        )
    try:
        return _compared(record, *files)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None


def _compared(
    design: GeneratedDesign, csynth: Path | None, utilization: Path | None, timing: Path | None
) -> Comparison:
    synthesis = None if csynth is None else read_csynth(csynth)
    if synthesis is not None and csynth is not None:
        _check_same(synthesis, design, csynth)
    units = None if utilization is None else read_utilization(utilization, KERNEL)
    if units is not None and len(units) != design.compute_units:
        raise ConfigError(
            f"{utilization}: {len(units)} compute units, and the design has "
            f"{design.compute_units}; it is of another design"
        )
    slack = None if timing is None else read_slack(timing)
    return Comparison(
        design=design,
        files=tuple(each for each in (csynth, utilization, timing) if each is not None),
        figures=(*_resources(design, synthesis, units), _clock(design, synthesis, slack)),
    )


def _design_above(reports: Path) -> Path:
    around = reports.resolve()
    for folder in (around, *around.parents):
        if (folder / DESIGN_FILE).is_file():
            return folder
    raise ConfigError(
        f"report={reports}: no {DESIGN_FILE} in there or above; design=DIR says which design it is"
    )


def _found(reports: Path) -> tuple[Path | None, Path | None, Path | None]:
    """Return the reports, each the first by its path; those of the top function come first."""
    csynth: list[Path] = []
    routed: dict[str, list[Path]] = {ending: [] for ending in _ROUTED}
    for number, file in enumerate(reports.rglob("*")):
        if number > _MAX_FILES:
            raise ConfigError(f"report={reports}: more than {_MAX_FILES:,} files; name a subfolder")
        if file.name in _PATTERNS:
            csynth.append(file)
        for ending, files in routed.items():
            if file.name.endswith(ending):
                files.append(file)
    csynth.sort(key=lambda each: (_PATTERNS.index(each.name), str(each)))
    firsts = (sorted(files) for files in routed.values())
    utilization, timing = (files[0] if files else None for files in firsts)
    return (csynth[0] if csynth else None), utilization, timing


def _check_same(found: Synthesis, design: GeneratedDesign, file: Path) -> None:
    period = 1e9 / design.clock_hz
    differ = {
        "top function": (found.top, KERNEL, found.top == KERNEL),
        "part": (found.part, design.part, found.part.lower() == design.part.lower()),
        "clock period": (
            f"{found.target_period_ns:g} ns",
            f"{period:.3g} ns",
            abs(found.target_period_ns / period - 1) < _SAME_PERIOD,
        ),
    }
    for what, (theirs, ours, same) in differ.items():
        if not same:
            raise ConfigError(
                f"{file}: {what} {theirs[:60]}, and the design has {ours}; it is of another design"
            )


def _resources(
    design: GeneratedDesign, synthesis: Synthesis | None, units: dict[str, Resources] | None
) -> list[Figure]:
    figures = []
    for name in NAMES:
        routed = None
        if units is not None:
            routed = sum(getattr(each, name) for each in units.values()) / len(units)
        figures.append(
            Figure(
                name=name,
                unit="of a compute unit",
                estimated=getattr(design.resources, name),
                synthesized=None if synthesis is None else getattr(synthesis.resources, name),
                routed=routed,
            )
        )
    return figures


def _clock(design: GeneratedDesign, synthesis: Synthesis | None, slack: float | None) -> Figure:
    period = 1e9 / design.clock_hz
    return Figure(
        name="clock",
        unit="MHz",
        estimated=design.clock_hz / 1e6,
        synthesized=None if synthesis is None else 1e3 / max(synthesis.estimated_period_ns, 1e-3),
        routed=None if slack is None else 1e3 / max(period - slack, 1e-3),
    )
