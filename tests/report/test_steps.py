import errno
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_files import write_steps, written_steps

from gnnscale.core.stages import STAGES
from gnnscale.report import steps as steps_file
from gnnscale.report.steps import StepLog, read_steps
from gnnscale.report.summary import write_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def device(**changes: Any) -> dict[str, Any]:
    threads = {"sample": 1, "load": 1, "propagate": 1}
    return {"seeds": 1, "threads": threads, "stage_s": {"load": 0.1}, **changes}


def numbers(file: Path) -> list[int]:
    return [json.loads(line)["global_step"] for line in file.read_text().splitlines()]


def test_what_is_written_is_read(tmp_path: Path, hybrid_run: Any) -> None:
    steps = written_steps(tmp_path, hybrid_run.steps)
    assert len(steps) == 90
    assert steps.number.tolist() == list(range(90))
    assert steps.epoch.tolist() == [1] * 30 + [2] * 30 + [3] * 30
    assert steps.num_seeds[0].tolist() == [800, 224]
    assert steps.threads[5].tolist() == [[1, 1, 2], [1, 1, 0]]
    np.testing.assert_array_equal(steps.loss, [s.loss for s in hybrid_run.steps])
    np.testing.assert_array_equal(steps.seconds, [s.seconds for s in hybrid_run.steps])
    expected = [s.devices[1].stages.transfer for s in hybrid_run.steps]
    transfer = STAGES.index("transfer")
    np.testing.assert_array_equal(steps.stages[:, 1, transfer], expected)
    # A processor transfers nothing.
    assert np.isnan(steps.stages[:, 0, transfer]).all()
    # 400 bytes of rows and 10 of lists for each seed.
    np.testing.assert_array_equal(steps.link_bytes[:, 1], 410 * steps.num_seeds[:, 1])
    assert not steps.link_bytes[:, 0].any()
    assert steps.first(10).link_bytes.shape == (10, 2)
    assert [number for number, _ in steps.decisions] == [8, 16, 24]
    assert [each[0] for each in steps.first(10).decisions] == [8]


def test_a_line_by_hand(tmp_path: Path, hybrid_run: Any) -> None:
    step = replace(hybrid_run.steps[8], loss=0.25, seconds=1.5)
    write_steps(tmp_path / "steps.jsonl", [step])
    line = json.loads((tmp_path / "steps.jsonl").read_text())
    assert line["global_step"] == 8
    assert (line["epoch"], line["loss"], line["seconds"]) == (1, 0.25, 1.5)
    assert line["decision"].endswith("300 seeds from cpu:0 to emulated:1")
    cpu = line["devices"][0]
    assert (cpu["seeds"], cpu["threads"]) == (800, {"sample": 1, "load": 1, "propagate": 2})
    assert list(cpu["stage_s"]) == ["sample", "load", "propagate", "sync"]
    assert cpu["stage_s"]["load"] == step.devices[0].stages.load
    assert "traffic" not in cpu
    assert line["devices"][1]["traffic"] == {
        "rows": {"link_bytes": 224 * 400, "link_requests": 224 * 40},
        "lists": {"link_bytes": 224 * 10, "link_requests": 224},
    }


@pytest.mark.parametrize("value", [1 / 3, 2.0**-40, 123456789.123456789, 5e300, np.float64(0.1)])
def test_numbers_have_all_their_digits(tmp_path: Path, hybrid_run: Any, value: float) -> None:
    """Whatever is compared later is the run's own number, bit for bit."""
    record = hybrid_run.steps[0]
    stages = replace(record.devices[0].stages, load=value, sample=value / 7)
    devices = (replace(record.devices[0], stages=stages), *record.devices[1:])
    step = replace(record, loss=value, seconds=value * 3, devices=devices)
    write_steps(tmp_path / "steps.jsonl", [step])
    line = json.loads((tmp_path / "steps.jsonl").read_text())
    assert (line["loss"], line["seconds"]) == (value, value * 3)
    assert line["devices"][0]["stage_s"]["load"] == value
    assert line["devices"][0]["stage_s"]["sample"] == value / 7


def test_odd_values(file: Path, tmp_path: Path, hybrid_run: Any) -> None:
    """A decision is text whatever it holds, and a loss that is no number is null."""
    decision = 'a "b" \\ \n ü'
    step = replace(hybrid_run.steps[0], decision=decision, loss=math.nan)
    steps = written_steps(tmp_path, [step])
    assert steps.decisions == ((0, decision),)
    assert json.loads(file.read_text())["loss"] is None
    assert np.isnan(steps.loss).all()


def test_a_resumed_run_drops_the_steps_that_it_repeats(file, tmp_path, hybrid_run) -> None:
    write_steps(file, hybrid_run.steps[:50])
    with file.open("a") as cut_off:
        cut_off.write('{"global_step": 50, "ep')
    write_steps(file, hybrid_run.steps[30:40])
    assert numbers(file) == list(range(40))
    assert [path.name for path in tmp_path.iterdir()] == ["steps.jsonl"]


def test_lines_cut_off_by_a_crash_are_left_out(file: Path, hybrid_run: Any) -> None:
    assert len(read_steps(file, num_devices=2)) == 0
    write_steps(file, hybrid_run.steps[:3])
    file.write_text(file.read_text()[:-20])
    assert read_steps(file, num_devices=2).number.tolist() == [0, 1]
    assert len(read_steps(file, num_devices=3)) == 0


def test_steps_of_a_long_run(file: Path, hybrid_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(file, hybrid_run.steps)
    monkeypatch.setattr(steps_file, "_MAX_STEPS", 13)
    steps = read_steps(file, num_devices=2)
    assert steps.number.tolist() == list(range(0, 90, 7))
    assert steps.stages.shape == (13, 2, len(STAGES))
    assert [number for number, _ in steps.decisions] == [8, 16, 24]


def test_lines_are_not_late(file: Path, hybrid_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(steps_file.time, "monotonic", lambda: clock[0])
    log = StepLog(file)
    log.add(hybrid_run.steps[0])
    assert not file.exists()
    clock[0] = 1.1
    log.add(hybrid_run.steps[1])
    assert numbers(file) == [0, 1]


def test_a_full_disk_is_told_with_the_file(file: Path, hybrid_run: Any) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    log = StepLog(file)
    log.add(hybrid_run.steps[0])
    file.symlink_to("/dev/full")
    with pytest.raises(OSError, match=str(file)) as error:
        log.flush()
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    "change",
    [
        {"global_step": "0"},
        {"global_step": 2**63},
        {"seconds": None},
        {"devices": [5, 5]},
        *(
            {"devices": [device(**changes)] * 2}
            for changes in (
                {"seeds": -1},
                {"threads": {"sample": 1, "load": 1, "sync": 1}},
                {"stage_s": {"load": None}},
                {"stage_s": {"load": 1e300}},
                {"traffic": {"rows": {"link_bytes": 0.5}}},
                {"traffic": {"rows": {"link_bytes": 2**62}}},
            )
        ),
    ],
)
def test_lines_that_are_no_steps(file: Path, hybrid_run: Any, change: dict[str, Any]) -> None:
    write_steps(file, hybrid_run.steps[:2])
    first, second = file.read_text().splitlines()
    file.write_text(json.dumps(json.loads(first) | change) + f"\n{second}\n")
    assert read_steps(file, num_devices=2).number.tolist() == [1]
    write_steps(file, [hybrid_run.steps[2]])
    assert numbers(file) == [1, 2]


def test_the_lines_that_others_are_damaged_from_are_steps(file: Path, hybrid_run: Any) -> None:
    write_steps(file, hybrid_run.steps[:1])
    line = json.loads(file.read_text())
    most = {"rows": {"link_bytes": 2**62 - 1}, "lists": {"link_bytes": 2**62 - 1}}
    file.write_text(json.dumps(line | {"devices": [device(), device(traffic=most)]}) + "\n")
    assert read_steps(file, num_devices=2).link_bytes.tolist() == [[0, 2**63 - 2]]


def test_bytes_that_are_no_lines_are_left_out(file: Path, hybrid_run: Any) -> None:
    write_steps(file, hybrid_run.steps[:1])
    good = file.read_bytes()
    file.write_bytes(b"\xff\x00\n[]\n5\n" + b"[" * 100_000 + b"\n" + b"9" * 5000 + b"\n" + good)
    assert read_steps(file, num_devices=2).number.tolist() == [0]


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path, hybrid_run: Any) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("steps.jsonl", ".steps.jsonl.tmp", "summary.json", ".summary.json.tmp"):
        (run / name).symlink_to(elsewhere)
    write_steps(run / "steps.jsonl", hybrid_run.steps[:1])
    write_json(run / "summary.json", {"a": 1})
    assert elsewhere.read_text() == "mine"
    assert numbers(run / "steps.jsonl") == [0]
    assert json.loads((run / "summary.json").read_text()) == {"a": 1}
