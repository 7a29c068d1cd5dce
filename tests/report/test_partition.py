from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from gnnscale.graph import Graph
from gnnscale.partition import (
    P3,
    Hash,
    NoPartitioner,
    Partition,
    PartitionerConfig,
    Random,
    make_partition,
    read_partition,
)
from gnnscale.report.partition import draw, print_partition

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, random_graph: Callable[..., Graph]
) -> Callable[..., Partition]:
    """Make a partition of a graph with 300 vertices and 3,000 edges."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    graph = random_graph(num_features=100)

    def make(config: PartitionerConfig, num_parts: int) -> Partition:
        options: dict[str, Any] = {"num_parts": num_parts, "num_hops": 2, "num_threads": 1}
        return read_partition(make_partition(config, graph, **options), graph)

    return make


def printed(partition: Partition, graph: str = "mine") -> str:
    stream = io.StringIO()
    print_partition(partition, graph=graph, console=Console(file=stream, width=40))
    return stream.getvalue()


def texts(partition: Partition, graph: str = "mine") -> list[str]:
    root = ElementTree.fromstring(draw(partition, graph=graph))
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def test_a_table_has_a_row_for_each_part(made: Callable[..., Partition]) -> None:
    partition = made(Hash(), 3)
    text = printed(partition, "[bold]mine")
    assert "[bold]mine: 3 parts by hash" in text
    part = partition.figures.parts[1]
    row = next(line for line in text.splitlines() if line.startswith("│        1 "))
    cells = [each.strip() for each in row.split("│")][1:-1]
    replicas = part.num_vertices - part.num_inner
    numbers = (part.num_vertices, part.num_inner, replicas, part.num_train, part.num_edges)
    assert cells == ["1", *(f"{each:,}" for each in numbers)]
    assert f"edges cut {partition.figures.edge_cut_fraction * 100:.1f} %" in text
    assert f"replication factor {partition.figures.replication_factor:.2f}" in text
    assert "(predicted " in text


@pytest.mark.parametrize("config", [P3(), NoPartitioner()])
def test_what_is_absent_is_not_zero(
    made: Callable[..., Partition], config: PartitionerConfig
) -> None:
    text = printed(made(config, 2))
    assert "edges cut –, replication factor 2.00" in text
    assert "│   – │" in text or "│     – │" in text
    drawn = texts(made(config, 2))
    assert "every part has the whole topology, replication factor 2.00" in drawn
    assert "edges between parts" not in drawn
    assert "training vertices" not in drawn


def test_notes_and_unknown_memory_are_shown(made: Callable[..., Partition]) -> None:
    partition = made(Hash(), 2)
    figures = dataclasses.replace(
        partition.figures, notes=("[red]a note",), peak_rss_bytes=None, seconds=1000.0
    )
    text = printed(dataclasses.replace(partition, figures=figures))
    assert text.endswith("[red]a note\n")
    assert "time 1,000 s" in text
    assert "peak memory – (" in text


def test_a_picture_shows_sizes_and_cuts(made: Callable[..., Partition]) -> None:
    partition = made(Hash(), 3)
    drawn = texts(partition, "a <b> & c")
    assert drawn[0] == "a <b> & c: 3 parts by hash"
    for title in ("vertices", "in-edges", "training vertices", "edges between parts"):
        assert title in drawn
    part = partition.figures.parts[2]
    assert f"{part.num_inner} + {part.num_vertices - part.num_inner}" in drawn
    assert f"{part.num_edges:,}" in drawn
    for row in partition.figures.cut or ():
        assert {f"{count:,}" for count in row} <= set(drawn)


def test_columns_are_drawn_where_they_lie(made: Callable[..., Partition]) -> None:
    drawn = texts(made(P3(), 2))
    assert {"feature columns", "100 in all", "0–49", "50–99"} <= set(drawn)


@pytest.mark.parametrize("config", [Random(), P3()])
def test_of_very_many_parts_some_are_shown(
    made: Callable[..., Partition], config: PartitionerConfig
) -> None:
    partition = made(config, 70)
    drawn = texts(partition)
    assert any("the first 64 parts are shown" in each for each in drawn)
    assert "63" in drawn
    assert "64" not in [each for each in drawn if each in ("63", "64")]
    assert "\n│      ... │" in printed(partition)


@pytest.mark.parametrize("num_parts", [1, 2, 16, 33, 64])
def test_nothing_leaves_the_picture(made: Callable[..., Partition], num_parts: int) -> None:
    root = ElementTree.fromstring(draw(made(Random(), num_parts), graph="mine"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for each in root.iter(f"{SVG}rect"):
        assert 0 <= float(each.get("x", 0)) <= width - float(each.get("width", 0))
        assert 0 <= float(each.get("y", 0)) <= height - float(each.get("height", 0))
    for each in root.iter(f"{SVG}text"):
        size = 6.5 * len(each.text or "") * (each.get("text-anchor") == "start")
        assert 0 <= float(each.get("x", 0)) <= width - size
        assert 0 <= float(each.get("y", 0)) <= height
