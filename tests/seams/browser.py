"""Looks at a page with a browser, if there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

#: Any of these can look at a page.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def look_at(page: str, script: str, folder: Path) -> tuple[str, str]:
    """Return a page as a browser on a desk has it after a script has run, and its title."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no {', '.join(BROWSERS[:-1])} or {BROWSERS[-1]} to look at the page with")
    file = folder / "looked_at.html"
    file.write_text(page.replace("</body>", script))
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"),
    ]
    command = [browser, *flags, "--window-size=1280,900", "--dump-dom", file.as_uri()]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "CONSOLE" not in answer.stderr
    return answer.stdout, re.findall("<title>(.*?)</title>", answer.stdout)[0]
