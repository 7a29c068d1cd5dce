import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import time_install


def test_a_copy_has_what_git_tracks_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, text in (("a/b.txt", "tracked"), ("gone.txt", ""), ("other.so", "untracked")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "a/b.txt", "gone.txt"], cwd=root, check=True)
    (root / "gone.txt").unlink()
    time_install.copy_sources(root, tmp_path / "copy")
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert [path.relative_to(tmp_path / "copy").as_posix() for path in copied] == ["a/b.txt"]
    assert copied[0].read_text() == "tracked"


def test_processor_time_is_that_of_the_command_alone(tmp_path: Path) -> None:
    work = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    command = (sys.executable, "-S", "-c", work)
    wall, processor = time_install.run_step(command, tmp_path, os.environ)
    assert wall >= 0.2
    assert processor >= 0.2
    idle = (sys.executable, "-S", "-c", "import time; time.sleep(0.3)")
    wall, processor = time_install.run_step(idle, tmp_path, os.environ)
    assert wall >= 0.3 > processor


def test_a_step_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no space left')")
    with pytest.raises(SystemExit, match="no space left"):
        time_install.run_step(command, tmp_path, os.environ)
