from collections.abc import Callable
from typing import Any

import pytest

from gnnscale.report.formatting import (
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


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (milliseconds, {0.00123: "1.23", 0.0123: "12.3", 0.123: "123", 1.23: "1,230", None: "–"}),
        (count, {None: "–", 3: "3", 12345.6: "12,346", 18.178: "18.18", 0.000281: "0.000281"}),
        (gib, {None: "–", 0: "0.00 GiB", 3 << 29: "1.50 GiB", 5 << 20: "5.0 MiB"}),
        (gib, {30 << 10: "30.0 KiB"}),
        (short, {0: "0", 9_999: "9,999", 10_000: "10.0k", 99_949: "99.9k", 99_950: "100k"}),
        (short, {999_499: "999k", 999_500: "1.00M", 1_234_567: "1.23M", 3 * 10**12: "3.00T"}),
        (percent, {0.284: "28 %", None: "–"}),
        (signed_percent, {-0.121: "-12 %", 0.05: "+5 %"}),
        (duration, {0.00123: "1.23 ms", 0.5: "500 ms", 1: "1.00 s", 9.99: "9.99 s"}),
        (duration, {9.996: "10.0 s", 99.96: "100 s", 1234.4: "1,234 s"}),
    ],
)
def test_figures_by_hand(shown: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {figure: shown(figure) for figure in texts} == texts


def test_figures_are_as_real_as_the_least_real_of_them() -> None:
    assert least_real([]) == least_real(["measured", "measured"]) == "measured"
    assert least_real(["measured", "emulated", "measured"]) == "emulated"
    assert least_real(["csim", "emulated", "measured"]) == "csim"
    assert least_real(["csim", "guessed"]) == "guessed"


def test_labels_and_stages() -> None:
    assert device_label("host", "cpu", "measured") == "host (cpu)"
    assert device_label("emulated:1", "emulated", "emulated") == "emulated:1"
    assert device_label("U250", "emulated", "emulated") == "U250 (emulated)"
    assert device_label("fpga:0", "fpga", "csim") == "fpga:0 (csim)"
    assert device_label("U250", "fpga", "csim") == "U250 (fpga csim)"
    assert kind_label("fpga", "csim") == "fpga csim"
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
