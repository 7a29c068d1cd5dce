"""Parsers of Vitis reports: synthesis, timing and utilization."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from xml.parsers import expat

from gnnscale.core import ConfigError, brief
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.fpga_design.resources import Resources

#: Size limit; synthesis reports of large designs have about 2 MB.
_MAX_BYTES = 16 << 20

#: Maximum depth of elements, and maximum characters of an element's text.
_MAX_DEPTH, _MAX_TEXT = 100, 1000

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
    """Read ``csynth.xml``, the synthesis report of Vitis HLS (UG1399, from 2020.2 on).

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
    """Streaming parser that stores the text of the first element at each of ``_PATHS``."""

    def __init__(self, file: Path) -> None:
        self.texts: dict[str, str] = {}
        self._file = file
        self._names: list[str] = []
        self._path: str | None = None

    def read(self, content: bytes) -> None:
        """Parse a whole document."""
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


def _number(texts: dict[str, str], file: Path, path: str) -> float:
    text = _text(texts, file, path)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise ConfigError(f"{file}: {path}={text[:40]!r}: expected a number from 0 on")
    return value


_MAX_BYTES_TIMING = 256 << 20
_TITLE = re.compile(rb"^[ \t]*\| Design Timing Summary[ \t\r]*$", re.MULTILINE)

#: Maximum lines and bytes between the title and the values.
_REACH, _REACH_BYTES = 12, 16 << 10


def read_slack(file: Path) -> float:
    """Read the worst negative slack in nanoseconds from a routed timing report."""
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
    try:
        value = float(first)
    except ValueError:
        value = float("nan")
    if not -1e6 < value < 1e6:
        raise ConfigError(f"{file}: WNS(ns)={first[:40]!r}: expected a number of nanoseconds")
    return value


_MAX_AMOUNT = 1e12

#: Resource of each column of the table.
_COLUMNS = {"LUT": "luts", "REG": "registers", "DSP": "dsps", "BRAM": "brams", "URAM": "urams"}

#: A number and its fraction of the available resources: ``120401 [ 13.83%]``.
_CELL = re.compile(r"(\d+(?:\.\d+)?)(?:\s*\[\s*[\d.]+%\])?")


def read_utilization(file: Path, kernel: str) -> dict[str, Resources]:
    """Read the resources of each compute unit of ``kernel`` by name."""
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
    """Yield the cells of each line of a table."""
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
