import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line
from ptx import ptx_of

from gnnscale.backend import DeviceError
from gnnscale.backend.cuda import kernels
from gnnscale.backend.cuda.host_kernels import HostKernels

#: Of A100, H100, B200 and RTX 50.
ARCHITECTURES = (
    pytest.param("sm_80", marks=pytest.mark.integration),
    "sm_90",
    pytest.param("sm_100", marks=pytest.mark.integration),
    pytest.param("sm_120", marks=pytest.mark.integration),
)
FILES = kernels.kernel_files(kernels.sources())
SCALE = """
#include "gnnscale_cuda/device.hpp"
extern "C" __global__ void scale(const uint4* in, uint4* out) {
  out[threadIdx.x] = in[threadIdx.x];
}
GNNSCALE_EXPORT(scale);
"""


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    return file


@cache
def log_of(file: Path, architecture: str) -> str:
    return kernels.compile_file(file, architecture).log


@cache
def by_kernel(stem: str, architecture: str) -> dict[str, str]:
    (file,) = (each for each in FILES if each.stem == stem)
    texts = ptx_of(file, architecture).split(".visible .entry ")[1:]
    return {text[: text.index("(")]: text for text in texts}


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kernels_compile_without_spills(file: Path, architecture: str) -> None:
    log = log_of(file, architecture)
    entries = re.findall(r"Compiling entry function '(\w+)'", log)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", log)
    assert len(entries) == len(frames) > 0
    assert set(frames) == {("0", "0", "0")}


@pytest.mark.long
def test_every_kernel_is_on_the_host_too() -> None:
    logs = (log_of(file, "sm_90") for file in FILES)
    entries = [name for log in logs for name in re.findall(r"entry function '(\w+)'", log)]
    assert sorted(entries) == sorted(HostKernels().names)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["compute_80", "compute_90"])
def test_rows_are_read_by_128_bits(architecture: str) -> None:
    texts = by_kernel("gather", architecture)
    assert len(texts) == 21
    for name, text in texts.items():
        loads = re.findall(r"ld\.global\.cs(?:\.v[24])?\.[a-z]+\d+", text)
        words = {"16": "v4", "8": "v2"}.get(name.split("_")[-2])
        if words is not None:
            assert loads, name
            assert all(words in load for load in loads), name


@pytest.mark.long
def test_aggregated_rows_are_read_by_128_bits_and_written_so() -> None:
    texts = by_kernel("aggregate", "compute_90")
    text = texts["aggregate_4_4"]
    assert text.count("ld.global.v4.f32") >= 4  # of several edges at once
    assert "st.global.v4.u32" in text
    assert "ld.global.v2.u32" in texts["aggregate_2_4"]  # four columns of two bytes


@pytest.mark.long
def test_products_and_sums_are_rounded_one_by_one() -> None:
    for stem in ("aggregate", "attention", "coefficients", "activation"):
        for name, text in by_kernel(stem, "compute_90").items():
            assert not re.search(r"\bfma\.rn\.f(32|64)", text), name


def test_machine_code_is_kept(scale: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    first = kernels.cubin(scale, "sm_90")
    assert first[:4] == b"\x7fELF"
    (kept,) = (tmp_path / "home" / "cuda").iterdir()
    changed = kept.stat().st_mtime_ns
    assert kernels.cubin(scale, "sm_90") == first
    assert kept.stat().st_mtime_ns == changed
    scale.write_text(SCALE.replace("x] = in", "x & 7] = in"))
    assert kernels.cubin(scale, "sm_90") != first


def test_what_nvrtc_refuses_is_one_line(scale: Path) -> None:
    with one_line("does not know sm_10", "newer nvidia-cuda-nvrtc"):
        kernels.compile_file(scale, "sm_10")
    scale.write_text("int f() { return missing; }\n")
    with one_line("scale.cu", "NVRTC refuses the kernels", "missing"):
        kernels.compile_file(scale, "sm_90")


def test_without_cuda_core(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    kernels.load_core.cache_clear()
    with one_line("needs cuda-core", "pip install '.[cuda]'", "device_plan=cpu"):
        kernels.load_core()


def test_without_nvrtc(monkeypatch: Any) -> None:
    import cuda.pathfinder as pathfinder

    def none(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(f"no {name}")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", none)
    kernels.load_core.cache_clear()
    with one_line("needs NVRTC", "device_plan=cpu"):
        kernels.load_core()
    kernels.load_core.cache_clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_kernel_runs_on_the_gpu(scale: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "kernel_files", lambda root: (scale,))
    opened = kernels.CompiledKernels(0)
    numbers = torch.arange(1024, dtype=torch.int32, device=opened.device)
    copied = torch.zeros_like(numbers)
    opened.launch("scale", numbers, copied, grid=1)
    torch.testing.assert_close(copied, numbers, rtol=0, atol=0)
    with pytest.raises(DeviceError, match="no kernel is called shrink"):
        opened.launch("shrink", np.int32(1), grid=1)
