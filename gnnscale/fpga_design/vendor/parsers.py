"""``csynth.xml``, what Vitis HLS estimates after synthesis (UG1399, from 2020.2 on)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from xml.parsers import expat

from gnnscale.core import ConfigError, shown
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.fpga_design.resources import Resources

#: Reports of large designs have about 2 MB.
_MAX_BYTES = 16 << 20

#: Levels of elements, and characters of the text of one that is read.
_MAX_DEPTH, _MAX_TEXT = 100, 1000

#: Of a BRAM block of 36 Kbit, which are the halves that Vitis HLS counts.
_HALVES = 2
_VERSION = re.compile(r"20(2\d)\.\d")
_OLDEST = 20
_AREA = "AreaEstimates/Resources"
_ESTIMATED = "PerformanceEstimates/SummaryOfTimingAnalysis/EstimatedClockPeriod"

#: Elements that are read, below the root.
_PATHS = frozenset(
    {
        *("ReportVersion/Version", "UserAssignments/TopModelName", "UserAssignments/Part"),
        *("UserAssignments/TargetClockPeriod", _ESTIMATED),
        *(f"{_AREA}/{name}" for name in ("LUT", "FF", "DSP", "BRAM_18K", "URAM")),
    }
)


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """What the file says of its top function."""

    version: str
    top: str
    part: str
    target_period_ns: float
    estimated_period_ns: float
    resources: Resources


def read_csynth(file: Path) -> Synthesis:
    """Return what ``file`` says.

    The parser keeps the texts of the elements in ``_PATHS`` alone. It refuses a document type in
    every encoding, so that no entity is expanded.

    Raises:
        ConfigError: it is no report of Vitis HLS, or of a version that this does not know.
    """
    found = _Texts(file)
    found.read(read_regular(file, limit=_MAX_BYTES))
    texts = found.texts
    version = _text(texts, file, "ReportVersion/Version")
    year = _VERSION.fullmatch(version)
    if year is None or int(year[1]) < _OLDEST:
        raise ConfigError(f"{file}: report of version {version[:40]!r}, known are 2020.2 and later")
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
    """Streaming parser that keeps the text of the first element at each of ``_PATHS``."""

    def __init__(self, file: Path) -> None:
        self.texts: dict[str, str] = {}
        self._file = file
        self._names: list[str] = []
        self._path: str | None = None

    def read(self, content: bytes) -> None:
        """Parse a whole document.

        Raises:
            ConfigError: it is no XML, declares a document type, or is nested too deeply.
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
            raise ConfigError(f"{self._file}: not XML ({shown(error)})") from None

    def _refuse_doctype(self, *_: object) -> None:
        raise ConfigError(
            f"{self._file}: declares a document type, which no report of Vitis HLS does"
        )

    def _start(self, name: str, _: object) -> None:
        self._names.append(name)
        if len(self._names) > _MAX_DEPTH:
            raise ConfigError(f"{self._file}: more than {_MAX_DEPTH} levels of elements")
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
    found = texts.get(path, "").strip()
    if not found:
        raise ConfigError(f"{file}: {path}: missing, is it csynth.xml of Vitis HLS?")
    return found


def _number(texts: dict[str, str], file: Path, path: str) -> float:
    text = _text(texts, file, path)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise ConfigError(f"{file}: {path}={text[:40]!r}: must be a number from 0 on")
    return value


_MAX_BYTES_TIMING = 256 << 20
_TITLE = re.compile(rb"^[ \t]*\| Design Timing Summary[ \t\r]*$", re.MULTILINE)

#: Lines and bytes from the title to the figures, at most.
_REACH, _REACH_BYTES = 12, 16 << 10


def read_slack(file: Path) -> float:
    """Return the worst negative slack in nanoseconds: what is left of the clock's period.

    Raises:
        ConfigError: there is no such summary.
    """
    content = read_regular(file, limit=_MAX_BYTES_TIMING)
    title = _TITLE.search(content)
    if title is not None:
        after = content[title.start() : title.start() + _REACH_BYTES]
        lines = after.decode(errors="replace").splitlines()
        for at in range(min(_REACH, len(lines) - 2)):
            if lines[at].split()[:1] == ["WNS(ns)"]:
                return _slack(lines[at + 2], file)
    raise ConfigError(f"{file}: no design timing summary, is it timing_summary_routed.rpt?")


def _slack(line: str, file: Path) -> float:
    first = line.split()[0] if line.split() else ""
    try:
        value = float(first)
    except ValueError:
        value = float("nan")
    if not -1e6 < value < 1e6:
        raise ConfigError(f"{file}: WNS(ns)={first[:40]!r}: must be a number of nanoseconds")
    return value


_MAX_AMOUNT = 1e12

#: Columns of the table, and the resource that each is.
_COLUMNS = {
    "LUT": "luts",
    "REG": "registers",
    "DSP": "dsps",
    "BRAM": "brams",
    "URAM": "urams",
}

#: A number, and its part of what the platform leaves: ``120401 [ 13.83%]``.
_CELL = re.compile(r"(\d+(?:\.\d+)?)(?:\s*\[\s*[\d.]+%\])?")


def read_utilization(file: Path, kernel: str) -> dict[str, Resources]:
    """Return what each compute unit of ``kernel`` takes, by its name.

    Raises:
        ConfigError: there is no such table, or no compute unit of the kernel in it.
    """
    text = read_regular(file, limit=_MAX_BYTES).decode(errors="replace")
    heads = next(
        (row for row in _rows(text) if row[0] == "Name" and set(_COLUMNS) <= set(row)), None
    )
    if heads is None:
        raise ConfigError(
            f"{file}: no table of {', '.join(_COLUMNS)}, is it kernel_util_routed.rpt of Vitis?"
        )
    units = re.compile(rf"{re.escape(kernel)}_\d+")
    found = {
        row[0]: _resources(row, heads, file)
        for row in _rows(text)
        if len(row) == len(heads) and units.fullmatch(row[0])
    }
    if not found:
        raise ConfigError(f"{file}: no compute unit of {kernel}; it is of another design")
    return found


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
            raise ConfigError(f"{file}: {row[0]}: {column}={cell[:40]!r}: must be a number")
        values[name] = value
    return Resources(**values)
