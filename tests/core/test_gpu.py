import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from one_process import run_commands

import gnnscale
from gnnscale.core.gpu import Gpu, visible

PACKAGE = Path(gnnscale.__file__).parent
#: What computes on a GPU, in a separate process, or in the user's.
USES_CUDA = ("backend/cuda/", "api/loader/", "features/unified")
#: Describes the GPUs with each of some sets of variables.
ASK = """
import json, os, sys
from dataclasses import asdict
from gnnscale.core.gpu import NvmlError, find_gpus
for variables in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        print(json.dumps(asdict(find_gpus())))
    except NvmlError as error:
        print(json.dumps(str(error)))
    for name in variables:
        os.environ.pop(name)
    os.environ.update(before)
"""


def asked(environment: dict[str, str], *variables: dict[str, str]) -> list[Any]:
    command = [sys.executable, "-c", ASK, json.dumps(variables)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.long
def test_gpus_are_described_without_cuda(driver: dict[str, str]) -> None:
    answers = [{"GNNSCALE_TEST_NVML": name} for name in ("taken", "shared", "broken")]
    found, taken, shared, broken, hidden = asked(
        driver, {}, *answers, {"CUDA_VISIBLE_DEVICES": "GPU-ab"}
    )
    assert (found["driver"], found["cuda"]) == ("580.65.06", [13, 0])
    first, second = found["devices"]
    assert (first["index"], first["name"], first["uuid"]) == (0, "NVIDIA H100", "GPU-aa-0")
    assert (first["memory"], second["free"]) == (80 << 30, 20 << 30)
    assert first["capability"] == [9, 0]
    assert [each["is_busy"] for each in taken["devices"]] == [False, True]
    assert [(each["memory"], each["free"]) for each in shared["devices"]] == [(None, None)] * 2
    assert hidden["devices"] == [second]
    assert "NVML reports: Driver Not Loaded" in broken
    (nothing,) = asked({**driver, "LD_LIBRARY_PATH": ""}, {})
    assert "there is no NVIDIA driver" in nothing


def gpu(index: int) -> Gpu:
    memory = {"memory": 2, "free": 1}
    uuid = f"GPU-{index}f"
    return Gpu(index=index, name="A", uuid=uuid, capability=(8, 0), is_busy=False, **memory)


def test_gpus_that_are_hidden() -> None:
    for wanted, found in (
        *[(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), (" 1 , GPU-2", [1, 2])],
        *[("0,7,1", [0]), ("1,1", [1]), ("GPU-", []), ("-1", []), ("²", [])],
    ):
        assert [each.index for each in visible([gpu(i) for i in range(3)], wanted)] == found


#: What shows that the library notes who initialises CUDA.
INITIALISE = """
import ctypes, os
assert not os.path.exists(os.environ["GNNSCALE_TEST_CUDA_LOG"])
ctypes.CDLL("libcuda.so.1").cuInit(0)
"""


@pytest.mark.integration
def test_commands_do_not_initialise_cuda(driver, write_figures, tmp_path) -> None:
    tiny = ["dataset.num_vertices=600", "dataset.num_edges=3000", "epochs=1", "num_threads=2"]
    home = write_figures(tmp_path / "home")
    own = {"GNNSCALE_HOME": str(home), "GNNSCALE_TEST_CUDA_LOG": str(tmp_path / "log")}
    commands = [
        ["doctor"],
        ["train", *tiny, "device_plan=cpu_x2", f"hydra.run.dir={tmp_path / 'run'}"],
        ["partition", *tiny[:2], "partitioner=hash"],
        ["plan-cache", *tiny[:2], "device_plan=emulated_x4", "cache_planner=pagraph"],
    ]
    ran = run_commands(commands, then=INITIALISE, env=driver | own, cwd=tmp_path)
    assert "NVIDIA H100" in ran.stdout
    assert (tmp_path / "log").read_text() == "cuInit\n"


@pytest.mark.long
def test_only_what_computes_on_a_gpu_asks_torch_of_cuda() -> None:
    """torch.cuda may initialise CUDA, after which a process must not fork."""
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        text = file.read_text()
        if place.startswith(USES_CUDA) or ".cuda" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            asks = isinstance(node, ast.Attribute) and node.attr == "cuda"
            assert not (asks and ast.unparse(node) == "torch.cuda"), f"{place}:{node.lineno}"
