"""``gnnscale simulate``: a table, ``simulation.json`` and ``scaling.svg``."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnscale.planner.simulator import ScalingCurve, SimulatedRun
from gnnscale.planner.simulator.hyscale import SimulatedPlan
from gnnscale.report.formatting import milliseconds, percent, print_lines
from gnnscale.report.page.svg import PLOT_STYLE, Axis, Plot, number, path, text

_STYLE = (
    f"{PLOT_STYLE}.line{{stroke:#2a78d6}}.dot{{fill:#2a78d6}}"
    ".ideal{fill:none;stroke:#7a8290;stroke-dasharray:5 4}"
)


def describe(scaling: ScalingCurve) -> dict[str, Any]:
    """Return the runs of a scaling curve as plain values for JSON; None: a value is unknown."""
    return {
        "figures": "simulated",
        "graph": scaling.graph,
        "model": scaling.model,
        "platform": scaling.platform,
        "system": scaling.system,
        "hybrid": scaling.hybrid,
        "efficiency": None if scaling.efficiency is None else asdict(scaling.efficiency),
        "results": [_result(scaling, result) for result in scaling.results],
        "beside": scaling.comparison and describe(scaling.comparison),
    }


def _result(scaling: ScalingCurve, result: SimulatedRun) -> dict[str, Any]:
    return {
        "num_accelerators": result.num_accelerators,
        "epoch_time_s": result.epoch_s,
        "step_s": result.step_s,
        "mteps": result.mteps,
        "nvtps": result.nvtps,
        "bandwidth_efficiency": result.bandwidth_efficiency,
        "energy_j": result.energy_j,
        "speedup": scaling.speedup(result),
        "bottleneck": result.bottleneck,
        "devices": None if result.planned is None else _devices(result.planned),
    }


def _devices(planned: SimulatedPlan) -> list[dict[str, Any]]:
    return [
        {
            "name": share.device.label,
            "kind": share.device.kind,
            "num_seeds": share.num_seeds,
            "threads": asdict(share.threads),
            "prefetch": share.prefetch,
            "stage_times_s": {k: v or None for k, v in asdict(stages).items()},
        }
        for share, stages in zip(planned.plan.shares, planned.predicted.devices, strict=True)
    ]


def print_scaling(scaling: ScalingCurve, console: Console) -> None:
    """Print the results as a table, with trainers and rates below."""
    title = f"{scaling.system}: {scaling.model} on {scaling.graph}, {scaling.platform}"
    table = Table(title=Text(f"{title} (simulated)"))
    for column in ("accelerators", "epoch s", "step ms", "MTEPS", "M NVTPS", "speed-up"):
        table.add_column(column, justify="right")
    rows = [_row(scaling, result) for result in scaling.results]
    if all(result.energy_j is not None for result in scaling.results):
        table.add_column("kJ", justify="right")
    table.add_column("bottleneck")
    if scaling.comparison is not None:
        table.add_column(Text(f"epoch s, {scaling.comparison.platform}"), justify="right")
        for row, other in zip(rows, scaling.comparison.results, strict=True):
            row.append(f"{other.epoch_s:.3f}")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    lines = [trainers(scaling), rates(scaling)]
    if scaling.comparison is not None:
        lines.append(f"{scaling.comparison.platform}, {rates(scaling.comparison)}")
    print_lines(console, lines)


def trainers(scaling: ScalingCurve) -> str:
    """Return a line that names the training processors."""
    if scaling.hybrid:
        return "trainers: the processor and the accelerators (hybrid)"
    return "trainers: the accelerators; the processor if there are none"


def rates(scaling: ScalingCurve) -> str:
    """Return a line with the reached shares of peak rates, or else the origin of the rates."""
    efficiency = scaling.efficiency
    if efficiency is None:
        origin = "of the platform as measured" if scaling.measured else "that the platform states"
        return f"rates: those {origin}"
    parts = (
        (efficiency.processor, "processor"),
        (efficiency.memory, "host memory"),
        (efficiency.accelerator, "accelerators"),
        (efficiency.link, "links"),
    )
    return "rates, of peak: " + ", ".join(
        f"{processor} {percent(part)}" for part, processor in parts
    )


def _row(scaling: ScalingCurve, result: SimulatedRun) -> list[str]:
    return [
        f"{result.num_accelerators}",
        f"{result.epoch_s:.3f}",
        milliseconds(result.step_s),
        f"{result.mteps:,.1f}",
        f"{result.nvtps / 1e6:,.1f}",
        f"{scaling.speedup(result):.2f}",
        *([] if result.energy_j is None else [f"{result.energy_j / 1e3:.3f}"]),
        result.bottleneck,
    ]


def draw(scaling: ScalingCurve) -> str:
    """Return an SVG file of speed-up over accelerators, with the ideal curve dashed (figure 9)."""
    first = max(scaling.results[0].num_accelerators, 1)
    results = sorted(scaling.results, key=lambda result: result.num_accelerators)
    points = [(result.num_accelerators, scaling.speedup(result)) for result in results]
    ideal = [(count, max(count, 1) / first) for count, _ in points]
    highest = max(value for _, value in (*points, *ideal))
    plot = Plot(
        x=Axis(title="accelerators", low=0, high=points[-1][0] + 0.5, integer=True),
        y=Axis(title="speed-up, simulated", low=0, high=1.05 * highest),
        top=34,
        height=300,
    )

    def pixels(values: list[tuple[int, float]]) -> list[tuple[float, float]]:
        return [(plot.across(x), plot.down(y)) for x, y in values]

    dots = (
        f'<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="3.5"/>'
        for x, y in pixels(points)
    )
    lines = (("ideal", ideal), ("line", points))
    elements = [*(f'<path class="{css}" d="{path(pixels(v))}"/>' for css, v in lines), *dots]
    kind = "hybrid, " if scaling.hybrid else ""
    title = text(plot.x_start, 20, f"{scaling.model} on {scaling.graph}, {kind}{scaling.platform}")
    background = [f"<style>{_STYLE}</style>", title]
    body = plot.svg(elements, background=background, stacked=False, sized=True)
    return body.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
