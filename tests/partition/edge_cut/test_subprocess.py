from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import python_command
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut import subprocess as apart
from gnnscale.partition.edge_cut.subprocess import (
    PREFIX,
    PROGRAM,
    TOOLS,
    combined,
    is_installed,
    require,
    run_tool,
    scratch_folder,
)

ONES = np.ones((10, 1), np.int64)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def partition(tool: str, graph: Graph, weights: Any = ONES, num_parts: int = 2) -> apart.Answer:
    return run_tool(
        tool,
        graph.indptr,
        graph.indices,
        vertex_weights=weights,
        num_parts=num_parts,
        num_threads=2,
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_cliques_are_told_apart(
    tool: str, bridge: Graph, temporary: Path, cut_edges: Callable[..., int]
) -> None:
    pytest.importorskip(TOOLS[tool][0])
    found = partition(tool, bridge)
    assert cut_edges(bridge, found.owner) == 2
    assert np.bincount(found.owner).tolist() == [5, 5]
    assert found.owner.dtype == np.int32
    assert 1 << 24 < found.peak_bytes < 1 << 31
    assert list(temporary.iterdir()) == []


def test_one_part_needs_no_tool(bridge: Graph) -> None:
    assert partition("dgl", bridge, num_parts=1).owner.tolist() == [0] * 10


def tool_that(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Put another module in the place of pymetis."""
    (folder / "pymetis.py").write_text(body)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed by signal SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed, .* want of memory"),
        ("raise MemoryError('no room')", "out of memory: MemoryError: no room"),
        ("raise ValueError('odd\\n\\x1b[1mgraph')", r"failed .*: ValueError: odd\\n\\x1b\[1mgraph"),
        ("import sys; sys.exit(7)", "failed with status 7"),
    ],
)
def test_what_ends_the_process_is_told_in_one_line(
    body: str,
    message: str,
    bridge: Graph,
    tmp_path_factory: pytest.TempPathFactory,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool_that(monkeypatch, tmp_path_factory.mktemp("modules"), body)
    with pytest.raises(ConfigError, match=f"^pymetis: {message}") as caught:
        partition("metis", bridge)
    assert "\n" not in str(caught.value)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("owners", ["[0] * 9", "[2] * 10", "[-1] * 10"])
def test_owners_that_are_none_are_refused(
    owners: str,
    bridge: Graph,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = f"class Found: vertex_part = {owners}\ndef part_graph(*a, **k): return Found"
    tool_that(monkeypatch, tmp_path_factory.mktemp("modules"), body)
    with pytest.raises(ConfigError, match=r"^pymetis: answered with owners that are no parts"):
        partition("metis", bridge)


def test_an_interrupt_ends_the_process_and_removes_the_folder(
    bridge: Graph,
    tmp_path_factory: pytest.TempPathFactory,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = tmp_path_factory.mktemp("modules")
    body = f"import os, time\nopen({str(modules / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    tool_that(monkeypatch, modules, body + "time.sleep(1000)")

    def interrupt() -> None:
        while not (modules / "pid").exists() or not (modules / "pid").read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            partition("metis", bridge)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    assert not Path("/proc", (modules / "pid").read_text()).exists()
    assert list(temporary.iterdir()) == []


def test_a_missing_tool_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart.importlib.util, "find_spec", lambda name: None)
    assert not is_installed("dgl")
    with pytest.raises(ConfigError, match=r"^partitioner=x: needs mtkahypar, .* pip install"):
        require("mtkahypar", "partitioner=x")


def test_weights_combine_in_shares() -> None:
    weights = np.array([[1, 0, 1], [1, 10, 0], [1, 10, 0], [1, 0, 0]])
    # A third of 1/4 + 0 + 1, of 1/4 + 1/2 + 0, and of 1/4, of 100 for each vertex.
    assert combined(weights).tolist() == [167, 100, 100, 33]
    assert combined(np.zeros((2, 3), np.int64)).tolist() == [1, 1]


def test_the_other_side_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    command = python_command(PROGRAM, "metis", tmp_path, 2, 1)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1


@pytest.fixture
def temporary_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_it_is_removed_whatever_happens(temporary_scratch: Path) -> None:
    def interrupted() -> None:
        with scratch_folder() as folder:
            assert folder.parent == temporary_scratch
            assert folder.stat().st_mode & 0o077 == 0
            (folder / "graph").write_text("1 2 3")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(temporary_scratch.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_is_not(
    temporary_scratch: Path,
) -> None:
    program = (
        "from gnnscale.partition.edge_cut.subprocess import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    (folder / 'graph').write_text('1 2 3')\n"
        "    print(flush=True); input()"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(temporary_scratch)},
        )
        for _ in range(2)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline()
        for folder in temporary_scratch.iterdir():
            make_old(folder)
        with scratch_folder():
            assert len(list(temporary_scratch.iterdir())) == 3
        others[0].send_signal(signal.SIGKILL)
        others[0].wait()
        with scratch_folder():
            assert len(list(temporary_scratch.iterdir())) == 2
        others[1].communicate(b"\n")
        assert list(temporary_scratch.iterdir()) == []
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_what_is_new_or_somebody_elses_or_no_folder_stays(temporary_scratch: Path) -> None:
    (temporary_scratch / f"{PREFIX}new").mkdir()
    target = temporary_scratch / "target"
    target.mkdir()
    (temporary_scratch / f"{PREFIX}link").symlink_to(target)
    file = temporary_scratch / f"{PREFIX}file"
    file.write_text("1 2 3")
    make_old(file)
    os.utime(temporary_scratch / f"{PREFIX}link", (0, 0), follow_symlinks=False)
    before = sorted(temporary_scratch.iterdir())
    with scratch_folder():
        pass
    assert sorted(temporary_scratch.iterdir()) == before
