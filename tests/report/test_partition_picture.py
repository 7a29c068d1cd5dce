from xml.etree import ElementTree

import pictures
import pytest

from gnnscale.report.page.document import badge, column_table
from gnnscale.report.partition import (
    MAX_ROWS,
    BarRow,
    Drawing,
    Panel,
    edge_map,
    grid_for,
    picture,
    size_bars,
)


def boxes(drawing: Drawing, css: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(f"<g>{''.join(drawing.elements)}</g>")
    return [each.attrib for each in root.iter("rect") if each.get("class") == css]


def texts(drawing: Drawing) -> list[str]:
    root = ElementTree.fromstring(f"<g>{''.join(drawing.elements)}</g>")
    return [each.text or "" for each in root.iter("text")]


def panel(*rows: BarRow, **options: object) -> Panel:
    return Panel(
        title="sizes", note="of parts", rows=rows, length=100.0, label_width=50.0, **options
    )


def test_bars_are_to_scale() -> None:
    rows = (
        BarRow(solid=10, lighter=30, label="a"),
        BarRow(solid=20, label="b"),
        BarRow(solid=5, start=10),
    )
    drawing = size_bars([panel(*rows)], grid_for(3), x_start=60, top=80)
    solid = [(float(box["x"]), float(box["width"])) for box in boxes(drawing, "bar")]
    assert solid == [(60, 25), (60, 50), (85, 12.5)]
    (lighter,) = boxes(drawing, "part")
    assert (float(lighter["x"]), float(lighter["width"])) == (85, 75)
    assert {"a", "b", "0", "1", "2", "sizes", "of parts"} <= set(texts(drawing))
    assert (drawing.width, drawing.height) == (150, 3 * grid_for(3).row)
    drawing = size_bars([panel(BarRow(solid=0), BarRow(solid=0))], grid_for(2), x_start=0, top=0)
    assert [box["width"] for box in boxes(drawing, "bar")] == ["0", "0"]


def test_the_mean_is_marked_where_it_means_something() -> None:
    for mean in (True, False):
        rows = (BarRow(solid=10), BarRow(solid=30))
        drawing = size_bars([panel(*rows, mean=mean)], grid_for(2), x_start=0, top=0)
        marks = [each for each in drawing.elements if 'class="mean"' in each]
        assert ["M66.7 0v68" in each for each in marks] == [True] * mean


def edges(counts: list[list[int]]) -> Drawing:
    return edge_map(counts, grid_for(len(counts)), x_start=60, top=80)


def test_colours_compare_what_lies_between_parts() -> None:
    drawing = edges([[900, 40], [10, 800]])
    cells = [box for box in boxes(drawing, "cell") if "fill-opacity" in box][:2]
    assert [box["fill-opacity"] for box in cells] == ["1.00", "0.25"]
    assert {"900", "40", "10", "800", "40 edges"} <= set(texts(drawing))
    whole = "".join(drawing.elements)
    assert "<title>10 edges from part 1 to part 0</title>" in whole
    assert "<title>900 edges within part 0</title>" in whole
    for none in ([[0]], [[0, 0], [0, 0]]):
        assert "0 edges" in texts(edges(none))


def test_a_part_has_one_row_in_bars_and_map() -> None:
    bars = size_bars([panel(*[BarRow(solid=1)] * 5)], grid_for(5), x_start=60, top=80)
    cells = edges([[1] * 5 for _ in range(5)])
    rows = sorted({float(box["y"]) for box in boxes(cells, "own") if box["height"] != "12"})
    middles = [float(box["y"]) + float(box["height"]) / 2 for box in boxes(bars, "bar")]
    assert middles == [row + grid_for(5).row / 2 for row in rows]


@pytest.mark.parametrize("num_parts", [1, 2, 9, 16, 33, MAX_ROWS])
def test_labels_of_columns_do_not_meet(num_parts: int) -> None:
    grid = grid_for(num_parts)
    # A digit of a small label takes 6 pixels at most, one of another 7.
    widest = len(str(num_parts - 1)) * (7 if grid.numbers else 6)
    assert widest < grid.cell * grid.label_stride
    # A number has five characters at most.
    assert not grid.numbers or grid.cell > 5 * 7
    # And text of 9 or 11 pixels has a row to itself.
    assert grid.row >= (13 if grid.numbers else 11)
    shown = [each for each in texts(edges([[0] * num_parts] * num_parts)) if each.isdigit()]
    expected = 2 if (num_parts - 1) % grid.label_stride == 0 else 1
    assert shown.count(str(num_parts - 1)) == expected + 2 * (num_parts == 1)


def test_a_picture_is_a_file_of_its_own() -> None:
    drawing = size_bars([panel(BarRow(solid=1))], grid_for(1), x_start=60, top=80)
    svg = picture("a < b", "note & note", [drawing], width=300, height=200)
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{pictures.SVG}svg"
    assert root.get("width") == "300"
    assert "prefers-color-scheme:dark" in svg
    assert pictures.texts(svg)[:2] == ["a < b", "note & note"]
    long = ElementTree.fromstring(picture("x" * 90, "", [], width=300, height=200))
    assert float(long.get("width", 0)) > 800


def test_measured_figures_need_no_mark() -> None:
    assert badge("measured") == ""
    assert badge("csim") == ' <span class="badge">csim</span>'
    assert badge("<b>") == ' <span class="badge">&lt;b&gt;</span>'


def test_columns_of_absent_figures_are_left_out() -> None:
    names = {"device": ["a", "b"], "kind": ["–", "–"]}
    shown = column_table(names, {"hits": ["1", "–"], "misses": ["–", "–"]})
    assert shown == (
        '<table><tr><th class="left">device</th><th class="left">kind</th><th>hits</th></tr>'
        '<tr><td class="left">a</td><td class="left">–</td><td>1</td></tr>'
        '<tr><td class="left">b</td><td class="left">–</td><td>–</td></tr></table>'
    )
