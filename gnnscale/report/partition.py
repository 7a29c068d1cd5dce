"""``gnnscale partition``: a table of the parts, and ``partition.svg``."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gnnscale.core import brief
from gnnscale.core.artifact.files import size
from gnnscale.partition import Partition, PartitionStats
from gnnscale.report.formatting import ABSENT, short
from gnnscale.report.page.parts import (
    MAX_ROWS,
    BarRow,
    Drawing,
    Panel,
    edge_map,
    grid_for,
    picture,
    size_bars,
)

#: Largest number of table rows; partition.json has all of them.
_MAX_TABLE_ROWS = 64
_FILE_WIDTH = 120


def print_partition(partition: Partition, *, graph: str, console: Console) -> None:
    """Print sizes and balance of the parts, the edge cut, and the cost of partitioning."""
    if not console.is_terminal:
        # A file needs no line breaks.
        console = Console(width=_FILE_WIDTH, file=console.file)
    figures = partition.figures
    title = f"{graph}: {figures.num_parts} parts by {figures.algorithm}"
    table = Table(title=escape(title))
    for column in ("part", "vertices", "owned", "replicas", "training", "in-edges"):
        table.add_column(column, justify="right")
    for number, part in enumerate(figures.parts[:_MAX_TABLE_ROWS]):
        inner = part.num_inner
        replicas = None if inner is None else max(0, part.num_vertices - inner)
        values = (part.num_vertices, inner, replicas, part.num_train, part.num_edges)
        table.add_row(f"{number}", *(ABSENT if value is None else f"{value:,}" for value in values))
    if len(figures.parts) > _MAX_TABLE_ROWS:
        table.add_row("...")
    table.add_section()
    balances = (figures.vertex_balance, figures.train_balance, figures.edge_balance)
    vertices, train, edges = map(_ratio, balances)
    table.add_row("max/mean", "", vertices, "", train, edges)
    console.print(table, highlight=False)
    for line in _summary(figures):
        console.print(line, highlight=False, markup=False)


def _summary(figures: PartitionStats) -> list[str]:
    """Return the lines below the table."""
    predicted = figures.predicted
    return [
        f"edges cut {_percent(figures.edge_cut_fraction)}, "
        f"replication factor {_ratio(figures.replication_factor)}",
        f"time {_seconds(figures.seconds)} (predicted {_seconds(predicted.seconds)}), "
        f"peak memory {_memory(figures.peak_rss_bytes)} "
        f"(predicted {_memory(predicted.peak_rss_bytes)})",
        *figures.notes,
    ]


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def _memory(num_bytes: int | None) -> str:
    return ABSENT if num_bytes is None else size(num_bytes)


def _percent(fraction: float | None) -> str:
    return ABSENT if fraction is None else f"{fraction * 100:.1f} %"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def draw(partition: Partition, *, graph: str) -> str:
    """Return an SVG file with the sizes of the first ``MAX_ROWS`` parts, and the edges between."""
    figures = partition.figures
    grid = grid_for(figures.num_parts)
    x_start, top = 52.0, 116.0
    bars = size_bars(_panels(partition), grid, x_start=x_start, top=top)
    drawings: list[Drawing] = [bars]
    width, height = x_start + bars.width, top + bars.height
    if figures.cut is not None:
        cut = [row[:MAX_ROWS] for row in figures.cut[:MAX_ROWS]]
        drawings.append(
            edge_map(
                cut,
                grid,
                x_start=width + 40,
                top=top,
                title="edges between parts",
                note="row: part of the source, column: of the destination",
            )
        )
        width, height = width + 40 + drawings[-1].width, top + drawings[-1].height
    title = f"{brief(graph)}: {figures.num_parts} parts by {figures.algorithm}"
    return picture(title, _notes(figures), drawings, width=width + 16, height=height + 16)


def _notes(figures: PartitionStats) -> list[str]:
    cut = f"{_percent(figures.edge_cut_fraction)} of the edges are cut, "
    if figures.cut is None:
        cut = "every part has the full topology, "
    notes = f"{cut}replication factor {_ratio(figures.replication_factor)}"
    if figures.num_parts > MAX_ROWS:
        notes += f"; the first {MAX_ROWS} parts are shown"
    return [notes]


def _panels(partition: Partition) -> list[Panel]:
    figures = partition.figures
    parts = figures.parts[:MAX_ROWS]
    panels = [
        Panel(
            title="vertices",
            note=f"balance {_ratio(figures.vertex_balance)}; owned + replicas"
            if figures.cut is not None
            else "of the full graph",
            rows=[_vertices(part.num_vertices, part.num_inner) for part in parts],
            length=130.0,
            label_width=96.0,
            mean=False,
        ),
        Panel(
            title="in-edges",
            note=f"balance {_ratio(figures.edge_balance)}",
            rows=[BarRow(solid=part.num_edges, label=short(part.num_edges)) for part in parts],
        ),
    ]
    if figures.train_balance is not None:
        rows = [
            BarRow(solid=part.num_train or 0, label=short(part.num_train or 0)) for part in parts
        ]
        note = f"balance {_ratio(figures.train_balance)}"
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
