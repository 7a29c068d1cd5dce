"""Draw what caches bring, from what a sweep over policies and sizes wrote.

    gnnscale train -m config=cache_sweep cache_planner=none,... cache_planner.ratio=...
    python scripts/benchmarks/draw_caches.py SWEEP_DIR docs/caches.svg

SWEEP_DIR is the folder of the sweep, with results.json. The figures that the picture shows are
written beside it, as docs/caches.json, and some of them printed as the table of docs/caches.md.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import make_docs

from gnnscale.core.config.yaml_file import load_yaml
from gnnscale.report.page.svg import PLOT_STYLE, Axis, Plot, number, path, text

#: The policy that the others are compared with.
WITHOUT = "none"
#: What decides which rows a cache holds, the class of its colour, and the policies that go by it.
_SAMPLED = ("gnnlab", "pagraph_plus", "quiver_plus", "legion")
KINDS = (
    ("by degrees", "degrees", ("aligraph", "pagraph", "quiver")),
    ("by an epoch of pre-sampling", "presampled", _SAMPLED),
    ("by the run's own batches", "exact", ("oracle_static", "belady", "belady_match")),
)
#: Policies whose cliques keep each row once; the others have a cache for each device alone.
SHARED = ("quiver", "quiver_plus", "legion", "oracle_static")
COLUMNS = ("feature_hit_rate", "topology_hit_rate", "link_mb", "epoch_time_s")
#: Colours in light and in dark.
COLOURS = {"degrees": ("#2a78d6", "#5a9ff0"), "presampled": ("#1b8a5f", "#35b987")}
COLOURS |= {"exact": ("#c4560a", "#e58742"), WITHOUT: ("#6b7280", "#9aa3ae")}


def style(colours: Mapping[str, tuple[str, str]], more: str = "") -> str:
    """Return the style of lines, by the colours of each class in light and in dark."""
    light, dark = (
        "".join(
            f".{css}{{stroke:{pair[i]}}}circle.{css},text.{css}{{fill:{pair[i]};stroke:none}}"
            for css, pair in colours.items()
        )
        for i in range(2)
    )
    lead = ".lead{stroke-width:.75;opacity:.6}"
    return f"{PLOT_STYLE}{light}{more}{lead}@media(prefers-color-scheme:dark){{{dark}}}"


def picture(width: float, height: float, css: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img"><style>{css}</style>{body}</svg>\n'
    )


PANEL_WIDTH, PANEL_HEIGHT, TOP = 450.0, 330.0, 62.0
#: Pixels between the labels of two lines.
LINE = 13.5
#: Sizes of caches that the table shows.
SHOWN = (0.05, 0.2)


class Panel(NamedTuple):
    """One of the plots: a figure of each policy over the sizes of the caches.

    It shows ``value`` of a row of the figures, and ``without``, what a run without a cache has.
    """

    title: str
    unit: str
    value: Callable[[Mapping[str, Any]], float]
    without: float | None


def figures_of(sweep: Path) -> dict[str, Any]:
    jobs = json.loads((sweep / "results.json").read_text())["jobs"]
    _check(jobs)
    summaries = [json.loads((sweep / str(j["job"]) / "summary.json").read_text()) for j in jobs]
    options = load_yaml(sweep / "multirun.yaml")["hydra"]["overrides"]["task"]
    words = " ".join(options).replace("experiment=", "config=")
    return {
        "command": f"gnnscale train -m {words}",
        "date": date.fromtimestamp((sweep / "results.json").stat().st_mtime).isoformat(),
        "kind": _same(job["figures"] for job in jobs),
        "graph": _same(each["dataset"] for each in summaries),
        "processor": _same(each["processor"] for each in summaries),
        "late_share": max(map(late_share, summaries)),
        "rows": [_row(job) for job in jobs],
    }


def _row(job: Mapping[str, Any]) -> dict[str, Any]:
    policy, ratio = (job["options"][f"cache_planner{what}"] for what in ("", ".ratio"))
    return {"policy": policy, "ratio": float(ratio), **{name: job[name] for name in COLUMNS}}


def _check(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a sweep over anything but these policies and sizes, or one that failed."""
    known = {WITHOUT, *(policy for _, _, policies in KINDS for policy in policies)}
    for job in jobs:
        if set(job["options"]) != {"cache_planner", "cache_planner.ratio"}:
            raise SystemExit("needed is a sweep over cache_planner and cache_planner.ratio alone")
        if job["options"]["cache_planner"] not in known:
            raise SystemExit(f"{job['options']['cache_planner']}: no line for it, see KINDS")
        if job["status"] != "completed":
            raise SystemExit(f"{job['directory']}: not completed, every job is needed")
    if not {str(ratio) for ratio in SHOWN} <= {j["options"]["cache_planner.ratio"] for j in jobs}:
        raise SystemExit(f"cache_planner.ratio: {SHOWN} are needed for the table")


def _same(values: Iterable[Any]) -> Any:
    found = set(values)
    if len(found) != 1:
        differing = ", ".join(sorted(map(str, found)))
        raise SystemExit(f"jobs of the sweep differ by more than their caches: {differing}")
    return found.pop()


def late_share(summary: Mapping[str, Any]) -> float:
    """Return by how much the host was slower than what it emulates, as a part of the epochs."""
    seconds = summary["epochs"] * summary["epoch_time_s"]["mean"]
    return max(device["counters"]["late_s"] for device in summary["devices"]) / seconds


def without_cache(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return a figure of the runs without a cache; the sweep has one for each size."""
    return statistics.median(row[name] for row in rows if row["policy"] == WITHOUT)


def panels(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    link, seconds = (without_cache(rows, name) for name in ("link_mb", "epoch_time_s"))
    part = "part of those without a cache"
    rate = Panel(
        "Rows found in caches", "% of rows read", lambda r: 100 * r["feature_hit_rate"], None
    )
    time = Panel("Time per epoch, median", "seconds", lambda r: r["epoch_time_s"], seconds)
    return [rate, Panel("Bytes over links", part, lambda r: r["link_mb"] / link, 1), time]


def lines_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of each policy with a cache, the smallest first."""
    return {
        policy: sorted(found, key=lambda row: row["ratio"])
        for _, _, policies in KINDS
        for policy in policies
        if (found := [row for row in rows if row["policy"] == policy])
    }


def css_of(policy: str) -> str:
    kind = next(css for _, css, policies in KINDS if policy in policies)
    return kind if policy in SHARED else f"{kind} alone"


def apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Return places from ``low`` to ``high``, a line apart and nearest to the wanted ones.

    Their order stays. Without the bounds it is least squares, by pooling adjacent violators.
    """
    pools: list[tuple[float, int]] = []
    for i, place in enumerate(wanted):
        mean, count = place - i * LINE, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    highest = high - (len(wanted) - 1) * LINE
    means = [max(low, min(mean, highest)) for mean, count in pools for _ in range(count)]
    return [mean + i * LINE for i, mean in enumerate(means)]


def draw_panel(panel: Panel, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a plot with a line for each policy, and its name at the end of the line."""
    lines = {
        policy: [(100 * row["ratio"], panel.value(row)) for row in found]
        for policy, found in lines_of(rows).items()
    }
    widest = max(x for points in lines.values() for x, _ in points)
    highest = max(panel.without or 0.0, *(y for points in lines.values() for _, y in points))
    across = Axis(title="rows in the cache of each GPU, % of all", low=0, high=widest)
    down = Axis(title=panel.unit, low=0, high=1.05 * highest)
    size = {"width": PANEL_WIDTH, "height": PANEL_HEIGHT, "top": 36, "right": 118}
    plot = Plot(x=across, y=down, **size)
    named = {policy: (policy, css_of(policy), points) for policy, points in lines.items()}
    if panel.without is not None:
        level = [(0.0, panel.without), (widest, panel.without)]
        named = {WITHOUT: (WITHOUT, WITHOUT, level), **named}
    head = [text(plot.x_start, 20, panel.title, css="head")]
    return labelled(plot, named.values(), head)


def labelled(
    plot: Plot, lines: Iterable[tuple[str, str, list[tuple[float, float]]]], background: list[str]
) -> str:
    """Return a plot of lines by label, class and points; each label is at the end of its line."""
    drawn, names = [], []
    for label, css, points in lines:
        at = [(plot.across(x), plot.down(y)) for x, y in points]
        drawn.append(f'<path class="line {css}" data-label="{label}" d="{path(at)}"/>')
        if len({y for _, y in points}) > 1:  # a level has no points
            places = ((number(x), number(y)) for x, y in at)
            drawn += [f'<circle class="{css}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in places]
        names.append((at[-1][1], label, css))
    names.sort()
    places = apart([at for at, _, _ in names], plot.top, plot.height - plot.bottom)
    end = plot.width - plot.right
    for place, (at, policy, css) in zip(places, names, strict=True):
        lead = f"M{end + 4:g} {number(at)}L{end + 14:g} {number(place)}"
        background.append(f'<path class="lead {css.split()[0]}" d="{lead}"/>')
        background.append(text(end + 17, place + 4, policy, css=css.split()[0]))
    return plot.svg(drawn, background=background, stacked=False, sized=True)


def legend(left: float, top: float) -> list[str]:
    entries = [("colour: which rows a cache holds", None), *((k[0], k[1]) for k in KINDS)]
    entries += [("line: whose cache it is", None), ("two GPUs share one, each row once", WITHOUT)]
    entries += [("each GPU has its own", f"{WITHOUT} alone")]
    parts = []
    for i, (label, css) in enumerate(entries):
        y = top + 22 * i + (8 if i >= 4 else 0)
        if css is None:
            parts.append(text(left, y + 4, label, css="head"))
            continue
        parts.append(f'<path class="line {css}" d="M{left:g} {y:g}h34"/>')
        parts.append(text(left + 44, y + 4, label))
    return parts


def draw(figures: Mapping[str, Any]) -> str:
    width, height = 2 * PANEL_WIDTH, TOP + 2 * PANEL_HEIGHT
    kind = f"{figures['kind']}: hits and bytes are counted, times follow from the devices' metadata"
    title = f"Caches of four GPUs in cliques of two, {figures['graph']}"
    parts = [text(16, 26, title, css="head"), text(16, 46, kind, css="soft")]
    for i, panel in enumerate(panels(figures["rows"])):
        across, down = i % 2 * PANEL_WIDTH, TOP + i // 2 * PANEL_HEIGHT
        body = draw_panel(panel, figures["rows"])
        parts.append(f'<g transform="translate({across:g} {down:g})">{body}</g>')
    parts += legend(PANEL_WIDTH + 58, TOP + PANEL_HEIGHT + 60)
    css = style(COLOURS, ".alone{stroke-dasharray:5 3}")
    return picture(width, height, css, "".join(parts))


def table(figures: Mapping[str, Any]) -> str:
    rows = figures["rows"]
    head = ["`cache_planner=`"]
    for ratio in SHOWN:
        head += [f"{100 * ratio:g} %: rows hit", "MB a step", "s an epoch"]
    found = {name: without_cache(rows, name) for name in ("link_mb", "epoch_time_s")}
    body = [[f"`{WITHOUT}`", *_cells({**found, "feature_hit_rate": None}) * len(SHOWN)]]
    for policy, of in lines_of(rows).items():
        by_ratio = {row["ratio"]: row for row in of}
        cells = [cell for ratio in SHOWN for cell in _cells(by_ratio[ratio])]
        body.append([f"`{policy}`", *cells])
    return make_docs.table(head, body)


def _cells(row: Mapping[str, Any]) -> list[str]:
    hits = row["feature_hit_rate"]
    hits = "" if hits is None else f"{100 * hits:.1f} %"
    return [hits, f"{row['link_mb']:.2f}", f"{row['epoch_time_s']:.2f}"]


def main() -> None:
    sweep, target = Path(sys.argv[1]), Path(sys.argv[2])
    figures = figures_of(sweep)
    data = target.with_suffix(".json")
    data.write_text(json.dumps(figures, indent=1) + "\n")
    target.write_text(draw(figures))
    print(f"{table(figures)}{data}\n{target}")


if __name__ == "__main__":
    main()
