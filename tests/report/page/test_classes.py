import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import look_at

from gnnscale.core.metrics import MAX_CONFUSION, ClassCounts, count_classes
from gnnscale.report.page.classes import classes
from gnnscale.run.records import GraphStats


def counted(num_classes: int) -> ClassCounts:
    """Class ``i`` has a million vertices, of which more are found the larger ``i`` is.

    The last class is that of no vertex; all that are not found are predicted to be of it.
    """
    wanted = (*[1_000_000] * (num_classes - 1), 0)
    right = (*(1_000_000 * i // num_classes for i in range(num_classes - 1)), 0)
    chosen = (*right[:-1], sum(wanted) - sum(right))
    matrix = np.diag(right)
    matrix[:-1, -1] = np.array(wanted[:-1]) - right[:-1]
    confusion = tuple((*row,) for row in matrix.tolist()) if num_classes <= MAX_CONFUSION else None
    return ClassCounts(actual=wanted, chosen=chosen, right=right, confusion=confusion)


def summary(counts: ClassCounts) -> dict[str, Any]:
    found = [
        {
            **{"name": None, **counts.scores(i)},
            **{"num_vertices": counts.actual[i], "num_predicted": counts.chosen[i]},
        }
        for i in range(len(counts.actual))
    ]
    return {"classes": found, "confusion": counts.confusion}


def names(page: str) -> list[list[str]]:
    tables = re.findall(r'<div class="scores">(.*?)</div>', page, re.S)
    return [re.findall(r'<td class="left">(.*?)</td>', each) for each in tables]


def test_all_of_fifty_classes_are_shown() -> None:
    found = names(classes(summary(counted(50))))
    assert [len(each) for each in found] == [25, 25]
    assert [int(name) for each in found for name in each] == [*range(50)]
    assert [len(each) for each in names(classes(summary(counted(12))))] == [12]
    assert classes({"classes": None, "confusion": None}) == ""


def test_of_more_the_worst_and_the_best_are_shown() -> None:
    page = classes(summary(counted(71)))
    found = [[int(name) for name in each] for each in names(page)]
    # Class 70, of no vertex, has the least F1 of all, and is not among them.
    assert found == [[*range(25)], [*range(69, 44, -1)]]
    assert "the 25 classes of lowest F1, and the 25 of highest; 21 others are left out" in page
    # Two of 60 classes have test vertices: a table of the worse, and one of the better.
    counts = count_classes(np.eye(60)[[0, 0, 0, 1]], np.array([0, 0, 1, 1]))
    page = classes(summary(counts) | {"confusion": None})
    assert names(page) == [["1"], ["0"]]
    assert "58 others are left out" in page


#: Leaves in the title how wide the window is, how many boxes or cells of the section are cut off
#: or beyond it, and how many cells of scores there are.
_CUT = """<script>
addEventListener("load", () => {
  const titles = [...document.querySelectorAll("h2")];
  const part = titles.find((e) => e.innerText === "Classes").parentElement;
  const cut = [...part.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    const style = getComputedStyle(e);
    if (style.display === "inline" || style.fontSize === "0px") return false;
    const scrolls = e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1;
    return box.right > innerWidth || box.left < 0 || scrolls;
  });
  const shown = [...part.querySelectorAll(".scores td")].filter((e) => e.checkVisibility());
  top.document.title = [innerWidth, cut.length, shown.length].join(" ");
});
</script></body>"""


@pytest.mark.long
@pytest.mark.parametrize(("num_classes", "width"), [(6, 400), (20, 1200), (50, 400), (400, 1200)])
def test_a_browser_shows_all_rows_and_columns(
    tmp_path: Path, cpu_run: Any, write_run: Any, num_classes: int, width: int
) -> None:
    """Nothing scrolls inside the section, so that its picture and its print have everything."""
    words = [f"Home and kitchen, {i}" if i % 3 else f"toys {i}" for i in range(num_classes)]
    sizes = {"num_vertices": 9, "num_edges": 7, "num_features": 2, "num_classes": num_classes}
    graph = GraphStats(
        **sizes, feature_dtype="float32", split_of="vertices", split=(3, 1, 5), classes=words
    )
    made = replace(cpu_run.started, graph=graph, test_classes=counted(num_classes))
    page, _ = write_run(tmp_path, replace(cpu_run, started=made))
    title = look_at(page, _CUT, tmp_path, width=width)[1]
    assert title == f"{width} 0 {6 * min(num_classes, 50)}"
