"""``gnnscale plan-cache``: a table of the plan, and ``cache_plan.svg``."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from gnnscale.cache import CachePlan, CacheTraffic, DeviceCache, RowType, StoredPlan
from gnnscale.core import brief
from gnnscale.core.artifact.files import size
from gnnscale.report.formatting import ABSENT, fixed, print_lines, short, wide
from gnnscale.report.page.svg import PLOT_STYLE, Axis, Plot, number, path, svg_file, text

_FILE_WIDTH = 140
#: Largest number of table rows; cache_plan.json has all of them.
_MAX_ROWS = 64
_MEGA = 1e6
_STYLE = (
    f"{PLOT_STYLE}.lists{{stroke:#1b9e77}}.rows{{stroke:#2a78d6}}"
    ".both{stroke:#24292f}.mark{stroke:#c4560a;stroke-dasharray:4 3;fill:none}"
    ".own{fill:#2a78d6}.peers{fill:#8fbcf0}.host{fill:#d9dde3}"
    "@media(prefers-color-scheme:dark){.both{stroke:#e3e6ea}.host{fill:#3a4048}}"
)
_CHART_WIDTH, _CHART_HEIGHT = 560.0, 280.0
_BAR_WIDTH, _BAR_HEIGHT = 360.0, 22.0
#: Share of the axis from which on the label of a line is on the line's left.
_LEFT_OF = 0.5


def print_plan(
    stored: StoredPlan, *, graph: str, types: Sequence[RowType] = (), console: Console
) -> None:
    """Print contents and predicted hit rates of the devices' caches (64 at most), and totals.

    ``types`` are the rows of the graph's vertex types, whose caches are a second table.
    """
    console = wide(console, _FILE_WIDTH)
    plan = stored.plan
    table = Table(title=escape_markup(_title(plan, graph)))
    table.add_column("device")
    matches = any(cache.matched_bytes for cache in plan.devices)
    extra = ("matched",) if matches else ()
    for column in ("budget", "lists", "rows", *extra, "taken", "own hits", "peer hits", "misses"):
        table.add_column(column, justify="right")
    predicted = plan.predicted or (None,) * len(plan.devices)
    for cache, traffic in list(zip(plan.devices, predicted, strict=True))[:_MAX_ROWS]:
        table.add_row(*_row(cache, traffic, matches=matches))
    if len(plan.devices) > _MAX_ROWS:
        table.add_row("...")
    console.print(table, highlight=False)
    if any(traffic.types for traffic in plan.predicted or ()):
        console.print(_type_table(plan, types), highlight=False)
    print_lines(console, _summary(stored))


def _title(plan: CachePlan, graph: str) -> str:
    hits = "" if plan.predicted is None else ", hits predicted"
    return f"{brief(graph)}: caches by {plan.planner}{hits}"


def _row(cache: DeviceCache, traffic: CacheTraffic | None, *, matches: bool) -> list[str]:
    columns = [f"{len(cache.topology):,}", f"{len(cache.features):,}"]
    if cache.look_ahead is not None:
        columns[1] = f"{cache.look_ahead.num_rows:,}"
    if cache.host_aggregates:
        columns = ["host aggregates", ""]
    shares = [ABSENT] * 3 if traffic is None else _shares(_sources(cache.device, traffic.rows))
    return [
        escape_markup(cache.name),
        size(cache.budget_bytes),
        *columns,
        *([size(cache.matched_bytes)] if matches else []),
        size(cache.num_bytes),
        *shares,
    ]


def _type_table(plan: CachePlan, types: Sequence[RowType]) -> Table:
    """Return a table of the cached rows of each vertex type, and the devices' predicted hits."""
    table = Table()
    table.add_column("vertex type")
    for column in ("bytes a row", "rows", "taken", "own hits", "peer hits", "misses"):
        table.add_column(column, justify="right")
    sources = _sources_by_type(plan)
    look_aheads = [cache.look_ahead for cache in plan.devices if cache.look_ahead is not None]
    for position, entry in enumerate(types):
        num_rows = sum(len(entry.of(cache.features)) for cache in plan.devices)
        num_rows += sum(look_ahead.rows_by_type[position] for look_ahead in look_aheads)
        num_bytes = size(num_rows * entry.row_bytes)
        sizes = (f"{entry.row_bytes:,}", f"{num_rows:,}", num_bytes)
        shares = _shares(sources.get(entry.name, (0, 0, 0)))
        table.add_row(escape_markup(entry.name), *sizes, *shares)
    return table


def _sources_by_type(plan: CachePlan) -> dict[str, tuple[int, ...]]:
    """Return rows that devices are predicted to read from their caches, peers' caches, host.

    They are those of each vertex type, over all devices; empty if all rows have equal bytes.
    """
    sums: dict[str, tuple[int, ...]] = {}
    for cache, traffic in zip(plan.devices, plan.predicted or (), strict=False):
        for entry in traffic.types:
            parts = sums.get(entry.name, (0, 0, 0)), _sources(cache.device, entry.rows)
            sums[entry.name] = tuple(map(sum, zip(*parts, strict=True)))
    return sums


def _sources(device: int, rows: Sequence[int]) -> tuple[int, int, int]:
    """Return how many ``rows`` by source ``device`` reads from its cache, peers' caches, host."""
    return rows[device], sum(rows) - rows[device] - rows[-1], rows[-1]


def _shares(sources: Sequence[int]) -> list[str]:
    total = sum(sources)
    if not total:
        return [ABSENT] * 3
    return [f"{100 * rows / total:.1f} %" for rows in sources]


def _summary(stored: StoredPlan) -> Iterator[str]:
    """Yield lines about shared caches, look-ahead, host aggregation, predicted hits and notes."""
    plan, total = stored.plan, stored.plan.predicted_total
    if plan.uncached is not None:
        yield plan.uncached.line
    for clique, alpha in zip(plan.cliques, plan.alphas, strict=True):
        if len(clique) > 1 or alpha is not None:
            names = ", ".join(plan.of(device).name for device in clique)
            part = "" if alpha is None else f"; adjacency lists take {100 * alpha:.1f} % of it"
            yield f"one cache of {names}{part}"
    look_aheads = [cache.look_ahead for cache in plan.devices if cache.look_ahead is not None]
    if look_aheads:
        match = ", and reads rows of the batch before, beyond the budget"
        yield f"looks {look_aheads[0].window} steps ahead{match if look_aheads[0].match else ''}"
    priced = [cache.batch_bytes for cache in plan.devices if cache.batch_bytes is not None]
    if priced:
        cached, aggregated = (
            sum(getattr(device, way) for device in priced) / len(priced)
            for way in ("cached", "aggregated")
        )
        chosen = sum(cache.host_aggregates for cache in plan.devices)
        yield (
            f"a mini-batch is predicted to move {size(round(cached))} with the cache, "
            f"{size(round(aggregated))} if the host aggregates the first layer: it does so for "
            f"{chosen} of {len(plan.devices)} devices"
        )
    if total is not None:
        epochs = "an epoch" if plan.num_epochs == 1 else f"{plan.num_epochs} epochs"
        kind = "on average over the run"
        if plan.first_epochs is not None:
            kind = "as the run draws them"
            if not plan.exact:
                kind += ", if no seeds move between devices"
        yield (
            f"predicted of {epochs}, {kind}: feature hit rate "
            f"{fixed(total.feature_hit_rate, 4)}, topology hit rate "
            f"{fixed(total.topology_hit_rate, 4)}, "
            f"{short(total.transactions)} transactions, "
            f"{size(total.link_bytes)} of rows over the links"
        )
    yield from plan.notes
    yield f"planned in {stored.seconds:.2f} s"


def draw(stored: StoredPlan, *, graph: str) -> str:
    """Return SVG text with a bar per device: predicted rows from its cache, peers and the host.

    Vertex types have bars below these.

    If the plan has a curve of link transactions over α, the memory share of adjacency lists, a plot
    of this curve is above the bars.
    """
    plan = stored.plan
    title = _title(plan, graph)
    parts, top = [text(16, 26, title, css="head")], 48.0
    if plan.curve:
        parts.append(f'<g transform="translate(0 {top:g})">{_curve(plan)}</g>')
        top += _CHART_HEIGHT + 24
    parts += _bars(plan, top)
    num_bars = len(plan.devices) + len(_sources_by_type(plan))
    height = top + (num_bars + 1) * _BAR_HEIGHT + 40
    return svg_file(parts, _CHART_WIDTH + 16, height, _STYLE, minimum=32 + 9 * len(title))


def _curve(plan: CachePlan) -> str:
    """Return an SVG plot of transactions over α for adjacency lists, feature rows, and both."""
    lines = {
        "lists": ("N_T, sampling", [point.n_t for point in plan.curve]),
        "rows": ("N_F, features", [point.n_f for point in plan.curve]),
        "both": ("N_total", [point.n_total for point in plan.curve]),
    }
    highest = max(max(values) for _, values in lines.values()) / _MEGA
    plot = Plot(
        x=Axis(title="α, the part of the memory for adjacency lists", low=0, high=1),
        y=Axis(title="million transactions", low=0, high=1.05 * highest),
        width=_CHART_WIDTH,
        height=_CHART_HEIGHT,
        top=30,
    )
    elements = []
    for css, (label, values) in lines.items():
        points = [
            (plot.across(point.alpha), plot.down(value / _MEGA))
            for point, value in zip(plan.curve, values, strict=True)
        ]
        elements.append(f'<path class="line {css}" data-label="{label}" d="{path(points)}"/>')
    if plan.alpha is not None:
        across = number(plot.across(plan.alpha))
        floor = plot.height - plot.bottom
        elements.append(f'<path class="mark" d="M{across} {plot.top:g}V{floor:g}"/>')
        at_end = plan.alpha > _LEFT_OF
        shift, anchor = (-6, "end") if at_end else (6, "start")
        label = f"α = {plan.alpha:.3f}"
        x = plot.across(plan.alpha) + shift
        elements.append(text(x, plot.top + 14, label, anchor=anchor, css="soft"))
    legend, x_start = [], plot.x_start
    for css, (label, _) in lines.items():
        legend.append(f'<path class="line {css}" d="M{x_start:g} 16h18"/>')
        legend.append(text(x_start + 24, 20, label))
        x_start += 40 + 7 * len(label)
    return plot.svg(elements, background=legend, stacked=False, sized=True)


def _bars(plan: CachePlan, top: float) -> list[str]:
    """Return SVG from height ``top``: a legend, and each device's predicted rows by source.

    Sources are the device's own cache, peers' caches and the host; no bar without prediction. Each
    vertex type has a bar of all devices.
    """
    predicted: Sequence[CacheTraffic | None] = plan.predicted or (None,) * len(plan.devices)
    bars: list[tuple[str, Sequence[int]]] = [
        (cache.name, (0, 0, 0) if traffic is None else _sources(cache.device, traffic.rows))
        for cache, traffic in zip(plan.devices, predicted, strict=True)
    ]
    bars += _sources_by_type(plan).items()
    x_start = 24.0 + 7 * max((len(name) for name, _ in bars), default=0)
    elements, across = [], x_start
    for css, label in (("own", "own cache"), ("peers", "peers"), ("host", "host")):
        elements.append(f'<rect class="{css}" x="{across:g}" y="{top:g}" width="12" height="12"/>')
        elements.append(text(across + 18, top + 11, label))
        across += 34 + 7 * len(label)
    for number_, (name, sources) in enumerate(bars, 1):
        middle = top + number_ * _BAR_HEIGHT
        elements.append(text(x_start - 8, middle + 12, name, anchor="end"))
        if sum(sources) > 0:
            elements += _bar(sources, x_start, middle)
    return elements


def _bar(sources: Sequence[int], x_start: float, top: float) -> Iterator[str]:
    total, start = sum(sources), x_start
    for css, value in zip(("own", "peers", "host"), sources, strict=True):
        width = _BAR_WIDTH * value / total
        yield (
            f'<rect class="{css}" x="{number(start)}" y="{top:g}" width="{number(width)}" '
            f'height="{_BAR_HEIGHT - 6:g}"><title>{value:,} rows</title></rect>'
        )
        start += width
    yield text(start + 8, top + 12, f"{short(total)} rows", css="soft")
