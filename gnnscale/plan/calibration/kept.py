"""The figures of this machine that are kept: measured once, and again once the machine changes."""

from __future__ import annotations

import logging

from gnnscale.config import ConfigError
from gnnscale.plan.platform import Platform, estimate_file, platform_file, read_platform

__all__ = ["this_machine"]

log = logging.getLogger(__name__)


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
    """Return rough figures, which are measured once, and kept in ``estimate_file()``."""
    file = estimate_file()
    try:
        kept = read_platform(file)
    except (FileNotFoundError, ConfigError):
        kept = None
    if kept is not None and kept.measured_on is not None and kept.change is None:
        return kept
    # Imported late: it trains, for which it needs much else.
    from gnnscale.plan.calibration.calibrate import estimate

    measured = estimate()
    try:
        measured.write(file)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; the next run measures this machine again")
    return measured
