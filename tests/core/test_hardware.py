import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from one_line import one_line

from gnnscale.core import hardware
from gnnscale.core.hardware import busy_seconds, find_machine, leads_machine, restarting_run


def test_the_machine_and_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = find_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory.available <= machine.memory.total
    assert machine.home_free > 0
    assert machine.processor
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "not" / "there"))
    assert hardware.home() == tmp_path / "not" / "there"
    assert find_machine().home_free > 0
    monkeypatch.delenv("GNNSCALE_HOME")
    assert hardware.home() == Path("~/.cache/gnnscale").expanduser()


@pytest.fixture
def bfloat16_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "_PROC", tmp_path)

    def ask(flags: str, *, takes: bool = True, **limit: str) -> bool:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: takes)
        for name, value in limit.items():
            monkeypatch.setenv(name, value)
        return hardware.multiplies_bfloat16.__wrapped__()

    return ask


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_bfloat16_is_multiplied_where_there_are_instructions(bfloat16_on) -> None:
    assert bfloat16_on("avx2 avx512f avx512_bf16")
    assert bfloat16_on("asimd bf16")
    assert not bfloat16_on("avx2")
    assert not bfloat16_on("avx2 avx_ne_convert")  # it converts, and multiplies nothing
    assert not bfloat16_on("avx2 avx512f")  # oneDNN takes it, at half the speed of float32
    assert not bfloat16_on("avx2 avx512f avx512_bf16", takes=False)
    assert bfloat16_on("avx512_bf16", ONEDNN_MAX_CPU_ISA="avx512_core_bf16")
    assert not bfloat16_on("avx512_bf16", ONEDNN_MAX_CPU_ISA="AVX512_CORE")


@pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()),
    reason="torch has one library of products",
)
def test_onednn_multiplies_where_mkl_is_slow(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "_PROC", tmp_path)
    for maker, faster in (("AuthenticAMD", True), ("GenuineIntel", False), ("", False)):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : {maker}\n")
        assert hardware.multiplies_by_onednn.__wrapped__() is faster


def test_a_container_quota_limits_the_cores(tmp_path: Path) -> None:
    affinity = hardware.usable_cores(tmp_path / "none")
    for quota, cores in (
        ("max 100000\n", affinity),
        ("50000 100000\n", 1),
        (f"{affinity * 10}00000 100000\n", affinity),
        ("nonsense", affinity),
    ):
        (tmp_path / "cpu.max").write_text(quota)
        assert hardware.usable_cores(tmp_path) == cores


def test_busy_seconds_are_those_of_this_process_cores(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    stat = tmp_path / "stat"
    # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
    stat.write_text(
        "cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 1000 2000 8 16 32 7 7\ncpu1 5 5 5 5 5 5 5 5 5 5\n"
        "cpu2 100 0 0 0 0 0 0 0 0 0\nintr 3\n"
    )
    assert busy_seconds(stat) == pytest.approx(1.63)
    assert busy_seconds(tmp_path / "none") == 0


def test_installed_finds_packages_without_importing_them() -> None:
    assert hardware.installed("numpy") is not None
    assert hardware.installed("no-such-distribution") is None
    assert hardware.installed("no-such-distribution", "json") == "unknown version"
    assert hardware.installed("no-such-distribution", "no_such_package.module") is None
    assert hardware.installed("no-such-distribution", "json.no_such_module") is None


def test_last_level_cache(tmp_path: Path) -> None:
    assert hardware.cache_bytes(tmp_path) == 2**24
    for number, size in enumerate(("48K", "2048K", "32M")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert hardware.cache_bytes(tmp_path) == 2**25


def test_the_run_that_torchrun_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    assert restarting_run() is None  # not of torchrun
    for name in hardware._TORCHRUN:
        monkeypatch.setenv(name, "0")
    with one_line("torchrun --max-restarts: expected --rdzv-id=NAME"):
        restarting_run()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run_1.a-b")
    assert restarting_run() == "run_1.a-b"
    for name in ("../x", ".x", "a b", "x" * 101, "a\nb"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        with one_line("expected letters, digits", begins="torchrun --rdzv-id="):
            restarting_run()
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert restarting_run() is None


def test_the_first_process_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert not leads_machine()
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert leads_machine() is (rank == "0")
