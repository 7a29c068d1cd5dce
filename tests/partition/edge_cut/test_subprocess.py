import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.partition.edge_cut import subprocess as apart
from gnnscale.partition.edge_cut.subprocess import (
    PREFIX,
    combined,
    is_installed,
    require,
    run_tool,
    scratch_folder,
)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def partition(tool, graph, num_parts=2):
    options = {"vertex_weights": np.ones((10, 1), np.int64), "num_threads": 2}
    return run_tool(tool, graph.indptr, graph.indices, num_parts=num_parts, **options)


@pytest.mark.long
def test_cliques_become_the_parts(bridge, temporary, cut_edges):
    pytest.importorskip("pymetis")
    found = partition("metis", bridge)
    assert cut_edges(bridge, found.owner) == 2
    assert np.bincount(found.owner).tolist() == [5, 5]
    assert found.owner.dtype == np.int32
    assert 1 << 24 < found.peak_bytes < 1 << 31
    assert list(temporary.iterdir()) == []


def test_one_part_needs_no_tool(bridge):
    assert partition("dgl", bridge, num_parts=1).owner.tolist() == [0] * 10


@pytest.fixture
def tool_that(monkeypatch, tmp_path_factory):
    """Put another module in the place of pymetis, which may mention its ``folder``."""

    def put(body):
        folder = tmp_path_factory.mktemp("modules")
        (folder / "pymetis.py").write_text(f"folder = {str(folder)!r}\n{body}")
        monkeypatch.syspath_prepend(folder)
        return folder

    return put


@pytest.mark.long
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
def test_end_of_the_process_is_told_in_one_line(body, message, bridge, temporary, tool_that):
    tool_that(body)
    with pytest.raises(ConfigError, match=f"^pymetis: {message}") as caught:
        partition("metis", bridge)
    assert "\n" not in str(caught.value)
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("owners", ["[0] * 9", "[2] * 10", "[-1] * 10"])
def test_owners_out_of_range_are_refused(owners, bridge, tool_that):
    tool_that(f"class Found: vertex_part = {owners}\ndef part_graph(*a, **k): return Found")
    with pytest.raises(ConfigError, match=r"^pymetis: expected owners below"):
        partition("metis", bridge)


@pytest.mark.long
def test_an_interrupt_ends_the_process_and_removes_the_folder(bridge, temporary, tool_that):
    write = "open(folder + '/pid', 'w').write(str(os.getpid()))"
    pid = tool_that(f"import os, time\n{write}\ntime.sleep(1000)") / "pid"

    def interrupt():
        while not pid.exists() or not pid.read_text():
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
    assert not Path("/proc", pid.read_text()).exists()
    assert list(temporary.iterdir()) == []


def test_a_missing_tool_is_told_with_what_to_do(monkeypatch):
    monkeypatch.setattr(apart.importlib.util, "find_spec", lambda name: None)
    assert not is_installed("dgl")
    with pytest.raises(ConfigError, match=r"^partitioner=x: expected mtkahypar, .* pip install"):
        require("mtkahypar", "partitioner=x")


def test_weights_combine_in_shares():
    weights = np.array([[1, 0, 1], [1, 10, 0], [1, 10, 0], [1, 0, 0]])
    # A third of 1/4 + 0 + 1, of 1/4 + 1/2 + 0, and of 1/4, of 100 for each vertex.
    assert combined(weights).tolist() == [167, 100, 100, 33]
    assert combined(np.zeros((2, 3), np.int64)).tolist() == [1, 1]


@pytest.mark.long
def test_folders_of_killed_processes_are_removed_and_others_stay(temporary):
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
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        for _ in range(2)
    ]
    try:
        for other in others:
            assert other.stdout.readline()
        for folder in temporary.iterdir():
            os.utime(folder, (0, 0))
        with scratch_folder():
            assert len(list(temporary.iterdir())) == 3
        others[0].send_signal(signal.SIGKILL)
        others[0].wait()
        with scratch_folder():
            assert len(list(temporary.iterdir())) == 2
        others[1].communicate(b"\n")
        assert list(temporary.iterdir()) == []
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_new_folders_links_and_files_stay(temporary):
    (temporary / f"{PREFIX}new").mkdir()
    target = temporary / "target"
    target.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(target)
    file = temporary / f"{PREFIX}file"
    file.write_text("1 2 3")
    os.utime(file, (0, 0))
    os.utime(temporary / f"{PREFIX}link", (0, 0), follow_symlinks=False)
    before = sorted(temporary.iterdir())
    with scratch_folder():
        pass
    assert sorted(temporary.iterdir()) == before
