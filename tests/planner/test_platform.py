import math
from dataclasses import replace
from pathlib import Path

import pytest
from one_line import one_line
from round_figures import platform, processor

from gnnscale.core.errors import ConfigError
from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.platform import Platform, ThisMachine, platform_file
from gnnscale.planner.processor import shared_rate

ACCELERATOR = {"kind": "emulated", "name": "x", "macs_per_s": 1e9, "memory_bytes": 100}
ACCELERATOR |= {"memory_bandwidth": 1e9}


@pytest.mark.parametrize(
    ("threads", "active", "rate"),
    [(1, 1, 10), (2, 2, 16), (1, 2, 8), (1, 4, 4), (4, 4, 16), (1, 1.5, 13 / 1.5), (2, 1, 16)],
)
def test_threads_share_the_rate_of_all_that_are_active(threads, active, rate) -> None:
    assert shared_rate([1, 2], [10, 16], threads, active) == pytest.approx(rate)


def test_what_workers_share() -> None:
    rates = {"macs_per_s": [10.0, 12.0], "memory_bandwidth": [10.0, 12.0]}
    host = processor(**rates, compute_contention=1.25, memory_contention=5.0)
    assert host.rate("macs_per_s", 1, 1) == 10
    assert host.rate("macs_per_s", 1, 1.5) == pytest.approx(10 / 1.125)
    assert host.rate("macs_per_s", 1, 2) == 8
    assert host.rate("macs_per_s", 1, 4) == 4
    # Two threads of one worker make 12; as much of it is left to one of two workers.
    assert host.rate("memory_bandwidth", 1, 2) == 6
    assert host.rate("macs_per_s", 2, 2) == 12
    assert math.isinf(shared_rate([1, 4], [math.inf, math.inf], 2, 3))
    assert shared_rate([1, 128], [1e300, 4e9], 128, 127.99999999999999) >= 4e9
    # Messages take what sums do unless that is known.
    figures = {"sync_latency_s": 1e-4, "sync_bandwidth": 5e9}
    assert processor(**figures).sharing.messages == (1e-4, 5e9)
    known = {"message_latency_s": 0.0, "message_bandwidth": 1e9}
    assert processor(**figures, **known).sharing.messages == (0.0, 1e9)
    host = processor(straggler_wait=0.05)
    assert host.sharing.straggler_seconds(2.0, 1) == 0
    assert host.sharing.straggler_seconds(2.0, 2) == pytest.approx(0.1)
    # The largest of two normal variables is expected 0.564 deviations above their mean, that of
    # four 1.029 and that of eight 1.424.
    assert host.sharing.straggler_seconds(2.0, 4) == pytest.approx(0.1 * 1.029 / 0.564, rel=0.05)
    assert host.sharing.straggler_seconds(2.0, 8) == pytest.approx(0.1 * 1.424 / 0.564, rel=0.05)
    assert processor().sharing.straggler_seconds(2.0, 8) == 0


def test_an_all_reduce_takes_as_long_for_more_workers() -> None:
    sharing = processor(sync_latency_s=1.0, sync_bandwidth=1e6).sharing
    for num_bytes, workers, seconds in ((4e6, 1, 0), (4e6, 2, 5), (4e6, 4, 5), (0, 2, 1)):
        assert sharing.sync_seconds(num_bytes, workers) == pytest.approx(seconds)


def test_figures_and_accelerators_that_cannot_be() -> None:
    for fields, message in (
        ({"threads": [1, 1]}, "processor.threads=[1, 1]: expected ascending"),
        ({"cores": 4, "threads": [1, 2]}, "expected cores=4 at the end"),
        ({"macs_per_s": [1.0]}, "processor.rates.macs_per_s=[1.0]: expected a value for each of"),
        ({"macs_per_s": [1.0, 0.0]}, "processor.rates.macs_per_s=[1.0, 0.0]: expected numbers"),
        ({"load_s": math.inf}, "processor.load_s=inf: expected seconds from 0 to 1e+09"),
        ({"update_bandwidth": 1e-300}, "update_bandwidth=1e-300: expected numbers from 1e-09 on"),
        ({"sync_bandwidth": math.nan}, "processor.sharing.sync_bandwidth=nan: expected numbers"),
        ({"message_bandwidth": 0.0}, "processor.sharing.message_bandwidth=0.0: expected numbers"),
    ):
        with one_line(message):
            processor(**fields)
    for fields, message in (
        ({"num_accelerators": -1, "accelerator": ACCELERATOR}, "num_accelerators=-1"),
        ({"num_accelerators": 1}, "platform.num_accelerators=1: expected 0"),
        ({"num_accelerators": 1, "accelerator": {"kind": "emulated"}}, "platform.accelerator"),
    ):
        with pytest.raises(ConfigError, match=message):
            Platform(name="x", processor=processor(), **fields)


def test_devices_of_a_platform() -> None:
    machine = Platform(name="x", processor=processor(), accelerator=ACCELERATOR, num_accelerators=2)
    assert [device.name for device in machine.devices(2)] == ["cpu", "x:0", "x:1"]
    assert [device.kind for device in machine.devices(1)] == ["cpu", "emulated"]
    assert len(machine.devices(0)) == 1
    # Peaks may be numbers in quotes.
    parts = Efficiency(processor=0.5, memory=0.5, accelerator=0.25, link=0.5)
    quoted = replace(machine, accelerator=ACCELERATOR | {"macs_per_s": "8e12"}, efficiency=parts)
    assert quoted.effective().accelerator["macs_per_s"] == 2e12


def test_figures_are_written_and_read_again(tmp_path, monkeypatch) -> None:
    before = platform(rows_per_s=[math.inf, math.inf])
    file = tmp_path / "new" / "platform.yaml"
    before.write(file)
    assert ThisMachine(file=file).open() == before
    assert list(file.parent.iterdir()) == [file]
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    message = f"{platform_file()}: no rates of this machine; run gnnscale doctor calibrate=true"
    with one_line(begins=message):
        ThisMachine().open()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *[("", ""), ("- 1", ""), ("name: x\nprocesor: {}\n", ""), ("{", ""), ("\x00", "")],
        ("name: x\nprocessor: 3\n", ""),
        # Figures of the former form.
        (
            "name: x\nprocessor: {name: x, memory_bandwidth: [1.0]}\n",
            "did you mean 'processor.rates.memory_bandwidth'?",
        ),
    ],
)
def test_figures_that_cannot_be_read(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text(text)
    with one_line(str(file), words, "calibrate=true again" if words else ""):
        ThisMachine(file=file).open()
