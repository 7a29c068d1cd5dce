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


#: Leaves in the title of the window labels of less than 10 pixels, the width of the page beyond the
#: window, and cards that leave the end of their row empty.
READABLE = """<script>
addEventListener("load", () => {
  const found = new Set();
  for (const each of document.querySelectorAll("main *")) {
    const text = [...each.childNodes].some((node) => node.nodeType == 3 && node.data.trim());
    let size = parseFloat(getComputedStyle(each).fontSize);
    const plot = each.ownerSVGElement?.closest("main svg:not(svg svg)");
    if (plot) size *= plot.getBoundingClientRect().width / plot.viewBox.baseVal.width;
    if (text && size && size < 10) found.add(`${size.toFixed(1)}: ${each.textContent}`);
  }
  const beyond = document.documentElement.scrollWidth - innerWidth;
  if (beyond > 0) found.add(`${beyond} pixels beyond the window`);
  for (const grid of document.querySelectorAll(".grid2")) {
    const [end, last] = [grid, grid.lastElementChild].map((e) => e.getBoundingClientRect().right);
    if (end - last > 2) found.add(`a hole beside ${grid.lastElementChild.textContent}`);
  }
  top.document.title = [...found].join(" | ");
});
</script></body>"""
