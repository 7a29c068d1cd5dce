import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.partition.nvlink import (
    MACHINES,
    disjoint_cliques,
    find_links,
    links_between,
    read_links,
)


def test_published_machines_have_the_papers_cliques() -> None:
    cliques = {machine: disjoint_cliques(find_links(machine)) for machine in MACHINES}
    assert cliques == {
        "dgx_a100": ((0, 1, 2, 3, 4, 5, 6, 7),),
        "dgx_v100": ((0, 1, 2, 3), (4, 5, 6, 7)),
        "siton": ((0, 1), (2, 3), (4, 5), (6, 7)),
    }


def links(*pairs: tuple[int, int], num_gpus: int) -> Any:
    found = np.zeros((num_gpus, num_gpus), np.int64)
    for a, b in pairs:
        found[a, b] = found[b, a] = 1
    return found


def test_cliques_are_disjoint_the_largest_first() -> None:
    path = links((0, 1), (1, 2), (2, 3), (3, 4), num_gpus=5)
    assert disjoint_cliques(path) == ((0, 1), (2, 3), (4,))
    kite = links((0, 1), (2, 3), (3, 4), (2, 4), (1, 2), num_gpus=6)
    assert disjoint_cliques(kite) == ((2, 3, 4), (0, 1), (5,))
    assert disjoint_cliques(np.zeros((3, 3), np.int64)) == ((0,), (1,), (2,))
    # The complement of 20 triangles has 3^20 cliques.
    group = np.arange(60) // 3
    with pytest.raises(ConfigError, match="at most 100,000 cliques"):
        disjoint_cliques((group[:, None] != group[None, :]).astype(np.int64))


def test_matrices_are_read(tmp_path: Path) -> None:
    for text in ("0,2\n2,0\n", "# two\n\n 0 2\n2\t0", "0 , 2\r\n2, 0"):
        (tmp_path / "links.csv").write_text(text)
        assert find_links(str(tmp_path / "links.csv")).tolist() == [[0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n\n", "expected a matrix"),
        ("0 1\n", "row 1: expected 1 numbers, got 2"),
        ("0 1\n1\n", "row 2: expected 2 numbers, got 1"),
        ("0 1\n2 0\n", "expected a symmetric matrix, GPUs 0 and 1"),
        ("0 -1\n-1 0\n", "row 1: expected 0 to 1000, got -1"),
        ("0 NV2\nNV2 0\n", "row 1: expected 0 to 1000, got NV2"),
        ("0 \u0661\n\u0661 0\n", "row 1: expected .*, got \u0661"),
        ("0 1001\n1001 0\n", "row 1: expected .*, got 1001"),
        ("1 1\n1 0\n", ".*GPU 0 is linked to itself"),
        ("0\n" * 1025, "expected at most 1,024 GPUs, got 1,025"),
    ],
)
def test_bad_matrices_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "links").write_text(text)
    with pytest.raises(ConfigError, match=f"^partitioner.nvlink=.*links: {message}") as caught:
        read_links(tmp_path / "links")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long").write_bytes(b"0 " * (5 << 20))
    for name, message in (
        (tmp_path / "binary", "expected a text"),
        (tmp_path / "long", "at most 8 MiB"),
        (tmp_path, "expected a regular file"),
        (tmp_path / "missing", "No such file"),
        ("dgx_v10", r"expected one of dgx_a100, .*, or a file, did you mean 'dgx"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_links(str(name))


class NVMLError(Exception): ...


class NotSupportedError(NVMLError): ...


class LibraryNotFoundError(NVMLError): ...


def nvml(remotes: list[list[int | None]]) -> ModuleType:
    """Stand in for NVML on a machine: where each link of each GPU leads, None for down."""
    module = ModuleType("pynvml")

    def remote(gpu: int, link: int) -> Any:
        return SimpleNamespace(domain=0, bus=remotes[gpu][link], device=0)

    def state(gpu: int, link: int) -> int:
        if link >= len(remotes[gpu]):
            raise NotSupportedError
        return remotes[gpu][link] is not None

    module.__dict__.update(
        NVMLError=NVMLError,
        NVMLError_LibraryNotFound=LibraryNotFoundError,
        NVMLError_NotSupported=NotSupportedError,
        NVMLError_InvalidArgument=NotSupportedError,
        NVML_NVLINK_MAX_LINKS=18,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(remotes),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetPciInfo=lambda i: SimpleNamespace(domain=0, bus=i, device=0),
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemotePciInfo=remote,
    )
    return module


def use(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_nvml_tells_links(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, nvml([[1, 1, None], [0, 0], []]))
    assert find_links(None).tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]]
    switches = nvml([[90, 91], [90, 91], [90, None]])
    use(monkeypatch, switches)
    assert find_links(None).tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 0]]


def test_links_are_those_of_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, nvml([[1, 1, None], [0, 0], [1]]))
    gpus = [SimpleNamespace(index=1), SimpleNamespace(index=0)]
    monkeypatch.setattr("gnnscale.core.gpu.find_gpus", lambda: SimpleNamespace(devices=gpus))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert find_links("nvml").tolist() == [[0, 2], [2, 0]]
    gpus.clear()
    with pytest.raises(ConfigError, match=r"^cache_planner.nvlink=nvml: this machine has no GPU"):
        find_links("nvml", option="cache_planner.nvlink")


def test_links_between_the_gpus_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, nvml([[1, 1, None], [0, 0], [1]]))
    assert links_between([0, 1]) == ((0, 2), (2, 0))
    assert links_between([1]) == ((0,),)
    assert links_between([1, 1]) == ((0, 0), (0, 0))  # two workers on one GPU
    assert links_between([0, 7]) is None
    assert links_between([]) is None
    use(monkeypatch, nvml([]))
    assert links_between([0]) is None  # NVML does not answer


def test_without_nvml_or_gpus_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, nvml([]))
    with pytest.raises(ConfigError, match=r"^partitioner.nvlink=null: this machine has no GPU"):
        find_links(None)
    broken = nvml([])
    for error, message in (
        (NVMLError("Driver Not\nLoaded"), r"NVML reports: Driver Not\\nLoaded; name one of"),
        (LibraryNotFoundError(), r"there is no NVIDIA driver \(libnvidia-ml.so.1\); name one of"),
    ):

        def fail(error: NVMLError = error) -> None:
            raise error

        monkeypatch.setattr(broken, "nvmlInit", fail)
        use(monkeypatch, broken)
        with pytest.raises(ConfigError, match=message):
            find_links(None)
