"""``gnnscale generate``: the chosen design as text, ``estimate.json`` and ``estimate.html``.

With ``report=DIR``, the comparison with the vendor's reports: a table, ``comparison.json`` and
``comparison.html``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnscale.fpga_design.dse import Exploration, Point
from gnnscale.fpga_design.resources.processes import MAX_SHARE
from gnnscale.fpga_design.vendor import Comparison, Figure
from gnnscale.planner.fpga_board import NAMES, total
from gnnscale.report.formatting import ABSENT, count, milliseconds, percent, print_lines
from gnnscale.report.page.document import cell, document, heading, section, table
from gnnscale.report.page.svg import PLOT_STYLE, Axis, Plot, number, text

if TYPE_CHECKING:
    from gnnscale.fpga_design import DesignPackage
    from gnnscale.fpga_design.generate import Estimate

#: Labels of an FPGA's resources, by name.
RESOURCES = {
    "luts": "LUTs",
    "registers": "registers",
    "dsps": "DSP slices",
    "brams": "BRAM blocks",
    "urams": "URAM blocks",
}
_DESIGNS = 12
_STYLE = (
    f"{PLOT_STYLE}.point{{fill:#7a8290;fill-opacity:.45}}.front{{fill:#2a78d6}}"
    ".best{fill:none;stroke:#d6403f;stroke-width:2}.limit{stroke:#7a8290;stroke-dasharray:5 4}"
)


def describe(generated: DesignPackage) -> dict[str, Any]:
    """Return plain values for JSON: estimate, best design, Pareto front, and refused designs."""
    exploration = generated.exploration
    board = exploration.board
    return {
        **generated.estimate.plain(),
        "design": _plain(exploration.best),
        "board": board.name,
        "sources": dict(board.sources),
        "mode": exploration.mode,
        "exploration_s": exploration.seconds,
        "num_fitting": len(exploration.points),
        "pareto": [_plain(point) for point in exploration.pareto],
        "refused": [asdict(design) for design in exploration.refused],
        "sweeps": {
            die: {"n": n, "m": m, "nvtps": nvtps}
            for die, (n, m, nvtps) in exploration.sweeps.items()
        },
    }


def _plain(point: Point) -> dict[str, Any]:
    return {**asdict(point), "card": list(point.card)}


def print_design(generated: DesignPackage, console: Console) -> None:
    """Print the 12 fastest designs on the Pareto front, and sentences about the best design."""
    exploration, estimate = generated.exploration, generated.estimate
    console.print(_pareto_table(exploration))
    print_lines(console, summary(generated))
    if not estimate.fits:
        print_lines(console, [_does_not_fit(estimate)])


def summary(generated: DesignPackage) -> list[str]:
    """Return sentences about the chosen design, its estimated step and its C simulation."""
    design, estimate, point = generated.design, generated.estimate, generated.exploration.best
    n, m = point.card
    sweeps = generated.exploration.sweeps.items()
    swept = "; ".join(f"{die}: n={best_n}, m={best_m}" for die, (best_n, best_m, _) in sweeps)
    lines = [
        f"design: ({n}, {m}) on the {design.board}, ({design.n}, {design.m}) on each of "
        f"{', '.join(design.dies)}",
        f"estimated step of {count(estimate.num_seeds)} seeds, {estimate.workload}: "
        f"{milliseconds(estimate.step_s)} ms, {estimate.nvtps / 1e6:.1f} M vertices/s, limited by "
        f"{estimate.bottleneck}; fullest: {point.limit}, {percent(point.fullest)}",
        f"C simulation of {estimate.csim.num_seeds} seeds: {count(estimate.csim.csim_cycles)} "
        f"cycles, {estimate.csim.ratio:.2f} x the equations'",
    ]
    return lines + [f"Algorithm 4, whatever sizes there are templates of: {swept}"] * bool(swept)


def _does_not_fit(estimate: Estimate) -> str:
    over = {
        f"{share:.0%} of the {RESOURCES[name]} of {die}"
        for die, shares in estimate.shares.items()
        for name, share in shares.items()
        if share > MAX_SHARE
    }
    return f"note: by the model of the parts it does not fit: {', '.join(sorted(over))}"


def _pareto_table(exploration: Exploration) -> Table:
    title = f"Designs of the {exploration.board.name} (estimated, mode {exploration.mode})"
    pareto = Table(title=title)
    for column in ("n, m of a die", "rows KiB", "dies", "M vertices/s", "fullest"):
        pareto.add_column(column, justify="right")
    pareto.add_column("limited by")
    for point in sorted(exploration.pareto, key=lambda point: -point.nvtps)[:_DESIGNS]:
        rows = "-" if point.row_words is None else count(point.row_words // 16)
        row = (f"{point.n}, {point.m}", rows, f"{len(point.dies)}", f"{point.nvtps / 1e6:.1f}")
        pareto.add_row(*row, f"{percent(point.fullest)} {point.limit}", point.bottleneck)
    return pareto


def page(generated: DesignPackage) -> str:
    """Return the text of ``estimate.html``: the design, its plot, cycles, resources and bytes."""
    estimate, board = generated.estimate, generated.exploration.board
    title = f"An FPGA design for the {board.name}"
    parts = [
        section("Summary", "".join(f"<p>{escape(line)}</p>" for line in summary(generated))),
        section("Designs", pareto_plot(generated.exploration)),
        section("Cycles of a step, pass by pass", _passes(estimate)),
        section("Resources of a die", _resources(generated)),
        section("Bytes of a step on a compute unit", _bytes(estimate)),
        section("Sources", _sources(board.sources)),
    ]
    note = (
        "Everything here is estimated: by equations, by a model of the parts, or by C simulation. "
        "No vendor's tool was run."
    )
    return document(title, heading(title, note) + "".join(parts))


def pareto_plot(exploration: Exploration) -> str:
    """Return an SVG plot of all designs that fit: throughput over share of the fullest resource."""
    points = exploration.points
    highest = max(point.nvtps for point in points) / 1e6
    widest = max(1.0, *(point.fullest for point in points))
    plot = Plot(
        x=Axis(title="fullest resource of a die, %", low=0, high=100 * widest),
        y=Axis(title="million vertices per second", low=0, high=1.1 * highest),
        height=300,
    )

    def dot(point: Point, css: str, radius: float) -> str:
        x, y = plot.across(100 * point.fullest), plot.down(point.nvtps / 1e6)
        label = f"{point.n}, {point.m} on {len(point.dies)} dies: {point.nvtps / 1e6:.1f} M"
        return (
            f'<circle class="{css}" cx="{number(x)}" cy="{number(y)}" r="{radius:g}">'
            f"<title>{escape(label)}</title></circle>"
        )

    best = exploration.best
    elements = [
        *(dot(point, "point", 2.5) for point in points),
        *(dot(point, "front", 3.5) for point in exploration.pareto),
        dot(best, "best", 7),
        text(plot.x_start + 6, plot.top + 12, f"best: ({best.n}, {best.m}) a die"),
    ]
    return plot.svg(elements, background=[f"<style>{_STYLE}</style>"], stacked=False, sized=True)


def _passes(estimate: Estimate) -> str:
    rows = [
        [
            cell(phase.name, is_text=True),
            *(cell(count(round(value))) for value in (phase.load, phase.aggregate, phase.update)),
            cell(phase.limit, is_text=True),
        ]
        for phase in estimate.passes
    ]
    groups = (
        f" Each pass is run for {estimate.groups} groups of seeds." if estimate.groups > 1 else ""
    )
    note = (
        f"<p class=soft>The slowest task of a pass counts (HitGNN, equations 5 to 9).{groups} "
        f"Together {count(round(estimate.cycles))} cycles.</p>"
    )
    return table(["pass", "load", "aggregate", "update", "limited by"], rows) + note


def _resources(generated: DesignPackage) -> str:
    estimate, board = generated.estimate, generated.exploration.board
    processes = {**estimate.processes, "compute unit": total(estimate.processes.values())}
    rows = [
        [cell(name, is_text=True), *(cell(count(round(getattr(process, kind)))) for kind in NAMES)]
        for name, process in processes.items()
    ]
    for die in board.dies:
        if shares := estimate.shares.get(die.name):
            name = cell(f"{die.name} with its shell", is_text=True)
            rows.append([name, *(cell(percent(shares[kind])) for kind in NAMES)])
    return table(["process", *RESOURCES.values()], rows)


def _bytes(estimate: Estimate) -> str:
    rows = [
        [cell(name, is_text=True), cell(f"{value / 2**20:,.2f}")]
        for name, value in estimate.memory_bytes.items()
    ]
    return table(["kind", "MiB"], rows)


def _sources(sources: Mapping[str, str]) -> str:
    rows: Sequence[Sequence[str]] = [
        [cell(name, is_text=True), cell(source, long=True)] for name, source in sources.items()
    ]
    return table(["figure", "source"], rows)


_HEADS = ("", "estimated", "Vitis HLS", "routed", "routed / estimated")


def describe_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return plain values for JSON: the design, the files of the vendor's reports, and figures.

    A figure has the estimated value, the values reported by the vendor's tools (None: not
    reported), and the ratio of routed to estimated.
    """
    return {
        "design": comparison.design.plain(),
        "files": [str(file) for file in comparison.files],
        "figures": [{**asdict(figure), "ratio": _ratio(figure)} for figure in comparison.figures],
    }


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table of estimated and the vendor's reported figures, and the report files."""
    figures_table = Table(title=Text(_comparison_title(comparison)))
    for i, head in enumerate(_HEADS):
        figures_table.add_column(head, justify="left" if i == 0 else "right")
    for figure in comparison.figures:
        figures_table.add_row(*_figure_cells(figure))
    console.print(figures_table)
    print_lines(console, [f"read: {file}" for file in comparison.files])


def comparison_page(comparison: Comparison) -> str:
    """Return ``comparison.html``: estimated and the vendor's reported figures, report files."""
    rows = [
        [cell(value, is_text=i == 0) for i, value in enumerate(_figure_cells(figure))]
        for figure in comparison.figures
    ]
    files = "".join(table([], [[cell(str(file), long=True)]]) for file in comparison.files)
    note = "Estimates are by a model of the parts; the other columns are of the vendor's reports."
    parts = [section("Figures", table(_HEADS, rows)), section("Reports", files)]
    title = _comparison_title(comparison)
    return document(title, heading(title, note) + "".join(parts))


def _comparison_title(comparison: Comparison) -> str:
    design = comparison.design
    return f"({design.n}, {design.m}) on the {design.board}: estimated, and by the vendor's tools"


def _figure_cells(figure: Figure) -> list[str]:
    ratio = _ratio(figure)
    values = (figure.estimated, figure.synthesized, figure.routed)
    return [
        f"{RESOURCES.get(figure.name, figure.name)}, {figure.unit}",
        *(ABSENT if value is None else count(round(value)) for value in values),
        ABSENT if ratio is None else f"{ratio:.2f}",
    ]


def _ratio(figure: Figure) -> float | None:
    if figure.routed is None or not figure.estimated:
        return None
    return figure.routed / figure.estimated
