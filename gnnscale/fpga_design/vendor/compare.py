"""Comparison of Vitis reports with the estimates of the design that was built."""

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
#: Relative difference up to which two clock periods count as equal.
_SAME_PERIOD = 0.02
_PATTERNS = ("csynth.xml", f"{KERNEL}_csynth.xml")
_ROUTED = ("kernel_util_routed.rpt", "timing_summary_routed.rpt")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Quantity of a design, estimated and reported."""

    name: str
    unit: str
    estimated: float
    synthesized: float | None  #: value by Vitis HLS. None: not reported
    #: value after placement and routing, mean over the compute units. None: not reported
    routed: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Reported and estimated quantities of a design."""

    design: GeneratedDesign
    files: tuple[Path, ...]  #: report files
    figures: tuple[Figure, ...]


def compare(reports: Path, design: Path | None) -> Comparison:
    """Compare the vendor's reports below ``reports`` with a design.

    ``design``: directory of the design. None: the nearest one above ``reports``. Raises ConfigError
    if reports or design are missing, the reports belong to another design, or a report has an
    unsupported version.
    """
    if not reports.is_dir():
        raise ConfigError(f"report={reports}: no such folder")
    record = read_design(_design_above(reports) if design is None else design)
    files = _find_reports(reports)
    if files == (None, None, None):
        raise ConfigError(
            f"report={reports}: expected csynth.xml or *_{' or *_'.join(_ROUTED)}, found none"
        )
    try:
        return _compare_files(record, *files)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None


def _compare_files(
    design: GeneratedDesign, csynth: Path | None, utilization: Path | None, timing: Path | None
) -> Comparison:
    synthesis = None if csynth is None else read_csynth(csynth)
    if synthesis is not None and csynth is not None:
        _check_same(synthesis, design, csynth)
    units = None if utilization is None else read_utilization(utilization, KERNEL)
    if units is not None and len(units) != design.compute_units:
        raise ConfigError(
            f"{utilization}: expected {design.compute_units} compute units, got {len(units)}; "
            "the report is of another design"
        )
    slack = None if timing is None else read_slack(timing)
    return Comparison(
        design=design,
        files=tuple(file for file in (csynth, utilization, timing) if file is not None),
        figures=(*_resources(design, synthesis, units), _clock(design, synthesis, slack)),
    )


def _design_above(reports: Path) -> Path:
    start = reports.resolve()
    for folder in (start, *start.parents):
        if (folder / DESIGN_FILE).is_file():
            return folder
    raise ConfigError(
        f"report={reports}: no {DESIGN_FILE} in the folder or above; design=DIR names the design"
    )


def _find_reports(reports: Path) -> tuple[Path | None, Path | None, Path | None]:
    """Return the synthesis, utilization and timing reports; the top function's come first."""
    csynth: list[Path] = []
    routed: dict[str, list[Path]] = {ending: [] for ending in _ROUTED}
    for number, file in enumerate(reports.rglob("*")):
        if number > _MAX_FILES:
            raise ConfigError(
                f"report={reports}: expected at most {_MAX_FILES:,} files; name a subfolder"
            )
        if file.name in _PATTERNS:
            csynth.append(file)
        for ending, files in routed.items():
            if file.name.endswith(ending):
                files.append(file)
    csynth.sort(key=lambda file: (_PATTERNS.index(file.name), str(file)))
    firsts = (sorted(files) for files in routed.values())
    utilization, timing = (files[0] if files else None for files in firsts)
    return (csynth[0] if csynth else None), utilization, timing


def _check_same(synthesis: Synthesis, design: GeneratedDesign, file: Path) -> None:
    period = 1e9 / design.clock_hz
    differ = {
        "top function": (synthesis.top, KERNEL, synthesis.top == KERNEL),
        "part": (synthesis.part, design.part, synthesis.part.lower() == design.part.lower()),
        "clock period": (
            f"{synthesis.target_period_ns:g} ns",
            f"{period:.3g} ns",
            abs(synthesis.target_period_ns / period - 1) < _SAME_PERIOD,
        ),
    }
    for name, (reported, designed, same) in differ.items():
        if not same:
            raise ConfigError(
                f"{file}: {name}: expected {designed}, got {reported[:60]}; "
                "the report is of another design"
            )


def _resources(
    design: GeneratedDesign, synthesis: Synthesis | None, units: dict[str, Resources] | None
) -> list[Figure]:
    figures = []
    for name in NAMES:
        routed = None
        if units is not None:
            routed = sum(getattr(unit, name) for unit in units.values()) / len(units)
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
