"""Every line of code of these pages is run, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("page", "needs"),
    [
        ("from-python.md", ()),
        ("taking-home.md", ("pyarrow", "torch_geometric")),
    ],
)
def test_what_a_page_shows_runs(
    page: str,
    needs: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_figures: Callable[[Path], Path],
) -> None:
    for each in needs:
        pytest.importorskip(each, reason=f"{each} is not installed")
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) > 5
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), names)
            continue
        for line in block.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "gnnscale"
            subprocess.run(
                [sys.executable, "-m", "gnnscale", *arguments], check=True, env=dict(os.environ)
            )
