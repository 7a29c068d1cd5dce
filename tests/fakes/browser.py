"""Looks at a page with a browser, if there is one."""

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest

#: Any of these can look at a page.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: No window is narrower, in pixels.
_NARROWEST = 500


def look_at(page: str, script: str, folder: Path, *, width: int = 1280) -> tuple[str, str]:
    """Return a page as a browser has it after a script has run, and its title.

    ``width`` is that of the window, in pixels: by default one on a desk. A narrow page is in a
    frame, since windows are not: its script gives ``top.document`` the title.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no {', '.join(BROWSERS[:-1])} or {BROWSERS[-1]} to look at the page with")
    file = folder / "looked_at.html"
    page = page.replace("</body>", script)
    if width < _NARROWEST:
        frame = f'<iframe srcdoc="{escape(page)}" style="border:0" width={width} height=900>'
        page = f"<!doctype html><title></title><body>{frame}</iframe></body>"
    file.write_text(page)
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"),
    ]
    command = [browser, *flags, f"--window-size={width},900", "--dump-dom", file.as_uri()]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "CONSOLE" not in answer.stderr
    return answer.stdout, re.findall("<title>(.*?)</title>", answer.stdout)[0]
