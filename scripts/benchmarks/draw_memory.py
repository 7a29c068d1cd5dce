"""Draw the time of an epoch over the memory that rows have, for each policy.

    python scripts/benchmarks disk --parts 0.1,0.25,0.5 --systems SYSTEMS --json FIGURES.json
    python scripts/benchmarks/draw_memory.py FIGURES.json docs/out-of-core.svg

SYSTEMS are memory,look_ahead,out_degree,mapped.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.draw_caches import labelled, picture, style
from gnnscale.report.page.svg import Axis, Plot, text

#: What a line is called, and its colours in light and in dark.
LINES = {
    "mapped": ("mapped file (forecast)", ("#6b7280", "#9aa3ae")),
    "out_degree": ("policy=out_degree", ("#2a78d6", "#5a9ff0")),
    "look_ahead": ("policy=look_ahead", ("#c4560a", "#e58742")),
    "memory": ("all rows in memory", ("#1b8a5f", "#35b987")),
}


def lines_of(figures: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Return ``(% of the rows in memory, seconds)`` of each line, rising."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for part in sorted(figures["parts"], key=lambda each: each["part"]):
        for name, found in part["systems"].items():
            if name in LINES:
                lines.setdefault(name, []).append((100 * part["part"], found["seconds"]))
    widest = max(x for points in lines.values() for x, _ in points)
    lines["memory"] = [(0.0, figures["memory"]["seconds"]), (widest, figures["memory"]["seconds"])]
    return lines


def draw(figures: Mapping[str, Any]) -> str:
    lines = lines_of(figures)
    points = [point for of in lines.values() for point in of]
    across = Axis(title="rows that memory holds, % of all", low=0, high=max(x for x, _ in points))
    highest = 1.05 * max(y for _, y in points)
    down = Axis(title="seconds of an epoch", low=0, high=highest)
    plot = Plot(x=across, y=down, width=640.0, height=360.0, top=60, right=180)
    size, steps = figures["feature_bytes"] / 1e9, figures["num_steps"]
    title = f"An epoch of {steps} steps from a cold disk, {size:.1f} GB of features"
    background = [text(16, 24, title, css="head"), text(16, 43, "measured", css="soft")]
    body = labelled(plot, ((LINES[n][0], n, of) for n, of in lines.items()), background)
    css = style({name: colours for name, (_, colours) in LINES.items()})
    return picture(plot.width, plot.height, css, body)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(json.loads(Path(sys.argv[1]).read_text())))
