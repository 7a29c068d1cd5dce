from xml.etree import ElementTree

import pictures

from gnnscale.report.partition import (
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


def edges(counts: list[list[int]]) -> Drawing:
    return edge_map(counts, grid_for(len(counts)), x_start=60, top=80)


def test_a_picture_is_a_file_of_its_own() -> None:
    drawing = size_bars([panel(BarRow(solid=1))], grid_for(1), x_start=60, top=80)
    svg = picture("a < b", ["note & note"], [drawing], width=300, height=200)
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{pictures.SVG}svg"
    assert root.get("width") == "300"
    assert "prefers-color-scheme:dark" in svg
    assert pictures.texts(svg)[:2] == ["a < b", "note & note"]
    long = ElementTree.fromstring(picture("x" * 90, [], [], width=300, height=200))
    assert float(long.get("width", 0)) > 800
