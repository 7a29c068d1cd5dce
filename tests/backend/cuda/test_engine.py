import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nvidia_driver import driver_in

#: Answers each case in a process whose driver is the tests' own, and whose torch has CUDA.
PROGRAM = """
import json, os, sys, torch
from gnnscale.backend.cuda import engine
from gnnscale.core import ConfigError
engine.load_core = lambda: None
for cuda, index, memory, changes in json.loads(sys.argv[1]):
    torch.version.cuda = cuda
    os.environ.update(changes)
    try:
        print(engine.check_gpu(index, memory_bytes=memory).uuid)
    except ConfigError as error:
        print(error)
    for name in changes:
        del os.environ[name]
"""
NVML, VISIBLE = "GNNSCALE_TEST_NVML", "CUDA_VISIBLE_DEVICES"
#: CUDA of torch, number, bytes, the environment, and what is answered.
CASES: list[tuple[str | None, int, int | None, dict[str, str], list[str]]] = [
    ("13.0", 0, None, {}, ["GPU-aa-0"]),
    ("12.8", 1, 20 << 30, {}, ["GPU-ab-1"]),
    ("13.0", 0, None, {VISIBLE: "1"}, ["GPU-ab-1"]),
    ("13.0", 0, None, {NVML: "broken"}, ["no GPU here", "Driver Not Loaded", "device_plan=cpu"]),
    ("13.0", 0, None, {NVML: "none"}, ["the driver finds none", "device_plan=cpu"]),
    ("13.0", 0, None, {VISIBLE: "-1"}, ["CUDA_VISIBLE_DEVICES=-1 leaves none"]),
    ("13.0", 2, None, {}, ["GPU 2: expected 0 to 1"]),
    (None, 0, None, {}, ["is built without CUDA", "device_plan=cpu"]),
    ("13.0", 0, None, {NVML: "old"}, ["up to 11.8", "built for CUDA 13.0", "newer driver"]),
    ("13.0", 1, None, {NVML: "taken"}, ["GPU 1", "accepts no further process"]),
    ("13.0", 1, 21 << 30, {}, ["memory_bytes=22548578304", "21474836480, the free bytes"]),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: Any) -> dict[str, str]:
    return driver_in(tmp_path_factory.mktemp("driver"))


def checked(environment: dict[str, str], cases: list[Any]) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(cases)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@pytest.mark.long
def test_what_is_missing_is_one_line(driver: dict[str, str]) -> None:
    lines = checked(driver, [case[:-1] for case in CASES])
    for line, (*_, words) in zip(lines, CASES, strict=True):
        for word in words:
            assert word in line
    assert all(line.startswith("device_plan: ") for line in lines[3:])
    assert not Path(driver["GNNSCALE_TEST_CUDA_LOG"]).exists()


@pytest.mark.long
def test_without_a_driver(driver: dict[str, str]) -> None:
    (line,) = checked(driver | {"LD_LIBRARY_PATH": ""}, [CASES[0][:-1]])
    assert line == (
        "device_plan: no GPU here: there is no NVIDIA driver (libnvidia-ml.so.1); device_plan=cpu "
        "trains on the processor"
    )
