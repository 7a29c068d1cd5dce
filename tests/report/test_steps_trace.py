import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.stages import SPAN, STAGES
from gnnscale.report.steps import Spans, write_trace


def trace(file: Path, run: Any, spans: Any) -> list[dict[str, Any]]:
    write_trace(file, run.started.plan, spans)
    content = json.loads(file.read_text())
    assert content["displayTimeUnit"] == "ms"
    return content["traceEvents"]


def threads(events: list[dict[str, Any]], pid: int) -> list[str]:
    found = [e for e in events if e["name"] == "thread_name" and e["pid"] == pid]
    return [each["args"]["name"] for each in found]


def test_every_event_has_what_the_format_asks_for(tmp_path, hybrid_run, exchange_run) -> None:
    events = trace(tmp_path / "trace.json", hybrid_run, hybrid_run.spans)
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        if event["ph"] == "X":
            assert {"name", "ts", "dur", "tid", "args"} <= set(event)
            assert event["name"] == STAGES[event["tid"] - 1]
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    assert sum(event["ph"] == "X" for event in events) == len(hybrid_run.spans)
    # A process for each worker, and a thread for each stage that it has.
    processes = [e for e in events if e["name"] == "process_name"]
    assert [(e["pid"], e["args"]["name"]) for e in processes] == [(1, "cpu:0"), (2, "emulated:1")]
    assert threads(events, 1) == ["sample", "load", "propagate", "sync"]
    assert threads(events, 2) == ["sample", "load", "transfer", "propagate", "sync"]
    order = [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"]
    assert order == [0, 1, 4, 5, *(0, 1, 3, 4, 5)]
    events = trace(tmp_path / "trace.json", exchange_run, exchange_run.spans)
    assert threads(events, 2) == list(STAGES)


def test_the_time_of_simulating_is_called_so(tmp_path: Path, simulated_run: Any) -> None:
    events = trace(tmp_path / "trace.json", simulated_run, simulated_run.spans)
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["cpu:0", "fpga:1 (csim)"]
    labels = [(e["pid"], e["args"]["labels"]) for e in events if e["name"] == "process_labels"]
    assert labels == [(2, "times of this machine, which simulates")]


def test_times_are_microseconds(tmp_path: Path, hybrid_run: Any) -> None:
    span = np.array([(1, STAGES.index("propagate"), 7, 0.5, 0.502)], dtype=SPAN)
    event = trace(tmp_path / "trace.json", hybrid_run, span)[-1]
    assert event == {
        **{"ph": "X", "pid": 2, "tid": 5, "name": "propagate", "args": {"step": 7}},
        **{"ts": pytest.approx(500_000), "dur": pytest.approx(2_000)},
    }


def test_only_the_first_steps_are_kept(hybrid_run: Any) -> None:
    spans = Spans(max_steps=10)
    late_start = hybrid_run.spans[hybrid_run.spans["step"] >= 40]
    assert len(spans.all()) == 0
    spans.add(late_start[:0])
    spans.add(late_start)
    spans.add(late_start)
    kept = spans.all()
    assert set(kept["step"].tolist()) == set(range(40, 50))
    assert (np.diff(kept["start"]) >= 0).all()
