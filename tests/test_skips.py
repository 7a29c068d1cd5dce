import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="here", marks=pytest.mark.long),
        pytest.param({"GNNSCALE_TEST_NO_SKIPS": "1"}, id="in CI"),
    ],
)
def test_without_a_browser(variables: dict[str, str], tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GNNSCALE_TEST_NO_SKIPS"}
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *(f"--basetemp={tmp_path}/base", "-k", "browser_shows"),
            "tests/report/page/test_page.py",
            *("-o", "addopts=-ra --import-mode=importlib"),
        ],
        cwd=ROOT,
        env=environment | {"PATH": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == (1 if variables else 0), answer.stdout
    assert "no chromium, chromium-browser or google-chrome to look at the page" in answer.stdout
    assert f"1 {'failed' if variables else 'skipped'}" in answer.stdout


@pytest.mark.long
def test_ci_lets_nothing_else_be_skipped() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.index("GNNSCALE_TEST_NO_SKIPS=1") < script.index('section "$test_command"')
