"""Draw the picture of the README.

    python scripts/benchmarks/draw_benchmarks.py RESULTS_DIR docs/benchmarks.svg

RESULTS_DIR holds sampler.json, gather.json, epoch.json and loader.json, written with --json.
"""

import json
import sys
from html import escape
from pathlib import Path

WIDTH, BAR, GAP, LABEL = 860, 18, 6, 230
OURS, PEER = "#2f6f9f", "#b9c3cc"
Row = tuple[str, float, str]
_RATE = "Neighbor sampling, M edges/s, 2 threads: more is better"
_LOADERS = "PyG's and this project's NeighborLoader, alone and in a loop, ms"
#: File, title, figure, its factor and its form.
PANELS = (
    ("sampler", _RATE, "edges_per_s", 1e-6, "{:.1f}"),
    ("gather", "Load and aggregate the first layer, ms: less is better", "fused_s", 1e3, "{:.1f}"),
    ("epoch", "GraphSAGE training iteration, ms: less is better", "s", 1e3, "{:.0f}"),
    ("loader", _LOADERS, "s", 1e3, "{:.0f}"),
)


def panels(results: Path) -> list[tuple[str, list[Row]]]:
    found = []
    for file, title, key, scale, form in PANELS:
        figures = json.loads((results / f"{file}.json").read_text())
        figures = figures["2"] if file == "sampler" else figures
        values = {name: each[key] * scale for name, each in figures.items()}
        found.append((title, [(name, each, form.format(each)) for name, each in values.items()]))
    return found


def draw(drawn: list[tuple[str, list[Row]]]) -> str:
    parts, y = [], 10
    for title, bars in drawn:
        y += 22
        parts.append(f'<text x="10" y="{y}" class="title">{escape(title)}</text>')
        y += 10
        largest = max(value for _, value, _ in bars)
        for name, value, text in bars:
            length = max(1.0, value / largest * (WIDTH - LABEL - 80))
            color = OURS if name.startswith("gnnscale") else PEER
            middle = y + BAR - 5
            parts.append(f'<text x="{LABEL - 8}" y="{middle}" class="name">{escape(name)}</text>')
            parts.append(
                f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{color}"/>'
            )
            parts.append(f'<text x="{LABEL + length + 6:.1f}" y="{middle}">{escape(text)}</text>')
            y += BAR + GAP
    style = (
        "text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.name{text-anchor:end}"
        "rect.page{fill:#fff}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" '
        f'viewBox="0 0 {WIDTH} {y + 10}"><style>{style}</style>'
        f'<rect class="page" width="{WIDTH}" height="{y + 10}"/>' + "".join(parts) + "</svg>\n"
    )


def main() -> None:
    results, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text(draw(panels(results)))
    print(target)


if __name__ == "__main__":
    main()
