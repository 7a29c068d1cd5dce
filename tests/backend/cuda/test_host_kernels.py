import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line

from gnnscale.backend import DeviceError
from gnnscale.backend.cuda import host_kernels as host
from gnnscale.backend.cuda import kernels
from gnnscale.core.errors import ConfigError

SCALE = """
#include "gnnscale_cuda/device.hpp"
extern "C" __global__ void scale(int64_t n, const float* in, float* out, float by) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = in[i] * by;
  }
}
GNNSCALE_EXPORT(scale);
extern "C" __global__ void fail(int number) {
  if (number == 7) return;
  if (threadIdx.x == 0) __syncwarp();
  if (threadIdx.x != 0) __syncthreads();
}
GNNSCALE_EXPORT(fail);
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: Any) -> Path:
    """The sources, with kernels of the test's own in place of the project's."""
    root: Path = tmp_path_factory.mktemp("sources") / "cuda"
    root.mkdir()
    for name in ("include", "host"):
        (root / name).symlink_to(kernels.sources() / name)
    (root / "native").symlink_to(kernels.native_headers(kernels.sources()))
    (root / "kernels").mkdir()
    (root / "kernels" / "scale.cu").write_text(SCALE)
    return root


@pytest.fixture(scope="module")
def home(root: Path, tmp_path_factory: Any) -> Iterator[Path]:
    """A home for all tests, so that the sources are compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "sources", lambda: root)
        yield tmp_path_factory.mktemp("home")


def test_a_library_is_kept_and_its_kernels_run_by_name(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(home))
    opened, first = host.HostKernels(num_threads=2), host.library()
    changed = first.stat().st_mtime_ns
    assert host.library() == first
    assert first.stat().st_mtime_ns == changed
    assert [each.name for each in first.parent.iterdir()] == [first.name]
    assert opened.names == ("scale", "fail")
    numbers, scaled = torch.arange(1000, dtype=torch.float32), torch.zeros(1000)
    opened.launch("scale", np.int64(1000), numbers, scaled, np.float32(2.5), grid=3)
    torch.testing.assert_close(scaled, numbers * 2.5, rtol=0, atol=0)
    for name, arguments, message in (
        ("shrink", (), "no kernel is called shrink"),
        ("fail", (), "fail: takes 1 arguments, 0 given"),
        ("fail", (np.int64(1),), "fail: argument 0 has 4 bytes, 8 given"),
        ("fail", (np.int32(1),), "fail: block 0: its threads wait in vain"),
    ):
        with one_line(message, error=DeviceError):
            opened.launch(name, *arguments, grid=1, block=64)
    # Nobody else may have written what is loaded.
    first.chmod(stat.S_IMODE(first.stat().st_mode) | stat.S_IWOTH)
    with pytest.raises(ConfigError, match="compiled kernels are loaded only if nobody but you"):
        host.library()


def test_one_compiles_while_others_wait(root: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "sources", lambda: root)
    compiled: list[Path] = []

    def compile_slowly(_: Path, __: Any, into: Path) -> None:
        time.sleep(0.2)
        compiled.append(into)
        into.touch(mode=0o644)

    monkeypatch.setattr(host, "_compile", compile_slowly)
    with ThreadPoolExecutor(3) as pool:
        found = [each.result() for each in [pool.submit(host.library) for _ in range(3)]]
    assert compiled == [found[0]]
    assert set(found) == {found[0]}


@pytest.mark.long
def test_what_the_compiler_refuses_is_one_line(root: Path, monkeypatch, tmp_path: Path) -> None:
    broken = tmp_path / "cuda"
    broken.mkdir()
    for each in root.iterdir():
        (broken / each.name).symlink_to(each)
    (broken / "kernels").unlink()
    (broken / "kernels").mkdir()
    (broken / "kernels" / "broken.cu").write_text("int f() { return missing; }\n")
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kernels, "sources", lambda: broken)
    with one_line("broken.cu:1", "missing"):
        host.library()
    kept = sorted(os.listdir(tmp_path / "home" / "cuda"))
    assert [Path(each).suffix for each in kept] == [".log"]


def test_without_a_compiler(root: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match="running CUDA kernels on the host needs a C"):
        host.library()
