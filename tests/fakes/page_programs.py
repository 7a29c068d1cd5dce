"""The programs and commands of a page's sections, run as a reader would, in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of ``docs/page`` by its title."""
    _, *parts = re.split(r"^## ", (ROOT / "docs" / page).read_text(), flags=re.M)
    return {title: text for title, _, text in (part.partition("\n") for part in parts)}


def run_section(
    text: str, folder: Path, environment: Mapping[str, str], python: str = sys.executable
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run the blocks of a section in order; return how each command ended, and the notebook.

    A block whose first line is ``# File NAME`` becomes that file. Other blocks of Python are cells
    of a notebook, which is run at the end under the name ``notebook``. Lines of blocks without a
    language are commands.
    """
    ended, cells = {}, []

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )

    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        name = re.match(r"# File ([\w.]+)\n", block)
        if name:
            (folder / name[1]).write_text(block)
        elif language == "python":
            cells.append(block)
        for line in block.splitlines() if not language else ():
            words = shlex.split(line)
            program = python if words[0] == "python" else str(Path(python).with_name(words[0]))
            ended[line] = run(program, *words[1:])
    if cells:
        ended["notebook"] = run(python, "-c", "\n".join(cells))
    return ended
