"""Pages that are not of a run: a title, sections and tables, in one file that needs no network."""

from collections.abc import Sequence
from html import escape
from importlib import resources

#: Nothing is loaded, and no script runs, whatever a page says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, note: str | None, sections: Sequence[str]) -> str:
    """Return a whole page, in which no script runs.

    Args:
        note: text that stands out below the title: what kind of figures follow; None for none.
        sections: HTML, of ``section``.
    """
    stands_out = "" if note is None else f'<p class="note">{escape(note)}</p>\n'
    css = (resources.files("gnnscale.report.page") / "page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{css}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n"
        f"{stands_out}{''.join(sections)}</main></body></html>\n"
    )


def section(title: str, content: str) -> str:
    """Return a part of a page under a heading; ``content`` is HTML."""
    return f'<h2>{escape(title)}</h2>\n<div class="card wide">{content}</div>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts as heads and of cells, each from ``cell``."""
    left = 'class="left"'
    head = "".join(
        f"<th {left if not number else ''}>{escape(each)}</th>" for number, each in enumerate(heads)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>\n"


def cell(content: str, *, left: bool = False, long: bool = False) -> str:
    """Return a cell of a table: a figure, or text on the left, or text that may wrap."""
    css = ' class="text"' if long else ' class="left"' if left else ""
    return f"<td{css}>{escape(content)}</td>"
