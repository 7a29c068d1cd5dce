"""Pages of a title, sections and tables, in a single file without external resources."""

from collections.abc import Sequence
from html import escape
from importlib import resources

#: Content security policy: no external resources, no scripts.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, note: str | None, sections: Sequence[str]) -> str:
    """Return a page without scripts.

    Args:
        title: text of the title.
        note: text that stands out below the title; None: no note.
        sections: HTML of each section.
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
    """Return a section with a heading; ``content`` is HTML."""
    return f'<h2>{escape(title)}</h2>\n<div class="card wide">{content}</div>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with texts as headings, and rows of results of ``cell``."""
    align_left = 'class="left"'
    head_cells = "".join(
        f"<th {align_left if not number else ''}>{escape(head)}</th>"
        for number, head in enumerate(heads)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head_cells}</tr></thead>\n<tbody>{body}</tbody></table>\n"


def cell(content: str, *, left: bool = False, long: bool = False) -> str:
    """Return a cell of a table: a number, or left-aligned text, or long text that may wrap."""
    css = ' class="text"' if long else ' class="left"' if left else ""
    return f"<td{css}>{escape(content)}</td>"
