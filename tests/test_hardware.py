from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnnscale.hardware import busy_seconds, cache_bytes, find_machine, home, installed, usable_cores


def test_machine_is_described() -> None:
    machine = find_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory.available <= machine.memory.total
    assert machine.home_free > 0
    assert machine.processor


def quota(tmp_path: Path, text: str) -> int:
    (tmp_path / "cpu.max").write_text(text)
    return usable_cores(tmp_path)


def test_a_container_quota_limits_the_cores(tmp_path: Path) -> None:
    affinity = usable_cores(tmp_path / "none")
    assert quota(tmp_path, "max 100000\n") == affinity
    assert quota(tmp_path, "50000 100000\n") == 1
    assert quota(tmp_path, f"{affinity * 10}00000 100000\n") == affinity
    assert quota(tmp_path, "nonsense") == affinity


def test_busy_seconds_are_those_of_this_process_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_home_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "not" / "there"))
    assert home() == tmp_path / "not" / "there"
    assert find_machine().home_free > 0
    monkeypatch.delenv("GNNSCALE_HOME")
    assert home() == Path("~/.cache/gnnscale").expanduser()


def test_installed_finds_packages_without_importing_them() -> None:
    assert installed("numpy") is not None
    assert installed("no-such-distribution") is None
    assert installed("no-such-distribution", "json") == "unknown version"


def test_last_level_cache(tmp_path: Path) -> None:
    assert cache_bytes(tmp_path) == 2**24
    for number, size in enumerate(("48K", "2048K", "32M")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert cache_bytes(tmp_path) == 2**25
