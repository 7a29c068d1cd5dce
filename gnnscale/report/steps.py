"""``steps.jsonl``, a line for each step, and ``trace.json``, a timeline of the first steps.

docs/run-directory.md describes the lines. ``trace.json`` has Chrome's trace events: a process for
each worker, with a thread for each of its stages.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from gnnscale.core import NO_TRAFFIC, SPAN, STAGES, Count, KnownFolder, write_atomically
from gnnscale.core.types import Float64Array, Int64Array, StructArray
from gnnscale.planner import DevicePlan
from gnnscale.report import formatting, fpga

if TYPE_CHECKING:
    from gnnscale.run.records import DeviceStep, StepRecord


_FLUSH_EVERY_S = 1.0
#: Largest number of steps in a report; a plot shows far fewer.
_MAX_STEPS = 1 << 16
#: Part of a line of a step without a decision.
_NO_DECISION = b'"decision":null'
#: Largest length of a line, in characters.
_MAX_LINE = 1 << 20


#: A number small enough for sums over a run to be finite.
_Number = Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)]


class _Access(msgspec.Struct):
    # The sum of rows and lists must still be an int64.
    link_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62 - 1)] = 0


class _Traffic(msgspec.Struct):
    rows: _Access = msgspec.field(default_factory=_Access)
    lists: _Access = msgspec.field(default_factory=_Access)


class _Threads(msgspec.Struct):
    sample: Count
    load: Count
    propagate: Count


class _DeviceLine(msgspec.Struct):
    seeds: Count
    threads: _Threads
    stage_s: dict[str, _Number]
    traffic: _Traffic = msgspec.field(default_factory=_Traffic)


class _StepLine(msgspec.Struct):
    """Fields of a line of ``steps.jsonl`` that ``read_steps`` reads."""

    global_step: Count
    epoch: Count
    seconds: _Number
    loss: _Number | None
    decision: str | None
    devices: list[_DeviceLine]


_decoder = msgspec.json.Decoder(_StepLine)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps of a run as columns; ``n`` steps, ``d`` devices."""

    number: Int64Array  #: ``[n]``, ``global_step``, ascending
    epoch: Int64Array  #: ``[n]``
    seconds: Float64Array  #: ``[n]``, from the epoch's start to the step's end
    loss: Float64Array  #: ``[n]``; NaN: not finite
    num_seeds: Int64Array  #: ``[n, d]``
    threads: Int64Array  #: ``[n, d, 3]`` of sample, load, propagate
    stages: Float64Array  #: ``[n, d, len(STAGES)]`` seconds; NaN: the device lacks the stage
    link_bytes: Int64Array  #: ``[n, d]``, over the link between host and device
    #: decisions of dynamic resource management, each with the step before it
    decisions: tuple[tuple[int, str], ...]

    def __len__(self) -> int:
        return len(self.number)

    def first(self, num_steps: int) -> Steps:
        """Return the first ``num_steps`` steps, and the decisions up to the last of them."""
        end = int(self.number[:num_steps][-1]) if len(self) else 0
        decisions = tuple(decision for decision in self.decisions if decision[0] <= end)
        first = {name: values[:num_steps] for name, values in vars(self).items()}
        return Steps(**{**first, "decisions": decisions})


class StepLog:
    """Writer of ``steps.jsonl``, which it flushes about once a second.

    In a resumed run, the first step drops existing lines of that step and of later steps: the
    resumed checkpoint does not contain them.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folder = KnownFolder(file.parent)
        self._lines: list[bytes] = []
        self._started = False
        self._flushed = time.monotonic()

    def add(self, record: StepRecord) -> None:
        """Add the line of the next step, and write the lines if a second has passed."""
        if not self._started:
            _drop_lines_from(self._file, record.global_step)
            self._started = True
        self._lines.append(_line(record))
        if time.monotonic() - self._flushed >= _FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the steps added so far; ConfigError if the file's folder was moved or removed."""
        lines, self._lines = self._lines, []
        self._flushed = time.monotonic()
        self._folder.check()
        if not lines:
            return
        try:
            with self._file.open("ab") as file:
                file.write(b"".join(lines))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._file)) from None


def read_steps(file: Path, *, num_devices: int) -> Steps:
    """Read ``steps.jsonl``; a missing file has no steps.

    Incomplete or damaged lines, and lines of a plan with another number of devices, are skipped. Of
    a long run, every n-th step and all decisions are read, so that memory and time stay bounded.
    """
    stride = -(-_count_lines(file) // _MAX_STEPS)
    number, epoch, num_seeds, threads, link_bytes = (array("q") for _ in range(5))
    seconds, loss, stages = (array("d") for _ in range(3))
    decisions: list[tuple[int, str]] = []
    for index, _, step in _parse_lines(file, stride):
        if len(step.devices) != num_devices:
            continue
        if step.decision is not None:
            decisions.append((step.global_step, step.decision))
        if index % stride:
            continue
        number.append(step.global_step)
        epoch.append(step.epoch)
        seconds.append(step.seconds)
        loss.append(math.nan if step.loss is None else step.loss)
        for device in step.devices:
            num_seeds.append(device.seeds)
            threads.extend((device.threads.sample, device.threads.load, device.threads.propagate))
            stages.extend(device.stage_s.get(name, math.nan) for name in STAGES)
            link_bytes.append(device.traffic.rows.link_bytes + device.traffic.lists.link_bytes)
    shape = (len(number), num_devices)
    return Steps(
        number=np.array(number),
        epoch=np.array(epoch),
        seconds=np.array(seconds),
        loss=np.array(loss),
        num_seeds=np.array(num_seeds).reshape(shape),
        threads=np.array(threads).reshape(*shape, 3),
        stages=np.array(stages).reshape(*shape, len(STAGES)),
        link_bytes=np.array(link_bytes).reshape(shape),
        decisions=tuple(decisions),
    )


def _line(record: StepRecord) -> bytes:
    """Return a step as a line of JSON."""
    line = {
        "global_step": record.global_step,
        "epoch": record.epoch,
        "seconds": float(record.seconds),
        "loss": float(record.loss),  # msgspec writes null unless it is finite
        "devices": [_device(device) for device in record.devices],
        "decision": record.decision,
    }
    return msgspec.json.encode(line) + b"\n"


def _device(step: DeviceStep) -> dict[str, Any]:
    # ``vars`` instead of ``asdict``, which copies.
    device: dict[str, Any] = {
        "seeds": int(step.num_seeds),
        "threads": step.threads,
        "stage_s": {name: float(value) for name, value in vars(step.stages).items() if value > 0},
    }
    if step.traffic is not NO_TRAFFIC:
        traffic = {}
        for part, access in vars(step.traffic).items():
            if counts := {name: int(count) for name, count in vars(access).items() if count}:
                traffic[part] = counts
        if traffic:
            device["traffic"] = traffic
    return device


def _count_lines(file: Path) -> int:
    if not file.is_file():  # a pipe would be waited for
        return 0
    with file.open("rb") as content:
        return sum(part.count(b"\n") for part in iter(lambda: content.read(1 << 20), b"")) + 1


def _parse_lines(file: Path, stride: int) -> Iterator[tuple[int, bytes, _StepLine]]:
    """Yield index, text and step of valid lines: every ``stride``-th, and those with decisions."""
    if not file.is_file():  # a pipe would be waited for
        return
    with file.open("rb") as lines:
        for index in itertools.count():
            if not (line := lines.readline(_MAX_LINE)):
                return
            if index % stride and _NO_DECISION in line:
                continue
            with suppress(ValueError, RecursionError):
                yield index, line, _decoder.decode(line)


def _drop_lines_from(file: Path, step: int) -> None:
    """Rewrite ``file`` without damaged lines and the lines of ``step`` and later steps."""
    if not file.is_file():  # a pipe would be waited for
        return
    remaining = (line for _, line, parsed in _parse_lines(file, 1) if parsed.global_step < step)
    write_atomically(file, (line.rstrip(b"\n") + b"\n" for line in remaining))


TRACE_FILE = "trace.json"

#: Steps in a timeline; more would make it slow to open.
_MAX_TRACED_STEPS = 2000


class Spans:
    """Buffer of spans (a stage's start and end) of the first ``max_steps`` steps."""

    def __init__(self, *, max_steps: int = _MAX_TRACED_STEPS) -> None:
        self._max_steps = max_steps
        self._end: int | None = None
        self._parts: list[StructArray] = []

    def add(self, spans: StructArray) -> None:
        """Add ``[num_spans]`` of ``SPAN``, without spans of steps after the first ``max_steps``."""
        if len(spans) == 0:
            return
        if self._end is None:
            self._end = int(spans["step"].min()) + self._max_steps
        first_spans = spans[spans["step"] < self._end]
        if len(first_spans):
            # An array from another process has its own dtype object, larger than the spans.
            self._parts.append(first_spans.astype(SPAN))

    def all(self) -> StructArray:
        """Return the spans ``[num_spans]`` of ``SPAN``, ordered by start."""
        spans = np.concatenate(self._parts) if self._parts else np.empty(0, dtype=SPAN)
        return spans[np.argsort(spans["start"], kind="stable")]


def write_trace(file: Path, plan: DevicePlan, spans: StructArray) -> None:
    """Write ``spans``, ``[num_spans]`` of ``SPAN``, as Chrome trace events, atomically."""
    events = [*_names(plan, spans), *_events(spans)]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    write_atomically(file, '{"displayTimeUnit":"ms","traceEvents":[\n' + lines + "\n]}\n")


def _names(plan: DevicePlan, spans: StructArray) -> Iterator[dict[str, Any]]:
    """Yield trace events that name devices (processes) and stages (threads).

    Ids count from 1, as Perfetto's 0 is idle.
    """
    for rank, share in enumerate(plan.shares):
        process = {"ph": "M", "pid": rank + 1}
        device = share.device
        name = formatting.device_label(device.label, device.kind, device.figures)
        yield {**process, "name": "process_name", "args": {"name": name}}
        if fpga.is_simulated(device):
            labels = {"labels": "times of this machine, which simulates"}
            yield {**process, "name": "process_labels", "args": labels}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": rank}}
        for stage in np.unique(spans["stage"][spans["device"] == rank]).tolist():
            thread = {**process, "tid": stage + 1}
            yield {**thread, "name": "thread_name", "args": {"name": STAGES[stage]}}
            yield {**thread, "name": "thread_sort_index", "args": {"sort_index": stage}}


def _events(spans: StructArray) -> Iterator[dict[str, Any]]:
    """Yield a Chrome trace event for each span, with start and duration in microseconds."""
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
