import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnscale.core.errors import GraphError
from gnnscale.core.hardware import usable_cores
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.training.setup import open_run, with_detected_devices


@pytest.fixture
def warnings_of(settings: Any, tmp_path: Path, caplog: Any) -> Iterator[Callable[..., list[str]]]:
    """What a run warns of before it finds that its graph can have no store."""
    (tmp_path / "file").touch()
    nowhere = f"dataset.store={tmp_path}/file/store"
    threads = torch.get_num_threads()

    def opened(*overrides: str) -> list[str]:
        caplog.clear()
        config = settings(*overrides, nowhere)
        with pytest.raises(GraphError), open_run(config, tmp_path, {}, SINGLE_PROCESS):
            pass
        return list(caplog.messages)

    yield opened
    torch.set_num_threads(threads)


def test_more_workers_than_threads_are_warned_of(warnings_of) -> None:
    num_threads = min(2, usable_cores())
    (line,) = warnings_of("device_plan=cpu_x4", f"num_threads={num_threads}")
    for part in ("4 workers", f"num_threads={num_threads}", f"{usable_cores()} cores"):
        assert part in line
    assert not warnings_of("device_plan=cpu", f"num_threads={usable_cores()}")
    # And more threads than cores.
    too_many = (os.cpu_count() or 1) + 1
    (line,) = warnings_of("device_plan=cpu", f"num_threads={too_many}")
    assert f"num_threads={too_many}: this process may use {usable_cores()} cores" in line


def test_options_name_the_gpus_that_were_found(settings, monkeypatch) -> None:
    monkeypatch.setattr("gnnscale.planner.device_plan.find_all_gpus", lambda: 2)
    config = settings("device_plan=cuda_all", "device_plan.options={host_driven:true}")
    options = {"seed": 0, "device_plan": {"devices": [], "split": None}}
    two = with_detected_devices(config, options)
    assert two == {"seed": 0, "device_plan": {"devices": ["cuda:0", "cuda:1"], "split": None}}
    monkeypatch.setattr("gnnscale.planner.device_plan.find_all_gpus", lambda: 1)
    assert with_detected_devices(config, options) != two  # another plan than before
    assert with_detected_devices(settings(), options) is options
