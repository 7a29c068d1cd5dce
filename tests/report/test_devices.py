from __future__ import annotations

from typing import Any

import pytest

from gnnscale.report.devices import (
    device_label,
    kind_label,
    late_sentences,
    least_real,
    present_stages,
)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], "measured"),
        (["measured", "measured"], "measured"),
        (["measured", "emulated", "measured"], "emulated"),
        (["csim", "emulated", "measured"], "csim"),
        (["csim", "guessed"], "guessed"),
    ],
)
def test_figures_are_as_real_as_the_least_real_of_them(kinds: list[str], expected: str) -> None:
    assert least_real(kinds) == expected


def test_a_label_tells_the_kind_and_what_its_figures_are() -> None:
    assert device_label("cpu:0", "cpu", "measured") == "cpu:0"
    assert device_label("host", "cpu", "measured") == "host (cpu)"
    assert device_label("emulated:1", "emulated", "emulated") == "emulated:1"
    assert device_label("U250", "emulated", "emulated") == "U250 (emulated)"
    assert device_label("fpga:0", "fpga", "csim") == "fpga:0 (csim)"
    assert device_label("U250", "fpga", "csim") == "U250 (fpga csim)"
    assert kind_label("fpga", "csim") == "fpga csim"


def test_a_stage_is_present_where_one_device_has_it() -> None:
    cpu = {"sync": 0.0, "load": 1.0, "transfer": None, "exchange": None}
    accelerator = {"sync": None, "load": 1.0, "transfer": 2.0, "exchange": None}
    assert present_stages([cpu, accelerator]) == ("load", "transfer", "sync")
    assert present_stages([]) == ()


def test_a_late_host_is_told_in_words() -> None:
    devices: list[dict[str, Any]] = [
        {"name": "cpu:0", "counters": {}},
        {"name": "emulated:1", "counters": {"late_s": 0.0, "late_stages": 0.0, "late_steps": 0.0}},
        {"name": "emulated:2", "counters": {"late_s": 0.31, "late_stages": 14, "late_steps": 12}},
    ]
    assert late_sentences(devices, num_steps=1080) == [
        "emulated:2: the host was slower than the device that it emulates in 12 of 1,080 steps, by "
        "0.31 s in all; times of this device are too long by that"
    ]
