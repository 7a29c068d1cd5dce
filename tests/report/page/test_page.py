import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import READABLE, look_at
from step_files import written_steps

from gnnscale.core.metrics import count_classes
from gnnscale.core.stages import STAGES
from gnnscale.planner import Threads
from gnnscale.report.page.page import learning
from gnnscale.report.summary import summarize
from gnnscale.run.records import GraphStats

SECTIONS = [
    *("Devices", "Loss and metric", "Stage times", "Traffic", "Batch shares and threads"),
    *("Predicted and measured", "Pipeline", "Memory", "Options and command"),
]


def section(page: str, name: str) -> str:
    return page.split(f"<h2>{name}</h2>")[1].split("<h2>")[0]


class Nesting(HTMLParser):
    """Checks that what is opened is closed, and collects the headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_page_is_well_formed(tmp_path, hybrid_run, write_run, cpu_run) -> None:
    page, _ = write_run(tmp_path, hybrid_run)
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert nesting.headings == SECTIONS
    # It needs no network.
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)\s*=|url\(|@import""", page) == []
    pictures = re.findall(r'<svg [^>]*role="img"[^>]*>', page)
    assert len(pictures) >= 8
    assert all('aria-label="' in each for each in pictures)
    for name in ("Devices", "Stage times", "Batch shares and threads", "Memory"):
        assert 'class="badge">emulated' in section(page, name)
    page, _ = write_run(tmp_path / "cpu", cpu_run)
    assert 'class="badge"' not in page


def test_simulated_card(tmp_path, hybrid_run, simulated_run, write_run) -> None:
    page, summary = write_run(tmp_path, simulated_run)
    assert summary["devices"][1]["csim"]["bottleneck"] == "aggregate"
    assert set(re.findall('class="badge">(.*?)<', page)) == {"csim"}
    assert 'fpga <span class="badge">csim' in section(page, "Devices")
    for name in ("Stage times", "Predicted and measured", "Memory"):
        assert 'fpga:1 <span class="badge">csim' in section(page, name)
    assert "fpga:1 (csim)" in section(page, "Pipeline")
    assert "as simulating took" in section(page, "Pipeline")
    assert "ms csim (simulating included) over" in section(page, "Predicted and measured")
    assert page.split("<h2>")[0].count("this machine, which simulates") == 1
    other, _ = write_run(tmp_path / "hybrid", hybrid_run)
    other = other.replace(str(tmp_path), "")
    assert "simulat" not in other.split("</style>", 1)[1].split("<script>")[0]


def test_what_no_device_has_is_hidden(
    tmp_path, hybrid_run, cpu_run, exchange_run, write_run, cached_run
) -> None:
    def body(run: Any, name: str) -> str:
        page, _ = write_run(tmp_path / name, run)
        return page.split("</style>", 1)[1].split("<script>")[0]

    hybrid, exchange = body(hybrid_run, "hybrid"), body(exchange_run, "exchange")
    assert "exchange" not in hybrid
    assert "<th>transfer s</th>" in hybrid
    for name in ("Devices", "Stage times", "Predicted and measured", "Pipeline"):
        assert "exchange" in section(exchange, name)
    assert "transfer" not in body(cpu_run, "cpu")
    page, _ = write_run(tmp_path, cached_run)
    assert "<td>75 %</td>" in section(page, "Devices")
    traffic = section(page, "Traffic")
    assert "Over the link between host and device" in traffic
    assert "<th>misses</th><th>hit rate</th>" in traffic
    page, _ = write_run(tmp_path / "cpu", cpu_run)
    assert "<h2>Traffic</h2>" not in page
    assert "Traffic: No device has a link or a cache." in section(page, "Not shown")
    assert page.index("<h2>Not shown</h2>") < page.index("<h2>Options and command</h2>")
    assert "requests" not in section(page, "Devices")


def test_peaks_that_are_cut_off(tmp_path: Path, hybrid_run: Any, write_run: Any) -> None:
    """Both devices have one axis, above which one of them goes once."""
    steps = list(hybrid_run.steps)
    first, second = steps[10].devices
    slow = replace(first.stages, propagate=1.5)
    steps[10] = replace(steps[10], devices=(replace(first, stages=slow), second))
    page, _ = write_run(tmp_path, replace(hybrid_run, steps=tuple(steps)))
    cpu, emulated = section(page, "Stage times").split("<h3>")[1:]
    assert "Peaks are cut off; the highest is 1,500 ms." in cpu
    assert "Peaks" not in emulated


def test_each_stage_has_a_colour() -> None:
    css = (resources.files("gnnscale.report.page") / "page.css").read_text()
    for stage in STAGES:
        assert css.count(f"--{stage}:") == 2
        assert f".s-{stage} {{ --c: var(--{stage}); }}" in css


def test_all_metrics_are_in_a_table(tmp_path: Path, cpu_run: Any) -> None:
    """A run of links has the mean reciprocal rank, and the share of ranks up to ten."""
    steps = written_steps(tmp_path, cpu_run.steps)
    one = summarize(cpu_run.result, status="completed")
    assert "Metrics" not in learning(cpu_run.epochs, steps, one)
    last = replace(cpu_run.epochs[-1], valid_metric=0.8, valid_metrics={"mrr": 0.8, "hits@10": 0.9})
    history = (*cpu_run.epochs[:-1], last)
    test = {"mrr": 0.7, "hits@10": None}
    run = replace(cpu_run.started, measures=("mrr", "hits@10"), history=history, test_metrics=test)
    shown = learning(history, steps, summarize(run, status="completed"))
    table = shown.split("<h3>Metrics of the best epoch, 3</h3>")[1]
    assert re.findall("<t[dh].*?>(.*?)</t[dh]>", table) == [
        *("metric", "validation", "test"),
        *("mrr", "0.8000", "0.7000", "hits@10", "0.9000", "–"),
    ]


def test_a_run_of_one_worker_has_lines_for_threads_and_for_its_command(
    tmp_path, cpu_run, write_run
) -> None:
    page, _ = write_run(tmp_path, cpu_run)
    found = section(page, "Batch shares and threads")
    assert "Threads in every step: sample 2, load 2, propagate 2. Prefetch none:" in found
    assert "<svg" not in found
    steps = list(cpu_run.steps)
    changed = replace(steps[9].devices[0], threads=Threads(sample=1, load=3, propagate=2))
    steps[9] = replace(steps[9], devices=(changed,))
    page, _ = write_run(tmp_path / "changed", replace(cpu_run, steps=tuple(steps)))
    assert "<svg" in section(page, "Batch shares and threads")
    page, summary = write_run(tmp_path, cpu_run, command="gnnscale train a='<b>'")
    assert summary["command"] == "gnnscale train a='<b>'"
    assert "gnnscale train a=&#x27;&lt;b&gt;&#x27;</pre>" in section(page, "Options and command")
    page, summary = write_run(tmp_path / "other", cpu_run)
    assert summary["command"] is None
    assert "repeats" not in page


@pytest.mark.long
def test_a_long_run_stays_a_small_page(tmp_path: Path, make_run: Any, write_run: Any) -> None:
    page, _ = write_run(tmp_path, make_run(num_epochs=4, steps_per_epoch=1500))
    assert len(page) < 250_000
    assert "nothing changed after them" in page


#: Moves the pointer over each plot, and leaves in the title what the page then tells of it.
_MOVE = """<script>
addEventListener("load", () => {
  const tip = document.getElementById("tip");
  const texts = [...document.querySelectorAll("svg.chart")].map((chart) => {
    tip.replaceChildren();
    const box = chart.getBoundingClientRect();
    const at = { clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true };
    chart.dispatchEvent(new PointerEvent("pointermove", at));
    const section = chart.closest("section").querySelector("h2").innerText;
    const card = chart.closest(".card").querySelector("h3").firstChild.textContent.trim();
    return `${section}, ${card} = ${tip.innerText.replaceAll("\\n", "; ")}`;
  });
  document.title = texts.join(" | ");
});
</script></body>"""
#: What a plot tells in the middle of it, by its section and its own title.
_TOLD = {
    "Loss and metric, Training loss": (
        r"step 4\d; loss of a step\s+0\.\d+; mean of its epoch\s+\d\.\d+"
    ),
    "Loss and metric, Validation accuracy": r"epoch 2; validation accuracy\s+0\.6400",
    "Stage times, cpu:0": r"step 4\d; sample\s.+; load\s.+; propagate\s.+; sync\s+\d\.\d+",
    "Stage times, emulated:1": r"step 4\d; sample\s.+; transfer\s.+; sync\s+\d\.\d+",
    "Traffic, Over the link between host and device": r"step 4\d; emulated:1\s+0\.\d+",
    "Batch shares and threads, Share of the mini-batch": (
        r"step 4\d; cpu:0\s+28\.\d+; emulated:1\s+71\.\d+"
    ),
    "Batch shares and threads, Threads of cpu:0": r"step 4\d; sample\s.+; propagate\s+\d\.\d+",
    "Batch shares and threads, Threads of emulated:1": r"step 4\d; sample\s.+; load\s+\d\.\d+",
    "Memory, Memory per worker": r"epoch 2; cpu:0 peak RSS\s.+; emulated:1 peak RSS\s+\d\.\d+.*",
}


#: Leaves in the title which tables are wider than their room.
_MEASURE = """<script>
addEventListener("load", () => {
  const cut = [...document.querySelectorAll(".wide")].filter((e) => e.scrollWidth > e.clientWidth);
  document.title = cut.map((each) => each.closest(".card").innerText.split("\\n")[0]).join(" | ");
});
</script></body>"""


@pytest.mark.long
def test_a_browser_shows_it(tmp_path: Path, hybrid_run: Any, write_run: Any) -> None:
    page, _ = write_run(tmp_path, hybrid_run)
    seen, told = look_at(page, _MOVE, tmp_path)
    assert all(f"<h2>{section}</h2>" in seen for section in SECTIONS)
    shown = dict(each.split(" = ") for each in told.split(" | "))
    assert shown.keys() == _TOLD.keys()
    for plot, text in shown.items():
        assert re.fullmatch(_TOLD[plot], text), f"{plot}: {text}"


#: Leaves in the title which tables and lines are wider than their cards.
_OUTSIDE = """<script>
addEventListener("load", () => {
  const out = [...document.querySelectorAll(".card table, .card th, pre")].filter((each) => {
    const box = each.closest(".card").getBoundingClientRect();
    const cut = each.scrollWidth > each.clientWidth + 1;
    return cut || each.getBoundingClientRect().right > box.right;
  });
  document.title = out.map((each) => each.innerText).join(" | ");
});
</script></body>"""


@pytest.mark.long
@pytest.mark.parametrize("width", [900, 600])
def test_memory_and_the_command_stay_inside_their_cards(
    tmp_path: Path, hybrid_run: Any, write_run: Any, width: int
) -> None:
    command = f"gnnscale train dataset.raw={'a_long_folder/' * 30} " + "model.hidden=16 " * 20
    page, _ = write_run(tmp_path, hybrid_run, command=command)
    # Wide tables have their own test.
    page = page.replace('class="card wide"', 'class="card" hidden')
    assert look_at(page, _OUTSIDE, tmp_path, width=width)[1] == ""


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_readable_on_a_phone_and_has_no_holes_on_a_desk(
    tmp_path: Path, hybrid_run: Any, write_run: Any, width: int
) -> None:
    page, _ = write_run(tmp_path, hybrid_run)
    assert look_at(page, READABLE, tmp_path, width=width)[1] == ""


@pytest.mark.long
@pytest.mark.parametrize("run", ["cached_run", "exchange_run"])
def test_a_browser_has_room_for_every_table(run, tmp_path, write_run, request) -> None:
    page, _ = write_run(tmp_path, request.getfixturevalue(run))
    assert look_at(page, _MEASURE, tmp_path)[1] == ""


def test_scores_of_classes(tmp_path: Path, cpu_run: Any, write_run: Any) -> None:
    """Of 5 vertices: a, a, a, b, b are taken for a, b, b, b, b, and c is never there."""
    scores = np.eye(3)[[0, 1, 1, 1, 1]]
    counts = count_classes(scores, np.array([0, 0, 0, 1, 1]))
    sizes = {"num_vertices": 9000, "num_edges": 7, "num_features": 2, "num_classes": 3}
    split: Any = {"split_of": "vertices", "split": (3, 1, 5), "classes": ["a", "<b>", "c"]}
    graph = GraphStats(**sizes, feature_dtype="float32", **split)
    run = replace(cpu_run, started=replace(cpu_run.started, graph=graph, test_classes=counts))
    page, summary = write_run(tmp_path, run)
    found = section(page, "Classes")
    cells = re.findall(r"<tr>(.*?)</tr>", found.split("</table>")[0])
    assert [re.findall(r"<td.*?>(.*?)</td>", row) for row in cells[1:]] == [
        ["a", "1.0000", "0.3333", "0.5000", "3", "1"],
        ["&lt;b&gt;", "0.5000", "1.0000", "0.6667", "2", "4"],
        ["c", "–", "–", "–", "0", "0"],
    ]
    assert summary["confusion"] == [[1, 2, 0], [0, 2, 0], [0, 0, 0]]
    assert '<th scope="row" class="left">a</th><td style="--share:18%">1</td>' in found
    assert summary["classes"][1] == {
        **{"name": "<b>", "precision": 0.5, "recall": 1.0, "f1": 2 / 3},
        **{"num_vertices": 2, "num_predicted": 4},
    }
    assert "9,000 vertices, 7 edges, 2 features, 3 classes" in page
    assert "of the vertices 3 train, 1 validate, 5 test" in page
