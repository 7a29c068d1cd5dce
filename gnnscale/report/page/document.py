"""Pages of a title, sections, boxes and tables, in a single file without external resources."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

from gnnscale.planner import DevicePlan
from gnnscale.report.formatting import ABSENT, MEASURED

#: Content security policy: no external resources; styles, and maybe a script, are inline.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, body: str, *, script: str | None = None) -> str:
    """Return an HTML page; ``title`` is plain text, ``body`` HTML.

    ``script`` is a file beside this module, for pages that show values under the pointer.
    """
    policy, ending = _POLICY, ""
    if script is not None:
        policy = f"{_POLICY}; script-src 'unsafe-inline'"
        ending = f'<div id="tip" hidden></div><script>{_asset(script)}</script>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{_asset('page.css')}</style></head>\n"
        f"<body><main>{body}</main>{ending}</body></html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files("gnnscale.report.page") / name).read_text()


def heading(title: str, note: str = "") -> str:
    """Return the title of a page, and a ``note`` that stands out below; both are plain text."""
    stands_out = f'<p class="note">{escape(note)}</p>\n' if note else ""
    return f"<h1>{escape(title)}</h1>\n{stands_out}"


def sections(parts: Mapping[str, str]) -> str:
    """Return a section for each title and its HTML; empty ones are left out."""
    return "".join(
        f"<section><h2>{title}</h2>{part}</section>" for title, part in parts.items() if part
    )


def heat_table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[tuple[str, Sequence[tuple[float | None, str]]]],
    *,
    css: str = "heat",
) -> str:
    """Return an HTML table of shaded cells; texts are HTML, ``caption`` is plain.

    A row has a label and, for each of ``heads``, a cell: its shade in percent (None: none) and its
    text.
    """
    head = "".join(f'<th scope="col"><span>{name}</span></th>' for name in heads)
    body = ""
    for label, cells in rows:
        body += f'<tr><th scope="row" class="left">{label}</th>'
        for share, content in cells:
            shade = "" if share is None else f' style="--share:{share:.0f}%"'
            body += f"<td{shade}>{content}</td>"
        body += "</tr>"
    return (
        f'<table class="{css}"><caption class="soft">{escape(caption)}</caption>'
        f"<tr><td></td>{head}</tr>{body}</table>"
    )


def section(title: str, content: str) -> str:
    """Return a section with a heading; ``content`` is HTML."""
    return f'<h2>{escape(title)}</h2>\n<div class="card wide">{content}</div>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; ``heads`` are plain text, a row consists of results of ``cell``."""
    align_left = 'class="left"'
    head_cells = "".join(
        f"<th {align_left if not number else ''}>{escape(head)}</th>"
        for number, head in enumerate(heads)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head_cells}</tr></thead>\n<tbody>{body}</tbody></table>\n"


def cell(content: str, *, is_text: bool = False, long: bool = False) -> str:
    """Return an HTML table cell: a number, text if ``is_text``, or ``long`` text that may wrap."""
    css = ' class="text"' if long else ' class="left"' if is_text else ""
    return f"<td{css}>{escape(content)}</td>"


#: Number of device colors, which repeat for more devices.
_NUM_COLORS = 8


def badge(figures: str) -> str:
    """Return an HTML mark with ``figures``, the kind of times; empty if measured."""
    return "" if figures == MEASURED else f' <span class="badge">{escape(figures)}</span>'


def device_css(rank: int) -> str:
    """Return the CSS class of a device's color."""
    return f"d-{rank % _NUM_COLORS}"


def device_title(plan: DevicePlan, rank: int) -> str:
    """Return a device's name with its ``badge`` as HTML."""
    device = plan.shares[rank].device
    return f"{escape(device.label)}{badge(device.figures)}"


def card(title: str, content: str) -> str:
    """Return a box; ``title`` and ``content`` are HTML."""
    return f'<div class="card"><h3>{title}</h3>{content}</div>'


def column_table(labels: Mapping[str, Sequence[str]], figures: Mapping[str, Sequence[str]]) -> str:
    """Return an HTML table of columns by heading: ``labels``, then ``figures``.

    A column of ``figures`` is left out if each of its cells is ``ABSENT``. Cells are HTML.
    """
    present = {name: cells for name, cells in figures.items() if set(cells) - {ABSENT}}
    head = [f'<th class="left">{name}</th>' for name in labels]
    head += [f"<th>{name}</th>" for name in present]
    columns = [[f'<td class="left">{cell}</td>' for cell in cells] for cells in labels.values()]
    columns += [[f"<td>{cell}</td>" for cell in cells] for cells in present.values()]
    rows = ("".join(row) for row in (head, *zip(*columns, strict=True)))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def grid(cards: Sequence[str]) -> str:
    """Return boxes in rows of two; empty without boxes."""
    return f'<div class="grid2">{"".join(cards)}</div>' if cards else ""


#: Start of a result of ``nothing``, by which a page recognizes an empty section.
NOTHING = '<p class="soft empty">'


def nothing(why: str) -> str:
    """Return a line with the reason for an empty section."""
    return f"{NOTHING}{why}</p>"
