"""``csynth.xml``, what Vitis HLS estimates after synthesis (UG1399, from 2020.2 on)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from gnnscale.core import ConfigError
from gnnscale.options.file import read_regular
from gnnscale.plan.resources import Resources

_MAX_BYTES = 64 << 20
#: Of a BRAM block of 36 Kbit, which are the halves that Vitis HLS counts.
_HALVES = 2
_VERSION = re.compile(r"20(2\d)\.\d")
_OLDEST = 20


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

    No entity of it is expanded: a file that declares one is refused.

    Raises:
        ConfigError: it is no report of Vitis HLS, or of a version that this does not know.
    """
    content = read_regular(file, limit=_MAX_BYTES)
    if b"<!" in content.replace(b"<!--", b""):
        raise ConfigError(f"{file}: declares a document type, which no report of Vitis HLS does")
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ConfigError(f"{file}: not XML ({error})") from None
    version = _text(root, file, "ReportVersion/Version")
    found = _VERSION.fullmatch(version)
    if found is None or int(found[1]) < _OLDEST:
        raise ConfigError(f"{file}: report of version {version[:40]!r}, known are 2020.2 and later")
    area = "AreaEstimates/Resources"
    return Synthesis(
        version=version,
        top=_text(root, file, "UserAssignments/TopModelName"),
        part=_text(root, file, "UserAssignments/Part"),
        target_period_ns=_number(root, file, "UserAssignments/TargetClockPeriod"),
        estimated_period_ns=_number(
            root, file, "PerformanceEstimates/SummaryOfTimingAnalysis/EstimatedClockPeriod"
        ),
        resources=Resources(
            luts=_number(root, file, f"{area}/LUT"),
            registers=_number(root, file, f"{area}/FF"),
            dsps=_number(root, file, f"{area}/DSP"),
            brams=_number(root, file, f"{area}/BRAM_18K") / _HALVES,
            urams=_number(root, file, f"{area}/URAM"),
        ),
    )


def _text(root: ElementTree.Element, file: Path, path: str) -> str:
    found = root.findtext(path)
    if found is None or not found.strip():
        raise ConfigError(f"{file}: {path}: missing, is it csynth.xml of Vitis HLS?")
    return found.strip()


def _number(root: ElementTree.Element, file: Path, path: str) -> float:
    text = _text(root, file, path)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise ConfigError(f"{file}: {path}={text[:40]!r}: must be a number from 0 on")
    return value
