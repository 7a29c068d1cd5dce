"""What each worker alone knows of an epoch: memory, figures of its device, and spans."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.metrics import peak_rss_bytes
from gnnscale.core.stages import SPAN
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.sync.group import Group

__all__ = ["WorkerFigures", "pss_bytes"]

#: Steps of a run whose spans are kept for the trace.
_TRACED_STEPS = 2000
#: Steps between two gatherings at least, if devices count nothing by themselves.
_GATHER_EVERY = 32
#: Seconds for which a look at the proportional set holds: the kernel walks all pages for it, which
#: takes as long as a short epoch.
_PSS_EVERY_S = 1.0


class WorkerFigures:
    """Gathers what each worker knows on rank 0, not more often than it is worth.

    Attributes:
        spans: of the epoch that was ended last, from all devices; complete on rank 0.
        of_workers: memory and figures of each worker, by rank; on rank 0.
        counters: figures of this worker's device since they were last gathered.
    """

    def __init__(self, group: Group, start: float) -> None:
        """Begin; spans count from ``start``, on the performance counter's clock."""
        self.spans: NDArray[np.void] = np.empty(0, SPAN)
        self.of_workers: list[dict[str, Any]] = []
        self.counters: Counter[str] = Counter()
        self._group = group
        self._start = start
        self._traced = 0
        self._steps_since_gathered = _GATHER_EVERY  # those of the first epoch are needed
        self._pss: tuple[float, int | None] = (-math.inf, None)
        self._mine: list[tuple[int, int, int, float, float]] = []

    def add(self, batch: BatchSlice) -> None:
        """Take note of this worker's slice of a step."""
        self._steps_since_gathered += 1
        if batch.outcome is not None:
            self.counters.update(batch.outcome.counters)
        if self._traced < _TRACED_STEPS:
            self._traced += 1
            self._mine += [
                (self._group.rank, stage, batch.step, start - self._start, end - self._start)
                for stage, start, end in batch.spans
            ]

    def end_epoch(self, *, due: bool) -> None:
        """Gather what is known if it is ``due``, there is one worker, or many steps have passed.

        An epoch of few steps on processors alone otherwise keeps the memory of the one before, and
        leaves spans and counters to the next: to gather takes longer than such an epoch.
        """
        if due or self._group.size == 1 or self._steps_since_gathered >= _GATHER_EVERY:
            self._gather()
            self._steps_since_gathered = 0
        else:
            self.spans = np.empty(0, SPAN)
            self.of_workers = [{**each, "counters": {}} for each in self.of_workers]

    def _gather(self) -> None:
        mine = {
            "peak_rss_bytes": peak_rss_bytes(),
            "pss_bytes": self._pss_bytes(),
            "counters": dict(self.counters),
        }
        # One message, for each costs the workers a few turns on the cores.
        spans = np.array(self._mine, SPAN).tobytes()
        message = json.dumps(mine).encode() + b"\n" + spans
        found = [each.partition(b"\n") for each in self._group.gather(message)]
        self.of_workers = [json.loads(figures) for figures, _, _ in found]
        self.spans = np.concatenate(
            [np.empty(0, SPAN), *(np.frombuffer(each, SPAN) for _, _, each in found)]
        )
        self._mine = []
        self.counters.clear()

    def _pss_bytes(self) -> int | None:
        """This process's proportional set, as it was within the last second."""
        now = time.perf_counter()
        if now - self._pss[0] >= _PSS_EVERY_S:
            self._pss = now, pss_bytes()
        return self._pss[1]


def pss_bytes(pid: int | str = "self") -> int | None:
    """Return the proportional set size of a process: shared pages count in parts.

    The sum over all workers of a run is what they take together; the graph store, which all of them
    map, counts once in it.

    Returns:
        Bytes, or None if the system does not say (Linux does).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
