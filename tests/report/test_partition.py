from collections.abc import Callable
from dataclasses import replace

import pytest
from pictures import assert_nothing_leaves, texts
from printed import on_console

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

Made = Callable[..., Partition]


@pytest.fixture
def made(tmp_path, monkeypatch, random_graph) -> Made:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    graph = random_graph(num_features=100)

    def make(config: PartitionerConfig, num_parts: int) -> Partition:
        made = make_partition(config, graph, num_parts=num_parts, num_hops=2, num_threads=1)
        return read_partition(made, graph)

    return make


def printed(partition: Partition, graph: str = "mine") -> str:
    return on_console(print_partition, partition, graph=graph, width=40)


def drawn(partition: Partition, graph: str = "mine") -> list[str]:
    return texts(draw(partition, graph=graph))


def test_a_table_and_a_picture_have_every_part(made: Made) -> None:
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
    shown = drawn(partition, "a <b> & c")
    assert shown[0] == "a <b> & c: 3 parts by hash"
    assert {"vertices", "in-edges", "training vertices", "edges between parts"} <= set(shown)
    part = partition.figures.parts[2]
    assert f"{part.num_inner} + {part.num_vertices - part.num_inner}" in shown
    assert f"{part.num_edges:,}" in shown
    for row in partition.figures.cut or ():
        assert {f"{count:,}" for count in row} <= set(shown)


@pytest.mark.parametrize("config", [P3(), NoPartitioner()])
def test_what_is_absent_is_not_zero(made: Made, config: PartitionerConfig) -> None:
    text = printed(made(config, 2))
    assert "edges cut –, replication factor 2.00" in text
    assert "│   – │" in text or "│     – │" in text
    shown = drawn(made(config, 2))
    assert "every part has the full topology, replication factor 2.00" in shown
    assert "edges between parts" not in shown
    assert "training vertices" not in shown


def test_notes_unknown_memory_and_columns_are_shown(made: Made) -> None:
    partition = made(Hash(), 2)
    noted = {"notes": ("[red]a note",), "peak_rss_bytes": None, "seconds": 1000.0}
    text = printed(replace(partition, figures=replace(partition.figures, **noted)))
    assert text.endswith("[red]a note\n")
    assert "time 1,000 s" in text
    assert "peak memory – (" in text
    shown = drawn(made(P3(), 2))
    assert {"feature columns", "100 in all", "0–49", "50–99"} <= set(shown)


@pytest.mark.parametrize("config", [Random(), P3()])
def test_of_very_many_parts_some_are_shown(made: Made, config: PartitionerConfig) -> None:
    partition = made(config, 70)
    shown = drawn(partition)
    assert any("the first 64 parts are shown" in each for each in shown)
    assert "63" in shown
    assert "64" not in shown
    assert "\n│      ... │" in printed(partition)


@pytest.mark.parametrize("num_parts", [1, 2, 33])
def test_nothing_leaves_the_picture(made: Made, num_parts: int) -> None:
    assert_nothing_leaves(draw(made(Random(), num_parts), graph="mine"))
