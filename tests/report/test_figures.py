from __future__ import annotations

from typing import Any

import pytest

from gnnscale.report.figures import (
    count,
    device_label,
    duration,
    gib,
    kind_label,
    late_sentences,
    least_real,
    milliseconds,
    percent,
    present_stages,
    short,
    signed_percent,
)


def test_figures_by_hand() -> None:
    assert [milliseconds(value) for value in (0.00123, 0.0123, 0.123, 1.23, None)] == [
        *("1.23", "12.3", "123", "1,230", "–")
    ]
    assert [count(value) for value in (None, 3, 12345.6, 18.178, 0.5, 0.000281)] == [
        *("–", "3", "12,346", "18.18", "0.500", "0.000281")
    ]
    assert [gib(value) for value in (None, 0, 3 << 29, 5 << 20, 30 << 10)] == [
        *("–", "0.00 GiB", "1.50 GiB", "5.0 MiB", "30.0 KiB")
    ]
    numbers = (0, 9_999, 10_000, 99_949, 99_950, 999_499, 999_500, 1_234_567, 3 * 10**12)
    assert [short(number) for number in numbers] == [
        *("0", "9,999", "10.0k", "99.9k", "100k", "999k", "1.00M", "1.23M", "3.00T")
    ]
    assert [percent(0.284), percent(None)] == ["28 %", "–"]
    assert [signed_percent(-0.121), signed_percent(0.05)] == ["-12 %", "+5 %"]
    assert [duration(value) for value in (0.00123, 0.5, 1, 9.94, 9.96, 1234.4)] == [
        *("1.23 ms", "500 ms", "1.0 s", "9.9 s", "10 s", "1,234 s")
    ]


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
