"""The figures of this machine that are kept: measured once, and again once the machine changes."""

import logging
import time

from gnnscale.core import ConfigError
from gnnscale.core.hardware import busy_seconds, usable_cores
from gnnscale.planner.platform import Platform, estimate_file, platform_file, read_platform

log = logging.getLogger(__name__)

#: What others may use while an estimate is measured that is kept: part of the cores, and seconds
#: within which the system's clock of busy cores errs.
_MAX_OTHERS = 0.1
_CLOCK_ERROR_S = 0.05


def this_machine() -> Platform:
    """Return the figures of this machine: those of its calibration, or else an estimate.

    Raises:
        ConfigError: the file of the calibration cannot be used.
    """
    try:
        platform = read_platform(platform_file())
    except FileNotFoundError:
        return _estimate()
    if platform.change is None:
        return platform
    log.warning(
        f"{platform_file()}: figures of another machine ({platform.change}), which are not used; "
        "run gnnscale doctor calibrate=true again"
    )
    return _estimate()


def _estimate() -> Platform:
    """Return rough figures, kept in ``estimate_file()`` unless others disturbed the measurement.

    A busy machine appears slower than it is, with more threads above all; every later run would be
    planned by that.
    """
    file = estimate_file()
    try:
        kept = read_platform(file)
    except (FileNotFoundError, ConfigError):
        kept = None
    if kept is not None and kept.measured_on is not None and kept.change is None:
        return kept
    # Imported late: it trains, for which it needs much else.
    from gnnscale.planner.calibration.calibrate import estimate

    start, others = time.perf_counter(), _seconds_of_others()
    measured = estimate()
    seconds, others = time.perf_counter() - start, _seconds_of_others() - others
    if others > _MAX_OTHERS * seconds * usable_cores() + _CLOCK_ERROR_S:
        log.debug("other programs were busy: the next run estimates this machine again")
        return measured
    try:
        measured.write(file)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; the next run measures this machine again")
    return measured


def _seconds_of_others() -> float:
    """Seconds that this process's cores have worked for others."""
    return busy_seconds() - time.process_time()
