from __future__ import annotations

import pytest

from gnnscale.report.devices import device_label, kind_label, least_real, present_stages


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
