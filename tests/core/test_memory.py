import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnscale.core.memory import (
    KillCounts,
    Memory,
    address_space_problem,
    address_space_reason,
    read_memory,
)

MIB = 1 << 20


@pytest.fixture
def in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Memory]:
    pages = {"SC_PAGE_SIZE": MIB, "SC_PHYS_PAGES": 1000, "SC_AVPHYS_PAGES": 500}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)

    def find(groups: str, **files: str) -> Memory:
        contents = {f"cgroup/{name}": content for name, content in files.items()}
        contents["proc/meminfo"] = f"MemTotal: 9 kB\nMemAvailable: {600 * 1024} kB\n"
        contents["proc/self/cgroup"] = groups
        for name, content in contents.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return read_memory(tmp_path / "proc", tmp_path / "cgroup")

    return find


def group(limit: object, used: int, active: int = 0, inactive: int = 0) -> dict[str, str]:
    stat = f"anon 7\nactive_file {active * MIB}\ninactive_file {inactive * MIB}\n"
    return {"memory.max": f"{limit}\n", "memory.current": f"{used * MIB}\n", "memory.stat": stat}


def test_containers_limit_the_memory(in_groups: Callable[..., Memory]) -> None:
    """Version 2: the page cache of the group is left to be taken, and other controllers' lines."""
    assert in_groups("") == Memory(total=1000 * MIB, available=600 * MIB, installed=1000 * MIB)
    files = {f"a/b/{name}": text for name, text in group(300 * MIB, 250, 60, 40).items()}
    found = in_groups("3:cpu,cpuacct:/c\n0::/a/b\n", **files)
    assert found == Memory(total=300 * MIB, available=150 * MIB, installed=1000 * MIB)
    files = {f"a/b/{name}": text for name, text in group("max", 10).items()}
    files |= {f"a/{name}": text for name, text in group(700 * MIB, 600).items()}
    files |= group(400 * MIB, 450)  # lowered since, and not yet obeyed
    found = in_groups("0::/a/b\n", **files)
    assert found == Memory(total=400 * MIB, available=0, installed=1000 * MIB)


@pytest.mark.parametrize(
    ("name", "folder"),
    # The second is seen as the topmost group inside, whatever its name.
    [("/process/one", "memory/process/one"), ("/docker/known-to-the-machine-alone", "memory")],
)
def test_version_1_of_control_groups(in_groups, name, folder) -> None:
    files = {
        "limit_in_bytes": f"{200 * MIB}\n",
        "usage_in_bytes": f"{100 * MIB}\n",
        "stat": f"inactive_file 0\ntotal_inactive_file {20 * MIB}\ntotal_active_file {5 * MIB}\n",
    }
    files = {f"{folder}/memory.{name}": text for name, text in files.items()}
    found = in_groups(f"4:memory,hugetlb:{name}\n0::/\n", **files)
    assert found == Memory(total=200 * MIB, available=125 * MIB, installed=1000 * MIB)


def test_the_limit_of_address_space_bounds_what_is_available(
    in_groups: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500 * MIB, resource.RLIM_INFINITY))
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "statm").write_text("180 70 30 1 0 50 0\n")  # pages of a MiB
    assert in_groups("") == Memory(total=500 * MIB, available=320 * MIB, installed=1000 * MIB)
    (tmp_path / "proc" / "self" / "statm").write_text("700 70 30 1 0 50 0\n")
    assert in_groups("").available == 0
    reason = "; the limit on address space (ulimit -v 512000) is the reason"
    assert address_space_reason() == reason
    assert address_space_problem() == f"imports take up to 1 GiB of addresses{reason}"
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: infinite)
    assert (address_space_reason(), address_space_problem()) == ("", None)


def test_address_space_of_a_process() -> None:
    program = (
        "import resource; from gnnscale.core import read_memory; before = read_memory().available; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); "
        "after = read_memory().available; assert 0 < after < 1 << 30, (before, after)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def counted(tmp_path: Path) -> Callable[..., KillCounts]:
    """Write files of control groups, and count by them."""

    def count(groups: str, **files: str) -> KillCounts:
        for name, content in {"proc/self/cgroup": groups, **files}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return KillCounts(tmp_path / "proc", tmp_path / "cgroup")

    return count


def events(oom: int, kills: int) -> str:
    return f"low 0\nhigh 0\nmax 90\noom {oom}\noom_kill {kills}\noom_group_kill 0\n"


def test_the_group_that_refused_memory_is_named(counted, tmp_path: Path) -> None:
    """Version 2: kills are counted in every group on the way up, refusals in one."""
    files = {
        "cgroup/a/b/memory.max": "max\n",
        "cgroup/a/b/memory.events": events(0, 3),
        "cgroup/a/b/memory.events.local": events(0, 0),
        "cgroup/a/memory.max": f"{1500 * MIB}\n",
        "cgroup/a/memory.events": events(1, 3),
        "cgroup/a/memory.events.local": events(1, 0),
        "cgroup/memory.max": f"{8000 * MIB}\n",
        "cgroup/memory.events": events(7, 9),
        "cgroup/memory.events.local": events(7, 0),
    }
    found = counted("0::/a/b\n", **files)
    assert found.reason() is None
    for name in ("a/b", "a", "."):
        file = tmp_path / "cgroup" / name / "memory.events"
        file.write_text(file.read_text().replace("oom_kill 3", "oom_kill 4"))
    # Another limit, of the machine or of a group that is not seen.
    assert found.reason() == "the system, whose memory ran out"
    (tmp_path / "cgroup/a/memory.events.local").write_text(events(2, 0))
    folder = tmp_path / "cgroup" / "a"
    assert found.reason() == f"the cgroup's memory limit of 1,500 MiB ({folder})"


@pytest.mark.parametrize("counter", ["memory.failcnt", "memory.memsw.failcnt"])
def test_the_group_that_refused_memory_in_version_1(counted, tmp_path: Path, counter: str) -> None:
    folder = tmp_path / "cgroup/memory/x"
    files = {
        "cgroup/memory/x/memory.limit_in_bytes": f"{200 * MIB}\n",
        "cgroup/memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        f"cgroup/memory/x/{counter}": "5\n",
    }
    found = counted("4:memory:/x\n", **files)
    assert found.reason() is None
    (folder / counter).write_text("6\n")
    assert found.reason() is None  # it had to free some, which was enough
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    reason = f"the cgroup's memory limit of 200 MiB ({folder})"
    assert found.reason() == reason
    # A group that is full is named where refusals are not counted.
    full = {"cgroup/memory/x/memory.max_usage_in_bytes": f"{200 * MIB - 4096}\n"}
    found = counted("4:memory:/x\n", **files | full)
    assert found.reason() is None
    (folder / "memory.oom_control").write_text("oom_kill 1\n")
    assert found.reason() == reason
    for groups in ("", "0::/none\n"):
        assert counted(groups).reason() is None
