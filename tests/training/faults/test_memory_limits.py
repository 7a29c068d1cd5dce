"""``gnnscale train`` of a small graph with limits on memory or addresses."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_injection.cgroups import limited_group

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NO_GROUP = "no control group can be made"
MIB = 1 << 20
#: A machine that states a larger last-level cache than most have, if root may mount a file there.
LARGE_CACHE = (
    "for file in /sys/devices/system/cpu/cpu0/cache/index*/size; do "
    'mount --bind "$0" "$file"; done; exec "$@"'
)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Train 600 vertices with the default options on a machine that is not measured yet."""

    def run(*before: str, **process: Any) -> "subprocess.CompletedProcess[str]":
        options = ("dataset.num_vertices=600", "epochs=2", f"output={tmp_path / 'run'}")
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return subprocess.run(
            [*before, sys.executable, "-m", "gnnscale", "train", *options],
            cwd=tmp_path,
            env=os.environ | {"GNNSCALE_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            **process,
        )

    return run


def test_a_small_graph_trains_in_a_gigabyte(train, tmp_path) -> None:
    size = tmp_path / "size"
    size.write_text("491520K\n")
    with limited_group(1024 * MIB) as group:
        if group is None:
            pytest.skip(NO_GROUP)
        run = train("unshare", "-m", "sh", "-c", LARGE_CACHE, str(size), preexec_fn=group.enter)
        assert run.returncode == 0, run.stderr
        assert group.peak_bytes < 800 * MIB
    assert "estimating how fast this machine is" in run.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["peak_rss_bytes"] <= 0.8e9


def test_the_control_group_whose_limit_kills_is_named(train) -> None:
    with limited_group(300 * MIB) as group:
        if group is None:
            pytest.skip(NO_GROUP)
        run = train(preexec_fn=group.enter)
        folder = str(group.folder)
    assert run.returncode == 1, run.stderr
    line = run.stderr.splitlines()[-1]
    assert f"killed by the cgroup's memory limit of 300 MiB ({folder})" in line, run.stderr


def test_the_limit_of_address_space_is_named(train) -> None:
    """Whatever it is that finds no addresses: an import, a table, a thread."""
    ended = []
    for mebibytes in (60, 700, 1100):
        limit = mebibytes * 1024
        run = train("bash", "-c", f'ulimit -v {limit}; exec "$@"', "-")
        ended.append(run.returncode)
        assert "Traceback" not in run.stderr
        line = (run.stderr.splitlines() or [""])[-1]
        reason = f"; the limit on address space (ulimit -v {limit}) is the reason"
        assert run.returncode == 0 or reason in line, run.stderr
    assert ended[:2] == [1, 1]
