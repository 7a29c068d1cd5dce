"""Stored rates of this machine: measured once, and again after a change of the machine."""

import logging
import time

from gnnscale.core import ConfigError
from gnnscale.core.hardware import busy_seconds, usable_cores
from gnnscale.planner.platform import Platform, estimate_file, platform_file, read_platform

log = logging.getLogger(__name__)

#: Load by other programs above which an estimate is not stored: fraction of the cores, plus the
#: error in seconds of the system's busy clock.
_MAX_OTHERS = 0.1
_CLOCK_ERROR_S = 0.05


def this_machine() -> Platform:
    """Return the calibrated rates of this machine, or an estimate without a calibration."""
    try:
        platform = read_platform(platform_file())
    except FileNotFoundError:
        return _estimate()
    if platform.change is None:
        return platform
    log.warning(
        f"{platform_file()}: rates of another machine ({platform.change}) are ignored; "
        "run gnnscale doctor calibrate=true again"
    )
    return _estimate()


def _estimate() -> Platform:
    """Return stored rough rates of this machine, or new rates, stored if the machine was idle."""
    file = estimate_file()
    try:
        stored = read_platform(file)
    except (FileNotFoundError, ConfigError):
        stored = None
    if stored is not None and stored.measured_on is not None and stored.change is None:
        return stored
    # Imported late: calibration trains, and so imports most of the package.
    from gnnscale.planner.calibration.calibrate import estimate

    start, other_s = time.perf_counter(), _other_busy_seconds()
    measured = estimate()
    seconds, other_s = time.perf_counter() - start, _other_busy_seconds() - other_s
    if other_s > _MAX_OTHERS * seconds * usable_cores() + _CLOCK_ERROR_S:
        log.debug("other programs were busy: the next run estimates this machine again")
        return measured
    try:
        measured.write(file)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; the next run measures this machine again")
    return measured


def _other_busy_seconds() -> float:
    """Return the seconds that this process's cores have worked for other processes."""
    return busy_seconds() - time.process_time()
