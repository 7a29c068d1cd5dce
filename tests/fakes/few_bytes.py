"""Runs of tests read fewer bytes between two samples that they time: 128 MiB take long.

The cores of tests are busy, and their figures mean nothing.
"""

from gnnscale.planner.cost_model import workload

FEW_BYTES = 1 << 20


def read_few_bytes() -> None:
    """Set it for this process, and for those that it forks."""
    workload._MAX_OTHER_BYTES = FEW_BYTES
