"""A picture of the parts of a graph: their sizes as bars, and the edges between them as a map."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gnnscale.planner import DevicePlan
from gnnscale.report.formatting import ABSENT, MEASURED, short
from gnnscale.report.page.svg import number, text

#: More parts than that no picture can show.
MAX_ROWS = 64

_STYLE = (
    "svg{background:#fff}text{font:11px system-ui,sans-serif;fill:#24292f}"
    ".small{font-size:9px}.head{font-size:14px;font-weight:600}.title{font-weight:600}"
    ".soft{fill:#5b6470}.on{fill:#fff}"
    ".bar,.cell{fill:#2a78d6}.part{fill:#2a78d6;fill-opacity:.35}.own{fill:#7a8290;"
    "fill-opacity:.22}.frame{fill:none;stroke:#d5d9df}.mean{stroke:#24292f;stroke-dasharray:3 3;"
    "fill:none;opacity:.6}"
    "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e3e6ea}"
    ".soft{fill:#9aa3ae}.on{fill:#fff}.bar,.cell{fill:#3987e5}.part{fill:#3987e5}"
    ".own{fill:#9aa3ae}.frame{stroke:#333941}.mean{stroke:#e3e6ea}}"
)

#: From how many parts on rows are how high, cells of the map how wide, and numbers in them.
_GRIDS = ((8, 34.0, 56.0, True), (16, 26.0, 44.0, True), (32, 18.0, 18.0, False))

_SMALLEST = (12.0, 12.0, False)

_BAR = 17.0

#: From this share of the largest count on, a cell is so dark that its number is light.
_DENSE = 0.6


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Sizes in pixels that bars and map share, so that a part has one row in both."""

    row: float  #: height of a part
    cell: float  #: width of a cell of the map
    numbers: bool  #: whether cells have room for a number

    @property
    def css(self) -> str:
        """Class of labels of rows and cells."""
        return "" if self.numbers else "small"

    @property
    def labelled(self) -> int:
        """Of how many columns one has room for a label."""
        return 1 if self.cell > _SMALLEST[1] else 4


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """A bar of a part: from ``start`` a solid piece, then a lighter one; and its label."""

    solid: int
    lighter: int = 0
    start: int = 0
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars of all parts."""

    title: str  #: what they are
    note: str  #: a line below it
    rows: Sequence[BarRow]  #: one for each part
    length: float = 110.0  #: pixels of the longest bar
    room: float = 54.0  #: pixels for labels after it
    mean: bool = True  #: whether to mark the mean

    @property
    def width(self) -> float:
        """Pixels of the whole panel."""
        return self.length + self.room


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Elements of a picture, and the room that they take, in pixels."""

    elements: Sequence[str]
    width: float
    height: float


def grid_for(num_parts: int) -> Grid:
    """Return sizes at which so many parts can be read."""
    fitting = (sizes for most, *sizes in _GRIDS if num_parts <= most)
    row, cell, numbers = next(fitting, _SMALLEST)
    return Grid(row=row, cell=cell, numbers=bool(numbers))


def size_bars(panels: Sequence[Panel], grid: Grid, *, left: float, top: float) -> Drawing:
    """Return panels side by side, with the numbers of the parts on their left."""
    num_rows = len(panels[0].rows)
    drawn = [text(left - 8, top - 8, "part", anchor="end", css="soft")]
    for i in range(num_rows):
        middle = top + (i + 0.5) * grid.row
        drawn.append(text(left - 8, middle + 4, f"{i}", anchor="end", css=grid.css))
    at = left
    for panel in panels:
        drawn += _bars(panel, grid, left=at, top=top)
        at += panel.width
    return Drawing(elements=drawn, width=at - left, height=num_rows * grid.row)


def _bars(panel: Panel, grid: Grid, *, left: float, top: float) -> Iterator[str]:
    yield text(left, top - 24, panel.title, css="title")
    yield text(left, top - 8, panel.note, css="soft")
    ends = [row.start + row.solid + row.lighter for row in panel.rows]
    scale = panel.length / (max(ends) or 1)
    height = min(_BAR, grid.row - 3)
    for i, row in enumerate(panel.rows):
        y = number(top + (i + 0.5) * grid.row - height / 2)
        x, middle = left + row.start * scale, left + (row.start + row.solid) * scale
        solid, lighter = number(row.solid * scale), number(row.lighter * scale)
        box = f'y="{y}" height="{number(height)}"'
        yield f'<rect class="bar" x="{number(x)}" width="{solid}" {box}/>'
        if row.lighter:
            yield f'<rect class="part" x="{number(middle)}" width="{lighter}" {box}/>'
        base = top + (i + 0.5) * grid.row + 4
        yield text(left + panel.length + 6, base, row.label, css=grid.css)
    if panel.mean:
        mean = number(left + sum(ends) / len(ends) * scale)
        yield f'<path class="mean" d="M{mean} {top:g}v{len(ends) * grid.row:g}"/>'


def edge_map(
    counts: Sequence[Sequence[int]], grid: Grid, *, left: float, top: float, title: str, note: str
) -> Drawing:
    """Return counts between parts as a map of colours, with numbers if there is room.

    Counts within a part are grey: colours compare those between parts.

    Args:
        counts: ``[K][K]``, from the part of the row to that of the column.
    """
    num_parts = len(counts)
    between = [n for i, row in enumerate(counts) for j, n in enumerate(row) if i != j]
    most = max(between, default=0)
    width, height = num_parts * grid.cell, num_parts * grid.row
    drawn = [text(left, top - 40, title, css="title"), text(left, top - 24, note, css="soft")]
    for i, row in enumerate(counts):
        middle = (i + 0.5) * grid.row
        drawn.append(text(left - 6, top + middle + 4, f"{i}", anchor="end", css=grid.css))
        if i % grid.labelled == 0:
            across = left + (i + 0.5) * grid.cell
            drawn.append(text(across, top - 6, f"{i}", anchor="middle", css=grid.css))
        for j, value in enumerate(row):
            drawn += _cell(i, j, value, most, grid, left=left, top=top)
    box = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
    drawn.append(f'<rect class="frame" {box}/>')
    drawn += _key(most, left=left, top=top + height + 12)
    return Drawing(elements=drawn, width=max(width, 330.0), height=height + 34)


def _cell(
    i: int, j: int, value: int, most: int, grid: Grid, *, left: float, top: float
) -> Iterator[str]:
    x, y = left + j * grid.cell, top + i * grid.row
    share = value / most if most else 0.0
    kind = 'class="own"' if i == j else f'class="cell" fill-opacity="{max(share, 0.03):.2f}"'
    where = f"within part {i}" if i == j else f"from part {i} to part {j}"
    box = f'x="{number(x)}" y="{number(y)}" width="{grid.cell:g}" height="{grid.row:g}"'
    yield f"<rect {kind} {box}><title>{value:,} edges {escape(where)}</title></rect>"
    if grid.numbers:
        css = "on" if i != j and share >= _DENSE else ""
        yield text(x + grid.cell / 2, y + grid.row / 2 + 4, short(value), anchor="middle", css=css)


def _key(most: int, *, left: float, top: float) -> Iterator[str]:
    """What the colours mean."""
    yield text(left, top + 10, "0", css="soft")
    start, step, num_steps = left + 12, 14, 8
    for i in range(num_steps):
        opacity = max(0.03, i / (num_steps - 1))
        box = f'x="{number(start + i * step)}" y="{number(top)}" width="{step}" height="12"'
        yield f'<rect class="cell" fill-opacity="{opacity:.2f}" {box}/>'
    end = start + num_steps * step + 6
    label = f"{short(most)} edges"
    yield text(end, top + 10, label, css="soft")
    own = end + 7 * len(label) + 14
    yield f'<rect class="own" x="{number(own)}" y="{number(top)}" width="14" height="12"/>'
    yield text(own + 20, top + 10, "within a part", css="soft")


def picture(
    title: str, notes: Sequence[str], drawings: Sequence[Drawing], *, width: float, height: float
) -> str:
    """Return an SVG file, with colours for light and for dark.

    Args:
        width: of the picture, in pixels; more if the title needs it.
    """
    width = max(width, 32 + 9 * len(title))
    lines = [text(16, 26, title, css="head")]
    lines += [text(16, 46 + 16 * i, note, css="soft") for i, note in enumerate(notes)]
    drawn = [element for drawing in drawings for element in drawing.elements]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img"><style>{_STYLE}</style>'
        f"{''.join(lines)}{''.join(drawn)}</svg>\n"
    )


#: Colours for devices; a plan with more of them begins again.
_NUM_COLOURS = 8


def badge(figures: str) -> str:
    """Return the mark of figures that are not measured: the word for their kind, or nothing."""
    return "" if figures == MEASURED else f' <span class="badge">{escape(figures)}</span>'


def device_css(rank: int) -> str:
    """Return the class that gives a device its colour."""
    return f"d-{rank % _NUM_COLOURS}"


def device_title(plan: DevicePlan, rank: int) -> str:
    """Return a device's name with its mark."""
    device = plan.shares[rank].device
    return f"{escape(device.label)}{badge(device.figures)}"


def card(title: str, content: str) -> str:
    """Return a box; ``title`` and ``content`` are HTML."""
    return f'<div class="card"><h3>{title}</h3>{content}</div>'


def table(labels: Mapping[str, Sequence[str]], figures: Mapping[str, Sequence[str]]) -> str:
    """Return a table, without those of ``figures`` that are absent in each of its rows.

    Args:
        labels: headings with their cells, to the left; HTML.
        figures: headings with their cells, to the right; HTML.
    """
    shown = {name: cells for name, cells in figures.items() if set(cells) - {ABSENT}}
    head = [f'<th class="left">{name}</th>' for name in labels]
    head += [f"<th>{name}</th>" for name in shown]
    columns = [[f'<td class="left">{cell}</td>' for cell in cells] for cells in labels.values()]
    columns += [[f"<td>{cell}</td>" for cell in cells] for cells in shown.values()]
    rows = ("".join(row) for row in (head, *zip(*columns, strict=True)))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def grid(cards: Sequence[str]) -> str:
    """Return boxes two by two, nothing if there are none."""
    return f'<div class="grid2">{"".join(cards)}</div>' if cards else ""


#: How an empty section begins.
NOTHING = '<p class="soft empty">'


def nothing(why: str) -> str:
    """Return a line with the reason for an empty section."""
    return f"{NOTHING}{why}</p>"
