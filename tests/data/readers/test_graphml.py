"""GraphML: attributes as columns, both kinds of direction, and what is refused in one line."""

import gzip
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import read_classes, read_ids
from gnnscale.data.readers.graphml import GraphMl

HEAD = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="k0" for="node" attr.name="label" attr.type="string"/>
<key id="k1" for="node" attr.name="age" attr.type="int"><default>7</default></key>
<key id="k2" for="edge" attr.name="weight" attr.type="double"/>
<key id="k3" for="node" yfiles.type="nodegraphics"/>
"""
GRAPH = """<graph id="G" edgedefault="directed">
<node id="anna"><data key="k0">red</data><data key="k3"><y xmlns="yworks">3</y></data></node>
<node id="b &amp; b"><data key="k0">blue</data><data key="k1">30</data></node>
<edge source="anna" target="zoe"><data key="k2">0.5</data></edge>
<node id="zoe"><data key="k0"> red</data><data key="k1">-4</data></node>
<edge source="zoe" target="b &amp; b"><data key="k2">2</data></edge>
</graph></graphml>
"""


def graphml(tmp_path: Path, text: str | bytes, **options: Any) -> GraphMl:
    file = tmp_path / "g.graphml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return GraphMl(**{"name": "g", "raw": str(file), "split": "random", **options})


def lists(graph: Any) -> list[list[int]]:
    return [part.tolist() for part in np.split(graph.indices, graph.indptr[1:-1])]


def unsplit(tmp_path: Path, text: str | bytes, **options: Any) -> Any:
    """Graph without labels, and so without a split, which three vertices are too few for."""
    dataset = graphml(tmp_path, text, label=None, split="published", **options)
    return dataset.open()


def test_attributes_ids_and_directed_edges(tmp_path: Path) -> None:
    graph = unsplit(tmp_path, HEAD + GRAPH, features=["age"])
    assert lists(graph) == [[], [2], [0]]
    assert graph.features.tolist() == [[7], [30], [-4]]  # the default where it is missing
    assert graph.edge_weights.tolist() == [2, 0.5]
    assert read_ids(graph).to_pylist() == ["anna", "b & b", "zoe"]
    with_colors = unsplit(tmp_path, HEAD + GRAPH)
    assert with_colors.features.tolist() == [[0, 0, 1, 7], [0, 1, 0, 30], [1, 0, 0, -4]]


def test_undirected_edges_have_both_directions(tmp_path: Path) -> None:
    text = HEAD + GRAPH.replace('"directed"', '"undirected"')
    graph = unsplit(tmp_path, text, features=[])
    assert lists(graph) == [[2], [2], [0, 1]]
    assert graph.edge_weights.tolist() == [0.5, 2, 0.5, 2]
    (tmp_path / "g.graphml.gz").write_bytes(gzip.compress(text.encode()))
    packed = GraphMl(
        name="g", raw=str(tmp_path / "g.graphml.gz"), label=None, features=[], split="published"
    ).open()
    assert packed.content == graph.content


def test_utf_16_and_prefixed_names(tmp_path: Path) -> None:
    expected = unsplit(tmp_path, HEAD + GRAPH, features=["age"]).content
    text = (HEAD + GRAPH).replace("encoding='utf-8'", "encoding='utf-16'")
    assert unsplit(tmp_path, text.encode("utf-16"), features=["age"]).content == expected
    prefixed = (HEAD + GRAPH).replace("xmlns=", "xmlns:g=", 1)
    for name in ("graphml", "key", "default", "graph", "node", "edge", "data"):
        for mark in ("<", "</"):
            for end in (" ", ">"):
                prefixed = prefixed.replace(f"{mark}{name}{end}", f"{mark}g:{name}{end}")
    assert unsplit(tmp_path, prefixed, features=["age"]).content == expected


def test_the_karate_club_of_networkx(tmp_path: Path) -> None:
    club = nx.karate_club_graph()
    nx.write_graphml(club, tmp_path / "k.graphml")
    graph = GraphMl(name="g", raw=str(tmp_path / "k.graphml"), label="club", split="random").open()
    assert (graph.num_vertices, graph.num_edges) == (34, 2 * 78)
    assert read_classes(graph) == ["Mr. Hi", "Officer"]
    assert graph.labels.tolist() == [int(club.nodes[v]["club"] != "Mr. Hi") for v in club]
    weights = nx.to_numpy_array(club)
    expected = weights[np.nonzero(weights)]
    assert graph.edge_weights.tolist() == expected.tolist()


names = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1, max_size=8)


@settings(max_examples=25)
@given(
    ids=st.lists(names, min_size=1, max_size=12, unique=True),
    numbers=st.lists(st.floats(-1e6, 1e6, width=32), min_size=12, max_size=12),
    data=st.data(),
)
def test_what_networkx_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    ids: list[str],
    numbers: list[float],
    data: st.DataObject,
) -> None:
    graph: Any = nx.DiGraph() if data.draw(st.booleans()) else nx.Graph()
    for name, number in zip(ids, numbers, strict=False):
        mixed = number if number > 0 else int(number)  # two attributes of one name
        graph.add_node(name, value=number, whole=int(number), yes=number > 0, mixed=mixed)
    ends = st.tuples(st.sampled_from(ids), st.sampled_from(ids))
    graph.add_edges_from(data.draw(st.lists(ends, min_size=1, max_size=20)))
    file = tmp_path_factory.mktemp("g") / "g.graphml"
    nx.write_graphml(graph, file)
    columns = ["value", "whole", "yes", "mixed"]
    found = GraphMl(name="g", raw=str(file), label=None, features=columns).open()
    adjacency = nx.to_numpy_array(graph, nodelist=ids)
    assert lists(found) == [np.flatnonzero(column).tolist() for column in adjacency.T]
    assert read_ids(found).to_pylist() == ids
    values = [[n, int(n), n > 0, n if n > 0 else int(n)] for n in map(float, numbers[: len(ids)])]
    assert np.allclose(found.features, np.array(values, np.float32))


BOMB = '<!DOCTYPE g [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
OUTSIDE = '<!DOCTYPE g SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(((("<graphml ", f"{type_}<graphml "),), ("line 2: has a DOCTYPE",))
          for type_ in (BOMB, OUTSIDE)),
        ((("</graph></graphml>", ""),), ("line 14", "no valid XML")),
        ((("<graphml xml", "<html xml"), ("</graphml>", "</html>")), ("expected <graphml>",)),
        (((">30<", ">thirty<"),), ("line 9: age is 'thirty', which is no int",)),
        (((">30<", f">{2**63}<"),), ("which is no int",)),
        (((">-4</data>", ">-4</data><data key='k1'>5</data>"),), ("age is given twice",)),
        ((('"int"', '"date"'),), ("expected attr.type of boolean, int", "got date")),
        ((("<edge source", "<edge from"),), ("line 10: <edge> has no source",)),
        ((('target="zoe"', 'target="zo"'),), ("edges: row 1: target is 'zo'", "none of the 3")),
        ((('id="zoe"', 'id="anna"'),), ("nodes: row 3: id 'anna' is that of another",)),
        ((('<edge source="anna"', '<edge directed="false" source="anna"'),), ("directed=false",)),
        ((("<edge source", "<hyperedge/><edge source"),), ("hyperedge",)),
        ((("</graph>", "</graph><graph/>"),), ("has a graph besides the first",)),
        ((("<graph id", "<grph id"), ("</graph>", "</grph>")), ("has no <graph>",)),
        ((('"age"', '"label"'),), ("label is given twice",)),
        (((">30<", f">{'x' * 70_000}<"),), ("an attribute of over 65536 characters",)),
        ((("encoding='utf-8'", "encoding='none-such'"),), ("line 1", "encoding")),
        ((("<edge source", "<d>" * 200 + "<edge source"),), ("over 100 nested elements",)),
    ],
)  # fmt: skip
def test_one_line_says_what_is_refused(
    tmp_path: Path, change: tuple[tuple[str, str], ...], words: tuple[str, ...]
) -> None:
    text = HEAD + GRAPH
    for before, after in change:
        assert before in text
        text = text.replace(before, after, 1)
    with one_line(*words, error=GraphError, begins=str(tmp_path / "g.graphml")):
        unsplit(tmp_path, text, features=["age"])
    assert not list((tmp_path / "g.graphml").parent.glob("*.parquet"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with one_line("expected a .graphml file, got a folder", error=GraphError):
        GraphMl(name="g", raw=str(tmp_path)).open()
