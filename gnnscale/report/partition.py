"""``gnnscale partition``: a table of the parts, and ``partition.svg``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from rich import markup
from rich.console import Console
from rich.table import Table

from gnnscale.core import brief
from gnnscale.core.artifact.files import size
from gnnscale.graph import GraphSchema
from gnnscale.partition import Partition, PartitionStats, Parts
from gnnscale.report.formatting import ABSENT, fixed, print_lines, short, wide
from gnnscale.report.page.svg import number, svg_file, text

#: Largest number of table rows; partition.json has all of them.
_MAX_TABLE_ROWS = 64
#: Largest number of vertex types in a table, which are the largest types.
_MAX_TYPES = 8
_FILE_WIDTH = 120


def print_partition(
    partition: Partition, *, graph: str, types: GraphSchema | None = None, console: Console
) -> None:
    """Print sizes and balance of the parts, the edge cut, and the cost of partitioning.

    With ``types`` of vertices, a second table has the number of each that each part owns.
    """
    console = wide(console, _FILE_WIDTH)
    figures = partition.figures
    table = Table(title=markup.escape(f"{graph}: {figures.num_parts} parts by {figures.algorithm}"))
    for column in ("part", "vertices", "owned", "replicas", "training", "in-edges"):
        table.add_column(column, justify="right")
    for rank, part in enumerate(figures.parts[:_MAX_TABLE_ROWS]):
        inner = part.num_inner
        replicas = None if inner is None else max(0, part.num_vertices - inner)
        values = (part.num_vertices, inner, replicas, part.num_train, part.num_edges)
        table.add_row(f"{rank}", *(ABSENT if value is None else f"{value:,}" for value in values))
    if len(figures.parts) > _MAX_TABLE_ROWS:
        table.add_row("...")
    table.add_section()
    balances = (figures.vertex_balance, figures.train_balance, figures.edge_balance)
    vertices, train, edges = (fixed(balance, 2) for balance in balances)
    table.add_row("max/mean", "", vertices, "", train, edges)
    console.print(table, highlight=False)
    if types is not None and partition.parts.owner is not None:
        console.print(_type_table(partition.parts, types), highlight=False)
    print_lines(console, _summary(figures))


def _type_table(parts: Parts, types: GraphSchema) -> Table:
    """Return a table of the vertices that each part owns, by their types."""
    assert parts.owner is not None
    table = Table(title="vertices owned, by type")
    table.add_column("part", justify="right")
    largest = np.argsort(-np.diff(types.first_vertices), kind="stable")[:_MAX_TYPES]
    columns = []
    for vertex_type in np.sort(largest).tolist():
        table.add_column(markup.escape(types.vertex_types[vertex_type].name), justify="right")
        owner = parts.owner[types.vertices(vertex_type)]
        columns.append(np.bincount(owner[owner >= 0], minlength=parts.num_parts))
    for part, counts in enumerate(zip(*columns, strict=True)):
        if part == _MAX_TABLE_ROWS:
            table.add_row("...")
            break
        table.add_row(f"{part}", *(f"{count:,}" for count in counts))
    table.add_section()
    balances = (counts.max() / max(counts.mean(), 1e-9) for counts in columns)
    table.add_row("max/mean", *(fixed(float(balance) or None, 2) for balance in balances))
    return table


def _summary(figures: PartitionStats) -> list[str]:
    """Return lines with edge cut, replication factor, partitioning time and memory, and notes."""
    predicted = figures.predicted
    peak, expected = (
        ABSENT if num_bytes is None else size(num_bytes)
        for num_bytes in (figures.peak_rss_bytes, predicted.peak_rss_bytes)
    )
    return [
        f"edges cut {_percent(figures.edge_cut_fraction)}, "
        f"replication factor {fixed(figures.replication_factor, 2)}",
        f"time {_seconds(figures.seconds)} (predicted {_seconds(predicted.seconds)}), "
        f"peak memory {peak} (predicted {expected})",
        *figures.notes,
    ]


def _percent(fraction: float | None) -> str:
    return ABSENT if fraction is None else f"{fraction * 100:.1f} %"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def draw(partition: Partition, *, graph: str) -> str:
    """Return an SVG file of the first ``MAX_ROWS`` parts: sizes, and edges between parts."""
    figures = partition.figures
    grid = grid_for(figures.num_parts)
    x_start, top = 52.0, 116.0
    bars = size_bars(_panels(partition), grid, x_start=x_start, top=top)
    drawings: list[Drawing] = [bars]
    width, height = x_start + bars.width, top + bars.height
    if figures.cut is not None:
        cut = [row[:MAX_ROWS] for row in figures.cut[:MAX_ROWS]]
        drawings.append(edge_map(cut, grid, x_start=width + 40, top=top))
        width, height = width + 40 + drawings[-1].width, top + drawings[-1].height
    title = f"{brief(graph)}: {figures.num_parts} parts by {figures.algorithm}"
    return picture(title, _note(figures), drawings, width=width + 16, height=height + 16)


def _note(figures: PartitionStats) -> str:
    cut = f"{_percent(figures.edge_cut_fraction)} of the edges are cut, "
    if figures.cut is None:
        cut = "every part has the full topology, "
    more = f"; the first {MAX_ROWS} parts are shown" if figures.num_parts > MAX_ROWS else ""
    return f"{cut}replication factor {fixed(figures.replication_factor, 2)}{more}"


def _panels(partition: Partition) -> list[Panel]:
    figures = partition.figures
    parts = figures.parts[:MAX_ROWS]
    panels = [
        Panel(
            title="vertices",
            note=f"balance {fixed(figures.vertex_balance, 2)}; owned + replicas"
            if figures.cut is not None
            else "of the full graph",
            rows=[_vertices(part.num_vertices, part.num_inner) for part in parts],
            length=130.0,
            label_width=96.0,
            mean=False,
        ),
        Panel(
            title="in-edges",
            note=f"balance {fixed(figures.edge_balance, 2)}",
            rows=[BarRow(solid=part.num_edges, label=short(part.num_edges)) for part in parts],
        ),
    ]
    if figures.train_balance is not None:
        rows = [
            BarRow(solid=part.num_train or 0, label=short(part.num_train or 0)) for part in parts
        ]
        note = f"balance {fixed(figures.train_balance, 2)}"
        panels.append(Panel(title="training vertices", note=note, rows=rows))
    if partition.parts.columns is not None:
        panels.append(_columns(partition.parts.columns))
    return panels


def _vertices(num_vertices: int, num_inner: int | None) -> BarRow:
    if num_inner is None:
        return BarRow(solid=num_vertices, label=short(num_vertices))
    replicas = max(0, num_vertices - num_inner)
    label = f"{short(num_inner)} + {short(replicas)}" if replicas else short(num_inner)
    return BarRow(solid=num_inner, lighter=replicas, label=label)


def _columns(columns: tuple[tuple[int, int], ...]) -> Panel:
    return Panel(
        title="feature columns",
        note=f"{columns[-1][1]} in all",
        rows=[
            BarRow(start=first, solid=last - first, label=f"{first}–{last - 1}")
            for first, last in columns[:MAX_ROWS]
        ],
        length=180.0,
        label_width=70.0,
        mean=False,
    )


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
    """Pixel sizes of the row per part that bars and edge map share, and of the map's cells."""

    row: float  #: height of a part
    cell: float  #: width of a cell of the map
    numbers: bool  #: whether cells show their counts

    @property
    def css(self) -> str:
        """CSS class of row and cell labels: ``small`` if cells have no room for numbers."""
        return "" if self.numbers else "small"

    @property
    def label_stride(self) -> int:
        """Number n: every n-th column of the edge map has a label."""
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
    """SVG elements, with their size in pixels."""

    elements: Sequence[str]
    width: float
    height: float


def grid_for(num_parts: int) -> Grid:
    """Return sizes at which ``num_parts`` parts are readable."""
    fitting = (sizes for max_parts, *sizes in _GRIDS if num_parts <= max_parts)
    row, cell, numbers = next(fitting, _SMALLEST)
    return Grid(row=row, cell=cell, numbers=bool(numbers))


def size_bars(panels: Sequence[Panel], grid: Grid, *, x_start: float, top: float) -> Drawing:
    """Return panels of bars side by side, with part numbers to the left of ``x_start``."""
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


def edge_map(counts: Sequence[Sequence[int]], grid: Grid, *, x_start: float, top: float) -> Drawing:
    """Return a heat map of the edges between parts, with numbers if they fit.

    ``counts`` are ``[K][K]`` edges from the row's part to the column's part. Counts within a part
    are gray: colors compare counts between parts.
    """
    num_parts = len(counts)
    between = [n for i, row in enumerate(counts) for j, n in enumerate(row) if i != j]
    maximum = max(between, default=0)
    width, height = num_parts * grid.cell, num_parts * grid.row
    elements = [
        text(x_start, top - 40, "edges between parts", css="title"),
        text(x_start, top - 24, "row: part of the source, column: of the destination", css="soft"),
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
    """Yield the elements of the map's color scale, from 0 to ``maximum`` edges."""
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
    title: str, note: str, drawings: Sequence[Drawing], *, width: float, height: float
) -> str:
    """Return an SVG file of ``drawings``, with ``title`` and, below it, ``note`` at the top.

    Sizes are pixels; the picture is at least as wide as the title.
    """
    elements = [text(16, 26, title, css="head"), text(16, 46, note, css="soft")]
    elements += [element for drawing in drawings for element in drawing.elements]
    return svg_file(elements, width, height, _STYLE, minimum=32 + 9 * len(title))
