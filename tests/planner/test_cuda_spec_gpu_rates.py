from dataclasses import replace
from typing import Any

import pytest
from card_figures import RATES

from gnnscale.planner import Cuda
from gnnscale.planner.cuda_spec import CardRates, load_or_measure_rates


def test_rates_of_widths_and_devices() -> None:
    for row_bytes, rate in ((1, 1e10), (64, 1e10), (128, 2.5e10), (256, 4e10), (4096, 4e10)):
        assert RATES.link_bandwidth(row_bytes) == pytest.approx(rate)
    found = RATES.of(Cuda(index=1, macs_per_s=7.0), row_bytes=256)
    rates = {"memory_bandwidth": 1e12, "link_bandwidth": 4e10, "sampled_edges_per_s": 3e9}
    assert found == Cuda(index=1, macs_per_s=7.0, **rates, launch_s=1e-4)
    with pytest.raises(ValueError, match="expected at least one row width"):
        replace(RATES, link=())


def test_a_card_is_measured_once_for_each_driver(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    calls: list[Any] = []

    def measure() -> CardRates:
        calls.append(None)
        return replace(RATES, macs_per_s=float(len(calls)))

    first = load_or_measure_rates("GPU-1/x", "600.1", measure)
    assert load_or_measure_rates("GPU-1/x", "600.1", measure) == first
    assert load_or_measure_rates("GPU-1/x", "600.2", measure).macs_per_s == 2
    assert load_or_measure_rates("GPU-2", "600.1", measure).macs_per_s == 3


@pytest.mark.parametrize("content", ["", "{}", "[1", '{"macs_per_s": -1}', "\0" * 70000])
def test_what_is_damaged_is_measured_again(tmp_path, monkeypatch, content) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    file = tmp_path / "cuda" / "rates-GPU-1-600.1.json"
    file.parent.mkdir()
    file.write_text(content)
    assert load_or_measure_rates("GPU-1", "600.1", lambda: RATES) == RATES
    assert load_or_measure_rates("GPU-1", "600.1", lambda: pytest.fail("it was kept")) == RATES
