"""Results in a notebook: their tables, and whether a program is one."""

import sys
from collections.abc import Iterable, Sequence
from html import escape
from os.path import relpath
from pathlib import Path
from urllib.parse import quote


def in_notebook() -> bool:
    """Whether this program is a notebook: code that IPython's kernel runs, not a terminal's."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def html_table(rows: Iterable[Sequence[str]], *, headings: Sequence[str] = ()) -> str:
    """Return an HTML table of texts, which are escaped; each row has a cell for each heading."""
    lines = [_row("th", headings)] if headings else []
    return f"<table>{''.join([*lines, *(_row('td', row) for row in rows)])}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def report_link(file: Path) -> str:
    """Return an HTML link to ``file``, relative to the working directory as Jupyter needs it."""
    return f'<a href="{escape(quote(relpath(file)))}" target="_blank">{escape(str(file))}</a>'
