"""Vendor's build reports: parsers of Vitis reports, and their comparison with the estimates."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from xml.parsers import expat

from gnnscale.core import ConfigError, brief
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.fpga_design.design import DESIGN_FILE, GeneratedDesign, read_design
from gnnscale.fpga_design.resources import Resources
from gnnscale.planner.fpga_board import NAMES

#: Size limit; synthesis reports of large designs have about 2 MB.
_MAX_BYTES = 16 << 20

#: Maximum depth of elements, and maximum characters of an element's text.
_MAX_DEPTH, _MAX_TEXT = 100, 1000

#: Limit of the amount of a resource.
_MAX_AMOUNT = 1e12
#: Vitis HLS counts halves of a 36 Kbit BRAM block.
_HALVES = 2
_VERSION = re.compile(r"20(2\d)\.\d")
_OLDEST = 20
_AREA = "AreaEstimates/Resources"
_ESTIMATED = "PerformanceEstimates/SummaryOfTimingAnalysis/EstimatedClockPeriod"

#: Paths of the needed elements below the root.
_PATHS = frozenset(
    {
        *("ReportVersion/Version", "UserAssignments/TopModelName", "UserAssignments/Part"),
        *("UserAssignments/TargetClockPeriod", _ESTIMATED),
        *(f"{_AREA}/{name}" for name in ("LUT", "FF", "DSP", "BRAM_18K", "URAM")),
    }
)


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """Estimates of Vitis HLS for a top function after synthesis."""

    version: str
    top: str
    part: str
    target_period_ns: float
    estimated_period_ns: float
    resources: Resources


def read_csynth(file: Path) -> Synthesis:
    """Return the estimates in ``csynth.xml``, a report of Vitis HLS (UG1399, from 2020.2 on).

    The parser stores only texts of elements in ``_PATHS``. It refuses a document type in every
    encoding, so that no entity is expanded. Raises ConfigError if the file is no report of Vitis
    HLS, or of an unsupported version.
    """
    parser = _Texts(file)
    parser.read(read_regular(file, limit=_MAX_BYTES))
    texts = parser.texts
    version = _text(texts, file, "ReportVersion/Version")
    year = _VERSION.fullmatch(version)
    if year is None or int(year[1]) < _OLDEST:
        raise ConfigError(f"{file}: expected version 2020.2 or later, got {version[:40]!r}")
    return Synthesis(
        version=version,
        top=_text(texts, file, "UserAssignments/TopModelName"),
        part=_text(texts, file, "UserAssignments/Part"),
        target_period_ns=_number(texts, file, "UserAssignments/TargetClockPeriod"),
        estimated_period_ns=_number(texts, file, _ESTIMATED),
        resources=Resources(
            luts=_number(texts, file, f"{_AREA}/LUT"),
            registers=_number(texts, file, f"{_AREA}/FF"),
            dsps=_number(texts, file, f"{_AREA}/DSP"),
            brams=_number(texts, file, f"{_AREA}/BRAM_18K") / _HALVES,
            urams=_number(texts, file, f"{_AREA}/URAM"),
        ),
    )


class _Texts:
    """Streaming XML parser that stores the text of the first element at each path of ``_PATHS``."""

    def __init__(self, file: Path) -> None:
        self.texts: dict[str, str] = {}
        self._file = file
        self._names: list[str] = []
        self._path: str | None = None

    def read(self, content: bytes) -> None:
        """Parse the XML in ``content`` into ``texts``, by path below the root.

        ConfigError: no XML, a document type, or elements that are nested too deep.
        """
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add
        try:
            parser.Parse(content, True)
        except (expat.ExpatError, LookupError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._file}: expected XML, got {brief(error)}") from None

    def _refuse_doctype(self, *_: object) -> None:
        raise ConfigError(
            f"{self._file}: expected a report of Vitis HLS, got XML with a document type"
        )

    def _start(self, name: str, _: object) -> None:
        self._names.append(name)
        if len(self._names) > _MAX_DEPTH:
            raise ConfigError(f"{self._file}: expected at most {_MAX_DEPTH} levels of elements")
        # The root's name differs between versions.
        path = "/".join(self._names[1:])
        self._path = path if path in _PATHS and path not in self.texts else None
        if self._path is not None:
            self.texts[path] = ""

    def _end(self, name: str) -> None:
        self._names.pop()
        self._path = None

    def _add(self, text: str) -> None:
        if self._path is not None:
            self.texts[self._path] = (self.texts[self._path] + text)[:_MAX_TEXT]


def _text(texts: dict[str, str], file: Path, path: str) -> str:
    text = texts.get(path, "").strip()
    if not text:
        raise ConfigError(f"{file}: {path}: required in csynth.xml of Vitis HLS")
    return text


def _float(text: str) -> float:
    """Return the number in ``text``, NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _number(texts: dict[str, str], file: Path, path: str) -> float:
    text = _text(texts, file, path)
    value = _float(text)
    if not 0 <= value < _MAX_AMOUNT:
        raise ConfigError(f"{file}: {path}={text[:40]!r}: expected a number from 0 on")
    return value


_MAX_BYTES_TIMING = 256 << 20
_TITLE = re.compile(rb"^[ \t]*\| Design Timing Summary[ \t\r]*$", re.MULTILINE)

#: Maximum lines and bytes between the title and the values.
_REACH, _REACH_BYTES = 12, 16 << 10


def read_slack(file: Path) -> float:
    """Return the worst negative slack (ns) in a routed timing report; ConfigError: none found."""
    content = read_regular(file, limit=_MAX_BYTES_TIMING)
    title = _TITLE.search(content)
    if title is not None:
        summary = content[title.start() : title.start() + _REACH_BYTES]
        lines = summary.decode(errors="replace").splitlines()
        for i in range(min(_REACH, len(lines) - 2)):
            if lines[i].split()[:1] == ["WNS(ns)"]:
                return _slack(lines[i + 2], file)
    raise ConfigError(f"{file}: expected timing_summary_routed.rpt with a design timing summary")


def _slack(line: str, file: Path) -> float:
    first = line.split()[0] if line.split() else ""
    value = _float(first)
    if not -1e6 < value < 1e6:
        raise ConfigError(f"{file}: WNS(ns)={first[:40]!r}: expected a number of nanoseconds")
    return value


#: Resource of each column of the table.
_COLUMNS = {"LUT": "luts", "REG": "registers", "DSP": "dsps", "BRAM": "brams", "URAM": "urams"}

#: A number and its fraction of the available resources: ``120401 [ 13.83%]``.
_CELL = re.compile(r"(\d+(?:\.\d+)?)(?:\s*\[\s*[\d.]+%\])?")


def read_utilization(file: Path, kernel: str) -> dict[str, Resources]:
    """Return the resources after routing of each compute unit of ``kernel``, by unit name.

    ``file`` is a utilization report. ConfigError: another format, or no such unit.
    """
    text = read_regular(file, limit=_MAX_BYTES).decode(errors="replace")
    heads = next(
        (row for row in _rows(text) if row[0] == "Name" and set(_COLUMNS) <= set(row)), None
    )
    if heads is None:
        raise ConfigError(
            f"{file}: expected kernel_util_routed.rpt with a table of {', '.join(_COLUMNS)}"
        )
    units = re.compile(rf"{re.escape(kernel)}_\d+")
    resources = {
        row[0]: _resources(row, heads, file)
        for row in _rows(text)
        if len(row) == len(heads) and units.fullmatch(row[0])
    }
    if not resources:
        raise ConfigError(f"{file}: no compute unit of {kernel}; the report is of another design")
    return resources


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the stripped cells of each line of ``text`` that begins with a vertical bar."""
    for line in StringIO(text):
        if line.lstrip().startswith("|"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def _resources(row: list[str], heads: list[str], file: Path) -> Resources:
    values = {}
    for column, name in _COLUMNS.items():
        cell = row[heads.index(column)]
        match = _CELL.fullmatch(cell)
        value = -1.0 if match is None else float(match[1])
        if not 0 <= value < _MAX_AMOUNT:
            raise ConfigError(f"{file}: {row[0]}: {column}={cell[:40]!r}: expected a number")
        values[name] = value
    return Resources(**values)


KERNEL = "gnnscale_step"
_MAX_FILES = 100_000
#: Relative difference up to which two clock periods count as equal.
_SAME_PERIOD = 0.02
_PATTERNS = ("csynth.xml", f"{KERNEL}_csynth.xml")
_ROUTED = ("kernel_util_routed.rpt", "timing_summary_routed.rpt")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Quantity of a design: its estimate, and its values in vendor reports."""

    name: str
    unit: str
    estimated: float
    synthesized: float | None  #: value by Vitis HLS. None: not reported
    #: value after placement and routing, mean over the compute units. None: not reported
    routed: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Quantities of a design, each with its estimate and reported values."""

    design: GeneratedDesign
    files: tuple[Path, ...]  #: report files
    figures: tuple[Figure, ...]


def compare(reports: Path, design: Path | None) -> Comparison:
    """Return a design's estimates next to the quantities in vendor reports below ``reports``.

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
        figures=(*_resource_figures(design, synthesis, units), _clock(design, synthesis, slack)),
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
    """Return the first synthesis, utilization and timing report below a folder; None: none.

    ConfigError: the folder has too many files to search.
    """
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


def _resource_figures(
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
