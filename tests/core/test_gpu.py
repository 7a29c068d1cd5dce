"""GPUs by NVML's own library, of which the tests compile one that answers; CUDA is never begun."""

import ast
import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvidia_driver import driver_in

import gnnscale
from gnnscale.core.gpu import Gpu, visible

PACKAGE = Path(gnnscale.__file__).parent
#: What computes on a GPU, in a separate process, or in the user's.
USES_CUDA = ("backend/cuda/", "api/loader/", "features/unified")
ASK = "import json; from dataclasses import asdict; from gnnscale.core.gpu import *; "


@pytest.fixture(scope="module")
def driver(tmp_path_factory: Any) -> dict[str, str]:
    """The environment of a machine with a driver, which notes what CUDA is asked to do."""
    return driver_in(tmp_path_factory.mktemp("driver"))


def asked(environment: dict[str, str], **variables: str) -> Any:
    program = ASK + "print(json.dumps(asdict(find_gpus())))"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr.splitlines()[-1]


@pytest.mark.long
def test_gpus_are_described_without_cuda(driver: dict[str, str]) -> None:
    found = asked(driver)
    assert (found["driver"], found["cuda"]) == ("580.65.06", [13, 0])
    first, second = found["devices"]
    assert (first["index"], first["name"], first["uuid"]) == (0, "NVIDIA H100", "GPU-aa-0")
    assert (first["memory"], second["free"]) == (80 << 30, 20 << 30)
    assert first["capability"] == [9, 0]
    assert [each["taken"] for each in asked(driver, GNNSCALE_TEST_NVML="taken")["devices"]] == [
        False,
        True,
    ]
    shared = asked(driver, GNNSCALE_TEST_NVML="shared")["devices"]
    assert [(each["memory"], each["free"]) for each in shared] == [(None, None)] * 2
    (seen,) = asked(driver, CUDA_VISIBLE_DEVICES="GPU-ab")["devices"]
    assert seen == second


def test_what_nvml_does_not_answer_is_one_line(driver: dict[str, str]) -> None:
    assert "NVML reports: Driver Not Loaded" in asked(driver, GNNSCALE_TEST_NVML="broken")
    assert "there is no NVIDIA driver" in asked({**driver, "LD_LIBRARY_PATH": ""})


def gpu(index: int) -> Gpu:
    memory = {"memory": 2, "free": 1}
    uuid = f"GPU-{index}f"
    return Gpu(index=index, name="A", uuid=uuid, capability=(8, 0), taken=False, **memory)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , GPU-2", [1, 2]),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-", []),
        ("-1", []),
        ("²", []),
    ],
)
def test_gpus_that_are_hidden(wanted: str | None, found: list[int]) -> None:
    assert [each.index for each in visible([gpu(i) for i in range(3)], wanted)] == found


@given(st.text(alphabet="0123²٣GPU-f, ", max_size=12))
def test_no_gpu_is_seen_twice(wanted: str) -> None:
    found = [each.index for each in visible([gpu(i) for i in range(3)], wanted)]
    assert len(set(found)) == len(found) <= 3


def test_the_library_notes_who_initialises_cuda(driver: dict[str, str]) -> None:
    log = Path(driver["GNNSCALE_TEST_CUDA_LOG"]).with_name("counter")
    program = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    environment = driver | {"GNNSCALE_TEST_CUDA_LOG": str(log)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert log.read_text() == "cuInit\n"
    assert ctypes.sizeof(ctypes.c_void_p) == 8


@pytest.mark.integration
def test_commands_do_not_initialise_cuda(driver: dict[str, str], tmp_path: Path) -> None:
    tiny = ["dataset.num_vertices=600", "dataset.num_edges=3000", "epochs=1", "num_threads=2"]
    environment = driver | {"GNNSCALE_HOME": str(tmp_path)}
    for command in (
        ["doctor"],
        ["train", *tiny, "device_plan=cpu_x2", f"hydra.run.dir={tmp_path / 'run'}"],
        ["partition", *tiny[:2], "partitioner=hash"],
        ["plan-cache", *tiny[:2], "device_plan=emulated_x4", "cache_planner=pagraph"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "gnnscale", *command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        if command == ["doctor"]:
            assert "NVIDIA H100" in ran.stdout
    assert not Path(driver["GNNSCALE_TEST_CUDA_LOG"]).exists()


@pytest.mark.long
def test_only_what_computes_on_a_gpu_asks_torch_of_cuda() -> None:
    """torch.cuda may initialise CUDA, after which a process must not fork."""
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        if place.startswith(USES_CUDA):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            asks = isinstance(node, ast.Attribute) and node.attr == "cuda"
            assert not (asks and ast.unparse(node) == "torch.cuda"), f"{place}:{node.lineno}"
