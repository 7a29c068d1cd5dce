import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import READABLE, look_at
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.report.page.sweep import render

FIGURES = {
    **{"status": "completed", "epochs": 2, "best_epoch": 1, "metric": "accuracy", "error": None},
    **{"valid_metric": 0.5, "test_metric": 0.5, "epoch_time_s": 1.5, "mteps": 6.5},
    **{"speed_up": None, "edge_cut_fraction": None, "replication_factor": None, "step_mb": None},
    **{"feature_hit_rate": None, "topology_hit_rate": None, "link_mb": None},
    **{"figures": "measured", "report": None},
}
COLUMNS = [name for name in FIGURES if name not in ("metric", "error", "figures", "report")]


def jobs(*found: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"job": number, "options": options, **FIGURES, **figures}
        for number, (options, figures) in enumerate(found)
    ]


def page_of(found: list[dict[str, Any]], **options: Any) -> str:
    return render(found, **{"columns": COLUMNS, "equal": [], "sequential": True, **options})


def plots(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def grids(page: str) -> list[list[list[str]]]:
    found = re.findall(r'<table class="heat">.*?</table>', page, re.DOTALL)
    return [
        [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(each)[1:]]
        for each in found
    ]


def two_seeds(figure: str = "test_metric") -> list[dict[str, Any]]:
    values = {("hash", "0"): 0.5, ("hash", "1"): 0.7, ("metis", "0"): 0.8, ("metis", "1"): 0.9}
    return jobs(
        *(
            ({"partitioner": part, "seed": seed}, {figure: value})
            for (part, seed), value in values.items()
        )
    )


def test_means_and_deviations_over_seeds_by_hand() -> None:
    valid, test, seconds = plots(page_of(two_seeds()))
    assert test.get("aria-label") == (
        "Test accuracy, higher is better: partitioner=hash 0.6000 ± 0.1414 (2 jobs); "
        "partitioner=metis 0.8500 ± 0.0707 (2 jobs)"
    )
    assert "partitioner=hash 0.5000 ± 0.0000 (2 jobs)" in str(valid.get("aria-label"))
    assert str(seconds.get("aria-label")).endswith("partitioner=metis 1.50 ± 0.00 s (2 jobs)")
    dots = [float(each.get("cx", 0)) for each in test.iter("circle")]
    # The axis is linear: 0.5, 0.7, 0.8 and 0.9.
    gap = (dots[3] - dots[0]) / 4
    assert dots == pytest.approx([dots[0] + gap * each for each in (0, 2, 3, 4)], abs=0.11)
    # A bar reaches from mean - deviation to mean + deviation.
    low, high = float(ends(test)[1]), float(ends(test)[2])
    middle = dots[0] + gap
    assert [low, high] == pytest.approx([middle - 1.414 * gap, middle + 1.414 * gap], abs=0.2)
    means = [float(re.findall(r"M([\d.]+)", each)[0]) for each in marks(test, "mean")]
    assert means == pytest.approx([(a + b) / 2 for a, b in (dots[:2], dots[2:])], abs=0.11)


def test_axes_of_shares_and_times() -> None:
    """A single value is on the whole scale; the bar of 0.7 and 1 ends at 1."""
    _, test, _ = plots(page_of(jobs(({}, {"test_metric": 0.25}))))
    assert labels(test) == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "0.2500"]
    _, test, _ = plots(
        page_of(jobs(({"seed": "0"}, {"test_metric": 0.7}), ({"seed": "1"}, {"test_metric": 1})))
    )
    shown = [float(each) for each in labels(test)[:-1]]
    assert shown[0] >= 0.6
    assert shown[-1] == 1
    # The bar has one end.
    assert len(marks(test, "spread")) == 2
    _, error, _ = plots(page_of(jobs(({}, {"test_metric": 2.5, "metric": "rmse"}))))
    assert labels(error) == ["0", "1", "2", "2.5000"]
    found = jobs(({"a": "1"}, {"epoch_time_s": 0.034}), ({"a": "2"}, {"epoch_time_s": 0.0051}))
    *_, seconds = plots(page_of(found))
    assert labels(seconds)[-4:] == ["a=1", "34.0 ms", "a=2", "5.10 ms"]
    assert labels(seconds)[:2] == ["0 ms", "10 ms"]
    assert "<td>34.0 ms</td>" in page_of(found)


def labels(plot: ElementTree.Element) -> list[str]:
    return [str(each.text) for each in plot.iter("text")]


def marks(plot: ElementTree.Element, css: str) -> list[str]:
    return [
        str(each.get("d")) for each in plot.iter("path") if str(each.get("class")).startswith(css)
    ]


def ends(plot: ElementTree.Element) -> list[str]:
    return [re.findall(r"M([\d.]+)", each)[0] for each in marks(plot, "spread")]


def test_the_best_is_chosen_by_validation() -> None:
    found = jobs(
        ({"lr": "0.1"}, {"valid_metric": 0.9, "test_metric": 0.25}),
        ({"lr": "0.2"}, {"valid_metric": 0.6, "test_metric": 0.75}),
    )
    assert "Best by validation: <b>lr=0.1</b>" in page_of(found)
    assert "<b>0.2500</b><span>test accuracy of the same job</span>" in page_of(found)
    errors = [{**job, "metric": "rmse"} for job in found]
    assert "Best by validation: <b>lr=0.2</b>" in page_of(errors)
    assert "Test rmse, lower is better" in page_of(errors)


def test_a_grid_of_two_options_by_hand() -> None:
    cells = {("8", "x"): 0.25, ("8", "y"): 0.5, ("16", "x"): 0.75, ("16", "y"): None}
    found = jobs(
        *(
            ({"hidden": a, "planner": b, "seed": seed}, {"test_metric": value and value + change})
            for (a, b), value in cells.items()
            for seed, change in (("0", 0.1), ("1", -0.1))
        )
    )
    _, test, _ = grids(page_of(found))
    assert test == [["", "x", "y"], ["8", "0.2500", "0.5000"], ["16", "0.7500", "–"]]
    shares = re.findall(r"--share:(\d+)%", page_of(found).split("Test accuracy")[-1])
    assert shares[:3] == ["8", "29", "50"]
    lower = re.findall(
        r"--share:(\d+)%",
        page_of([{**job, "metric": "mae"} for job in found]).split("Test mae")[-1],
    )
    assert lower[:3] == ["50", "29", "8"]


def test_what_is_not_to_be_compared_is_not() -> None:
    columns = [name for name in COLUMNS if name not in ("epoch_time_s", "mteps", "speed_up")]
    page = page_of(two_seeds(), columns=columns, sequential=False)
    assert len(plots(page)) == 2
    assert "ran at the same time" in page
    assert "time per epoch" not in page
    page = page_of(jobs(({"metrics": "a"}, {}), ({"metrics": "b"}, {"metric": "macro_f1"})))
    assert "different metrics" in page
    assert "<td>macro_f1</td>" in page
    assert len(plots(page)) == 1


def test_all_jobs_are_in_the_table_with_links_and_lines() -> None:
    failed = {"status": "failed", "error": "batch_size=0: must be at least 1", "metric": None}
    failed |= dict.fromkeys(("valid_metric", "test_metric", "epoch_time_s", "mteps"))
    page = page_of(
        jobs(
            ({"batch_size": "8"}, {"report": "0/report.html", "figures": "emulated"}),
            ({"batch_size": "16"}, {"report": "a b:c/report.html"}),
            ({"batch_size": "0"}, {**failed, "figures": None}),
        )
    )
    assert "2 of 3 jobs completed." in page
    assert re.findall(r'href="(.*?)"', page) == ["./0/report.html", "./a%20b%3Ac/report.html"]
    assert '<a href="./0/report.html">0</a> <span class="badge">emulated</span>' in page
    assert "not real hardware" in page
    line = "job 2, batch_size=0: failed: batch_size=0: must be at least 1"
    assert f'<div class="error">{line}</div>' in page
    assert "epochs 2" in page.split("The same in all jobs")[1]


_numbers = st.none() | st.floats(-1e15, 1e15) | st.integers(-(10**14), 10**14)


@pytest.mark.long
@settings(max_examples=20)
@given(st.lists(st.tuples(_numbers, _numbers, _numbers), min_size=1, max_size=6))
def test_any_figures_stay_inside_their_plot(values: list[tuple[Any, Any, Any]]) -> None:
    found = jobs(
        *(
            (
                {"a": str(i % 2), "b": str(i % 3)},
                {"valid_metric": valid, "test_metric": test, "epoch_time_s": seconds},
            )
            for i, (valid, test, seconds) in enumerate(values)
        )
    )
    for plot in plots(page_of(found)):
        places = [float(each.get("cx", "nan")) for each in plot.iter("circle")]
        assert all(math.isfinite(each) and 10 <= each <= 550 for each in places)


def test_a_search_of_many_jobs_shows_its_best() -> None:
    found = jobs(*(({"lr": str(i)}, {"test_metric": i / 100}) for i in range(60)))
    page = page_of(found)
    assert "The best 40 of 60 rows." in page
    assert len(re.findall("<tr>", page)) == 61
    assert "lr=20 " in str(plots(page)[1].get("aria-label"))
    assert "lr=19 " not in str(plots(page)[1].get("aria-label"))


#: Leaves in the title which tables are wider than their room.
_MEASURE = """<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll(".wide")];
  const cut = wide.filter((each) => each.scrollWidth > each.clientWidth).length;
  document.title = `${wide.length} tables, ${cut} cut`;
});
</script></body>"""


@pytest.mark.long
def test_a_browser_has_room_for_every_column(tmp_path: Path) -> None:
    figures = ("edge_cut_fraction", "replication_factor", "step_mb", "speed_up", "link_mb")
    found = [
        (
            {"cache_planner": f"legion{i}", "partitioner": f"edge_cut{i % 2}", "seed": str(i)},
            {"epochs": i, "best_epoch": i, "valid_metric": i / 7, "test_metric": i / 9}
            | {"mteps": 1.5 * i, "epoch_time_s": 3 + i, "figures": ("measured", "emulated")[i % 2]}
            | {"feature_hit_rate": i / 5, "topology_hit_rate": i / 6}
            | dict.fromkeys(figures, i / 2),
        )
        for i in range(4)
    ]
    # The page's own policy allows no script, so the one that measures it needs another.
    page = page_of(jobs(*found)).replace("default-src 'none'", "script-src 'unsafe-inline'")
    assert look_at(page, _MEASURE, tmp_path)[1] == "5 tables, 0 cut"


#: Leaves in the title which texts of plots touch a dot or a bar, and what breaks in a headline.
_TOUCH = """<script>
addEventListener("load", () => {
  const found = [];
  for (const plot of document.querySelectorAll("svg.dots")) {
    const marks = [...plot.querySelectorAll("circle, .spread")];
    const drawn = marks.map((each) => each.getBoundingClientRect());
    for (const text of plot.querySelectorAll(".title, .strong")) {
      const box = text.getBoundingClientRect();
      const beside = (e) => e.right < box.left || e.left > box.right;
      const free = (e) => beside(e) || e.bottom < box.top || e.top > box.bottom;
      if (!drawn.every(free)) found.push(text.textContent);
    }
  }
  for (const tile of document.querySelectorAll(".tile b"))
    if (tile.getBoundingClientRect().height > 30) found.push(tile.textContent);
  document.title = found.join(" | ");
});
</script></body>"""


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 900, 600, 390])
def test_in_a_browser_no_text_touches_a_dot_and_all_is_readable(tmp_path: Path, width: int) -> None:
    found = [
        (
            {"partitioner": part, "cache_planner": planner, "seed": seed},
            {"test_metric": 0.7 + int(seed) / 8, "epoch_time_s": 12.5 + int(seed)},
        )
        for part in ("hash", "metis")
        for planner in ("none", "a_planner_of_a_very_long_name_without_spaces")
        for seed in "012"
    ]
    page = page_of(jobs(*found)).replace("default-src 'none'", "script-src 'unsafe-inline'")
    script = READABLE if width in (390, 1280) else _TOUCH
    assert look_at(page, script, tmp_path, width=width)[1] == ""
