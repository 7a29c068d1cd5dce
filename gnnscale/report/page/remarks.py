"""Remarks on the jobs of a sweep whose figures cannot be compared, or that cache nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from gnnscale.report.formatting import MEASURED
from gnnscale.report.page.best import Jobs

#: Largest share of the cores that other programs may keep busy if times are compared.
_MAX_LOAD = 0.1


def is_busy(job: Mapping[str, Any]) -> bool:
    """Whether other programs kept over a tenth of the cores busy while ``job`` trained."""
    return (job.get("other_load") or 0.0) > _MAX_LOAD


def remarks(jobs: Jobs, *, sequential: bool) -> list[str]:
    """Return lines about jobs that are busy, that cache nothing, or whose times are not real.

    Only ``sequential`` jobs can be busy with other programs.
    """
    lines = []
    loads = {job["job"]: job["other_load"] for job in jobs if is_busy(job)}
    if loads and sequential:
        lines.append(
            f"jobs {_numbers(loads)} have no speed-up: other programs kept up to "
            f"{max(loads.values()):.0%} of the cores busy while they trained"
        )
    for reason in dict.fromkeys(job.get("uncached") for job in jobs):
        if reason is not None:
            same = (job["job"] for job in jobs if job.get("uncached") == reason)
            lines.append(f"jobs {_numbers(same)}: {reason}")
    for kind in dict.fromkeys(job["figures"] for job in jobs):
        if kind not in (None, MEASURED):
            same = (job["job"] for job in jobs if job["figures"] == kind)
            lines.append(f"jobs with {kind} figures: {_numbers(same)}")
    return lines


def _numbers(jobs: Iterable[int]) -> str:
    return ", ".join(map(str, jobs))
