import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from round_figures import platform

from gnnscale.core.errors import ConfigError
from gnnscale.planner.calibration import calibrate
from gnnscale.planner.platform import (
    MachineIdentity,
    Platform,
    ThisMachine,
    estimate_file,
    platform_file,
    read_platform,
)
from gnnscale.training.planning import cost_estimates as kept
from gnnscale.training.planning.cost_estimates import this_machine

FIGURES = platform()


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Platform]:
    """What has been measured; each time the machine is a little faster."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    found: list[Platform] = []

    def estimate() -> Platform:
        faster = replace(FIGURES.processor, update_s=1 / (2 + len(found)))
        here = MachineIdentity.here()
        found.append(replace(FIGURES, name="estimated", processor=faster, measured_on=here))
        return found[-1]

    monkeypatch.setattr(calibrate, "estimate", estimate)
    # Whatever else this machine does meanwhile is nobody's business here.
    monkeypatch.setattr(kept, "busy_seconds", time.process_time)
    return found


def elsewhere() -> Platform:
    here = MachineIdentity.here()
    return replace(FIGURES, measured_on=replace(here, torch="0.1", cores=here.cores + 1))


def test_an_estimate_is_measured_once(measured: list[Platform]) -> None:
    assert this_machine() == this_machine() == measured[0]
    assert len(measured) == 1
    assert read_platform(estimate_file()) == measured[0]


def test_a_disturbed_estimate_is_not_kept(measured, monkeypatch) -> None:
    clock = iter([0.0, 1000.0, 1000.0, 1000.0])  # seconds that others have had
    with monkeypatch.context() as others:
        others.setattr(kept, "busy_seconds", lambda: time.process_time() + next(clock))
        assert this_machine() == measured[0]
        assert not estimate_file().exists()
        assert this_machine() == measured[1]
    assert this_machine() == read_platform(estimate_file()) == measured[1]


@pytest.mark.parametrize(
    "change", [{"processor": "another"}, {"cores": 99}, {"memory_gib": 7}, {"torch": "0.1"}]
)
def test_a_machine_that_has_changed_is_measured_again(measured, change) -> None:
    other = replace(MachineIdentity.here(), **change)
    replace(this_machine(), measured_on=other).write(estimate_file())
    assert this_machine() == measured[1]
    assert this_machine() == measured[1]
    assert len(measured) == 2


def test_a_damaged_estimate_is_measured_again(measured: list[Platform]) -> None:
    this_machine()
    estimate_file().write_text("name: [")
    assert this_machine() == measured[1] == read_platform(estimate_file())


def test_calibration_comes_first_but_not_that_of_another_machine(measured, caplog) -> None:
    mine = replace(FIGURES, measured_on=MachineIdentity.here())
    mine.write(platform_file())
    assert this_machine() == mine == ThisMachine().open()
    assert not measured
    elsewhere().write(platform_file())
    assert this_machine() == measured[0]
    cores = MachineIdentity.here().cores
    told = f"rates of another machine (cores {cores + 1}, here {cores}; torch 0.1, here "
    assert told in caplog.text
    with pytest.raises(ConfigError) as error:
        ThisMachine().open()
    assert f"{platform_file()}: {told}" in str(error.value)


def test_a_file_of_ones_own_is_used_and_told_of(tmp_path, caplog) -> None:
    file = tmp_path / "mine.yaml"
    FIGURES.write(file)
    assert ThisMachine(file=file).open() == FIGURES
    assert not caplog.text
    elsewhere().write(file)
    with caplog.at_level(logging.WARNING):
        assert ThisMachine(file=file).open() == elsewhere()
    assert f"{file}: rates of another machine (cores" in caplog.text


def test_a_home_that_cannot_be_written_to(measured, caplog) -> None:
    # A folder in the file's place stops root as well.
    estimate_file().mkdir(parents=True)
    assert this_machine() == measured[0]
    assert "the next run measures this machine again" in caplog.text
