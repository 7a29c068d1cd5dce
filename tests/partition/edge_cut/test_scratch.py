from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gnnscale.partition.edge_cut.scratch import PREFIX, scratch_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_it_is_removed_whatever_happens(temporary: Path) -> None:
    def interrupted() -> None:
        with scratch_folder() as folder:
            assert folder.parent == temporary
            assert folder.stat().st_mode & 0o077 == 0
            (folder / "graph").write_text("1 2 3")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_is_not(
    temporary: Path,
) -> None:
    program = (
        "from gnnscale.partition.edge_cut.scratch import scratch_folder\n"
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
            assert other.stdout is not None
            assert other.stdout.readline()
        for folder in temporary.iterdir():
            make_old(folder)
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


def test_what_is_new_or_somebody_elses_or_no_folder_stays(temporary: Path) -> None:
    (temporary / f"{PREFIX}new").mkdir()
    target = temporary / "target"
    target.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(target)
    file = temporary / f"{PREFIX}file"
    file.write_text("1 2 3")
    make_old(file)
    os.utime(temporary / f"{PREFIX}link", (0, 0), follow_symlinks=False)
    before = sorted(temporary.iterdir())
    with scratch_folder():
        pass
    assert sorted(temporary.iterdir()) == before
