"""A command that reads a mapped file of which the system has no page any more."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

PROGRAM = """
import os, sys
import numpy as np
from gnnscale.cli.command import name_lost_files

name_lost_files()
rows = np.load(sys.argv[1], mmap_mode="r")
print(float(rows[0, 0]), flush=True)
os.truncate(sys.argv[1], 4096)
print(float(rows.sum()))
"""


def test_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows of a graph.npy"
    np.save(file, np.ones((5000, 8), np.float32))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stdout == "1.0\n"
    reason = "a mapped file became shorter, or its disk fails or is full"
    assert ended.stderr == f"{file}: {reason}\n"
