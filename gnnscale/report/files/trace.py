"""``trace.json``: the stages of the first steps, to be opened in Perfetto or ``chrome://tracing``.

The format is Chrome's trace events: a process for each worker, and in it a thread for each stage
that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.files import write_atomically
from gnnscale.core.stages import SPAN, STAGES
from gnnscale.plan import DevicePlan
from gnnscale.report import figures, fpga

TRACE_FILE = "trace.json"

#: A timeline is read by eye; more steps only make it slow to open.
_MAX_STEPS = 2000


class Spans:
    """Keeps the spans of the first steps, so that memory stays bounded however long the run."""

    def __init__(self, *, max_steps: int = _MAX_STEPS) -> None:
        self._max_steps = max_steps
        self._end: int | None = None
        self._parts: list[NDArray[np.void]] = []

    def add(self, spans: NDArray[np.void]) -> None:
        """Take ``[num_spans]`` of ``SPAN``; those after the first steps are dropped."""
        if len(spans) == 0:
            return
        if self._end is None:
            self._end = int(spans["step"].min()) + self._max_steps
        kept = spans[spans["step"] < self._end]
        if len(kept):
            self._parts.append(kept.copy())

    def all(self) -> NDArray[np.void]:
        """Return the spans kept, ``[num_spans]`` of ``SPAN``, in the order of their start."""
        spans = np.concatenate(self._parts) if self._parts else np.empty(0, dtype=SPAN)
        return spans[np.argsort(spans["start"], kind="stable")]


def write_trace(file: Path, plan: DevicePlan, spans: NDArray[np.void]) -> None:
    """Write ``spans`` as Chrome trace events, atomically.

    Args:
        spans: ``[num_spans]`` of ``SPAN``.
    """
    events = [*_names(plan, spans), *_events(spans)]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    write_atomically(file, '{"displayTimeUnit":"ms","traceEvents":[\n' + lines + "\n]}\n")


def _names(plan: DevicePlan, spans: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    """Metadata events; ids count from 1, as 0 means the idle process to Perfetto."""
    for rank, share in enumerate(plan.shares):
        process = {"ph": "M", "pid": rank + 1}
        device = share.device
        name = figures.device_label(device.label, device.kind, device.figures)
        yield {**process, "name": "process_name", "args": {"name": name}}
        if fpga.is_simulated(device):
            labels = {"labels": "times of this machine, which simulates"}
            yield {**process, "name": "process_labels", "args": labels}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": rank}}
        for stage in np.unique(spans["stage"][spans["device"] == rank]).tolist():
            thread = {**process, "tid": stage + 1}
            yield {**thread, "name": "thread_name", "args": {"name": STAGES[stage]}}
            yield {**thread, "name": "thread_sort_index", "args": {"sort_index": stage}}


def _events(spans: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    """Complete events, in microseconds."""
    for device, stage, step, start, end in spans.tolist():
        yield {
            "ph": "X",
            "pid": device + 1,
            "tid": stage + 1,
            "name": STAGES[stage],
            "ts": round(start * 1e6, 1),
            "dur": round((end - start) * 1e6, 1),
            "args": {"step": step},
        }
