"""Picture of a partition (bars of sizes, map of edges), and boxes and tables of pages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gnnscale.planner import DevicePlan
from gnnscale.report.formatting import ABSENT, MEASURED, short
from gnnscale.report.page.svg import number, text

#: Largest number of parts in a picture.
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

#: For up to so many parts: height of a row, width of a cell, and whether cells have numbers.
_GRIDS = ((8, 34.0, 56.0, True), (16, 26.0, 44.0, True), (32, 18.0, 18.0, False))

_SMALLEST = (12.0, 12.0, False)

_BAR = 17.0

#: Share of the largest count from which on a cell is dark, and its number light.
_DENSE = 0.6


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Sizes in pixels of the rows that bars and map share."""

    row: float  #: height of a part
    cell: float  #: width of a cell of the map
    numbers: bool  #: whether cells show their counts

    @property
    def css(self) -> str:
        """CSS class of labels of rows and cells."""
        return "" if self.numbers else "small"

    @property
    def label_stride(self) -> int:
        """Distance of labeled columns: 1 if each column has a label."""
        return 1 if self.cell > _SMALLEST[1] else 4


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """Bar of a part: a solid piece, followed by a lighter piece, and a label."""

    solid: int  #: length of the solid piece, in units of the data
    lighter: int = 0  #: length of the lighter piece
    start: int = 0  #: start of the solid piece
    label: str = ""  #: text after the bar


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars of all parts for one quantity."""

    title: str  #: name of the quantity
    note: str  #: a line below the title
    rows: Sequence[BarRow]  #: a bar for each part
    length: float = 110.0  #: length of the longest bar in pixels
    label_width: float = 54.0  #: width of the labels in pixels
    mean: bool = True  #: whether to mark the mean

    @property
    def width(self) -> float:
        """Width of the panel in pixels."""
        return self.length + self.label_width


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Elements of a picture, with their size in pixels."""

    elements: Sequence[str]
    width: float
    height: float


def grid_for(num_parts: int) -> Grid:
    """Return sizes at which ``num_parts`` parts are readable."""
    fitting = (sizes for max_parts, *sizes in _GRIDS if num_parts <= max_parts)
    row, cell, numbers = next(fitting, _SMALLEST)
    return Grid(row=row, cell=cell, numbers=bool(numbers))


def size_bars(panels: Sequence[Panel], grid: Grid, *, x_start: float, top: float) -> Drawing:
    """Return panels side by side, with the numbers of the parts to the left of ``x_start``."""
    num_rows = len(panels[0].rows)
    elements = [text(x_start - 8, top - 8, "part", anchor="end", css="soft")]
    for i in range(num_rows):
        middle = top + (i + 0.5) * grid.row
        elements.append(text(x_start - 8, middle + 4, f"{i}", anchor="end", css=grid.css))
    x = x_start
    for panel in panels:
        elements += _bars(panel, grid, x_start=x, top=top)
        x += panel.width
    return Drawing(elements=elements, width=x - x_start, height=num_rows * grid.row)


def _bars(panel: Panel, grid: Grid, *, x_start: float, top: float) -> Iterator[str]:
    yield text(x_start, top - 24, panel.title, css="title")
    yield text(x_start, top - 8, panel.note, css="soft")
    ends = [row.start + row.solid + row.lighter for row in panel.rows]
    scale = panel.length / (max(ends) or 1)
    height = min(_BAR, grid.row - 3)
    for i, row in enumerate(panel.rows):
        y = number(top + (i + 0.5) * grid.row - height / 2)
        x, middle = x_start + row.start * scale, x_start + (row.start + row.solid) * scale
        solid, lighter = number(row.solid * scale), number(row.lighter * scale)
        box = f'y="{y}" height="{number(height)}"'
        yield f'<rect class="bar" x="{number(x)}" width="{solid}" {box}/>'
        if row.lighter:
            yield f'<rect class="part" x="{number(middle)}" width="{lighter}" {box}/>'
        base = top + (i + 0.5) * grid.row + 4
        yield text(x_start + panel.length + 6, base, row.label, css=grid.css)
    if panel.mean:
        mean = number(x_start + sum(ends) / len(ends) * scale)
        yield f'<path class="mean" d="M{mean} {top:g}v{len(ends) * grid.row:g}"/>'


def edge_map(
    counts: Sequence[Sequence[int]],
    grid: Grid,
    *,
    x_start: float,
    top: float,
    title: str,
    note: str,
) -> Drawing:
    """Return a heat map of the edges between parts, with numbers if they fit.

    Counts within a part are gray: colors compare counts between parts.

    Args:
        counts: ``[K][K]`` edges from the row's part to the column's part.
        grid: sizes of rows and cells.
        x_start: pixels left of the map.
        top: pixels above the map.
        title: title of the map.
        note: a line below the title.
    """
    num_parts = len(counts)
    between = [n for i, row in enumerate(counts) for j, n in enumerate(row) if i != j]
    maximum = max(between, default=0)
    width, height = num_parts * grid.cell, num_parts * grid.row
    elements = [
        text(x_start, top - 40, title, css="title"),
        text(x_start, top - 24, note, css="soft"),
    ]
    for i, row in enumerate(counts):
        middle = (i + 0.5) * grid.row
        elements.append(text(x_start - 6, top + middle + 4, f"{i}", anchor="end", css=grid.css))
        if i % grid.label_stride == 0:
            across = x_start + (i + 0.5) * grid.cell
            elements.append(text(across, top - 6, f"{i}", anchor="middle", css=grid.css))
        for j, value in enumerate(row):
            elements += _cell(i, j, value, maximum, grid, x_start=x_start, top=top)
    box = f'x="{x_start:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
    elements.append(f'<rect class="frame" {box}/>')
    elements += _key(maximum, x_start=x_start, top=top + height + 12)
    return Drawing(elements=elements, width=max(width, 330.0), height=height + 34)


def _cell(
    i: int, j: int, value: int, maximum: int, grid: Grid, *, x_start: float, top: float
) -> Iterator[str]:
    x, y = x_start + j * grid.cell, top + i * grid.row
    share = value / maximum if maximum else 0.0
    kind = 'class="own"' if i == j else f'class="cell" fill-opacity="{max(share, 0.03):.2f}"'
    where = f"within part {i}" if i == j else f"from part {i} to part {j}"
    box = f'x="{number(x)}" y="{number(y)}" width="{grid.cell:g}" height="{grid.row:g}"'
    yield f"<rect {kind} {box}><title>{value:,} edges {escape(where)}</title></rect>"
    if grid.numbers:
        css = "on" if i != j and share >= _DENSE else ""
        yield text(x + grid.cell / 2, y + grid.row / 2 + 4, short(value), anchor="middle", css=css)


def _key(maximum: int, *, x_start: float, top: float) -> Iterator[str]:
    """Yield the color scale of the map."""
    yield text(x_start, top + 10, "0", css="soft")
    start, step, num_steps = x_start + 12, 14, 8
    for i in range(num_steps):
        opacity = max(0.03, i / (num_steps - 1))
        box = f'x="{number(start + i * step)}" y="{number(top)}" width="{step}" height="12"'
        yield f'<rect class="cell" fill-opacity="{opacity:.2f}" {box}/>'
    end = start + num_steps * step + 6
    label = f"{short(maximum)} edges"
    yield text(end, top + 10, label, css="soft")
    own_x = end + 7 * len(label) + 14
    yield f'<rect class="own" x="{number(own_x)}" y="{number(top)}" width="14" height="12"/>'
    yield text(own_x + 20, top + 10, "within a part", css="soft")


def picture(
    title: str, notes: Sequence[str], drawings: Sequence[Drawing], *, width: float, height: float
) -> str:
    """Return an SVG file with colors for light and dark mode.

    Args:
        title: text of the title.
        notes: lines below the title.
        drawings: the drawings, positioned in the picture.
        width: width in pixels, extended to fit the title.
        height: height in pixels.
    """
    width = max(width, 32 + 9 * len(title))
    lines = [text(16, 26, title, css="head")]
    lines += [text(16, 46 + 16 * i, note, css="soft") for i, note in enumerate(notes)]
    elements = [element for drawing in drawings for element in drawing.elements]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img"><style>{_STYLE}</style>'
        f"{''.join(lines)}{''.join(elements)}</svg>\n"
    )


#: Number of device colors, which repeat for more devices.
_NUM_COLORS = 8


def badge(figures: str) -> str:
    """Return the mark of figures that are not measured: their kind; empty: measured."""
    return "" if figures == MEASURED else f' <span class="badge">{escape(figures)}</span>'


def device_css(rank: int) -> str:
    """Return the CSS class of a device's color."""
    return f"d-{rank % _NUM_COLORS}"


def device_title(plan: DevicePlan, rank: int) -> str:
    """Return a device's name with the mark of its figures."""
    device = plan.shares[rank].device
    return f"{escape(device.label)}{badge(device.figures)}"


def card(title: str, content: str) -> str:
    """Return a box; ``title`` and ``content`` are HTML."""
    return f'<div class="card"><h3>{title}</h3>{content}</div>'


def table(labels: Mapping[str, Sequence[str]], figures: Mapping[str, Sequence[str]]) -> str:
    """Return a table, without columns of ``figures`` whose cells are all ``ABSENT``.

    Args:
        labels: headings and cells of left-aligned columns, HTML.
        figures: headings and cells of right-aligned columns, HTML.
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


#: Beginning of an empty section.
NOTHING = '<p class="soft empty">'


def nothing(why: str) -> str:
    """Return a line with the reason for an empty section."""
    return f"{NOTHING}{why}</p>"
