import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import PlantedPartition, from_arrays
from gnnscale.graph import EdgeData, Graph, Origin, Split, time_order
from gnnscale.run.tasks import edge_structure
from gnnscale.run.tasks.edge_split import EdgeSplit, identify_split, make_split, open_split
from gnnscale.run.tasks.edge_structure import has_reverse, is_bipartite, is_undirected
from gnnscale.run.tasks.split_rule import PARTS

SHARES = {"valid_fraction": 0.2, "test_fraction": 0.3, "seed": 4}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def graph() -> Graph:
    sizes = {"num_vertices": 400, "num_edges": 1500, "num_classes": 4, "num_features": 3}
    return PlantedPartition(name="small", split="random", **sizes).open()


def divided(graph: Graph, **shares: Any) -> EdgeSplit:
    return open_split(make_split(graph, identify_split(graph, **SHARES | shares)), graph)


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return set(zip(np.asarray(graph.indices).tolist(), dst.tolist(), strict=True))


def pairs_of(edges: Any) -> set[tuple[int, int]]:
    return {tuple(sorted(edge)) for edge in edges.tolist()}


@pytest.mark.parametrize("slice_edges", [7, 1 << 22])
def test_every_pair_is_in_one_part_and_held_out_ones_send_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, slice_edges: int
) -> None:
    monkeypatch.setattr(edge_structure, "_SLICE_EDGES", slice_edges)
    found = divided(graph)
    assert found.undirected
    parts = [pairs_of(each) for each in (found.train, found.valid, found.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    everything = {edge for edge in edges_of(graph) if edge[0] < edge[1]}
    assert set.union(*parts) == everything
    trained = {edge for edge in edges_of(graph) if tuple(sorted(edge)) in parts[0]}
    loops = {edge for edge in edges_of(graph) if edge[0] == edge[1]}
    assert edges_of(found.graph) == trained | loops
    # About the shares that were asked for; 5 standard deviations of a binomial.
    for pairs, share in zip(parts, (0.5, 0.2, 0.3), strict=True):
        spread = 5 * np.sqrt(share * (1 - share) / len(everything))
        assert abs(len(pairs) / len(everything) - share) < spread
    # Neither end of an undirected edge is always the first.
    rising = found.train[:, 0] < found.train[:, 1]
    assert 0.4 < rising.mean() < 0.6


def test_lists_stay_sorted_and_features_where_they_are(graph: Graph) -> None:
    found = divided(graph).graph
    for vertex in range(graph.num_vertices):
        neighbours = found.indices[found.indptr[vertex] : found.indptr[vertex + 1]]
        assert (np.diff(neighbours) > 0).all()
    assert found.features is graph.features
    assert found.metric == "mrr"
    assert found.content != graph.content
    unlabelled = replace(graph, labels=np.full(graph.num_vertices, -1), num_classes=0)
    for each in (replace(graph, split=Split()), replace(unlabelled, split=Split())):
        assert pairs_of(divided(each).train) == pairs_of(divided(graph).train)
        assert identify_split(each, **SHARES).graph.num_train == 0


def test_directed_graphs_keep_directions(random_graph: Callable[..., Graph]) -> None:
    drawn = replace(random_graph(60, 300), origin=Origin(content="0" * 32))
    assert not is_undirected(drawn)
    found = divided(drawn)
    assert not found.undirected
    parts = [set(map(tuple, each.tolist())) for each in (found.train, found.valid, found.test)]
    assert set.union(*parts) == {edge for edge in edges_of(drawn) if edge[0] != edge[1]}
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_directed_graphs_and_directed_pairs(graph: Graph) -> None:
    assert is_undirected(graph)
    assert not is_undirected(without_last_edge(graph))
    found = divided(graph, directed=True)
    assert found.directed
    assert not found.undirected
    sends, held = edges_of(found.graph), {tuple(edge) for edge in found.test.tolist()}
    reverses = [edge[::-1] in sends for edge in held]
    assert 0.3 < np.mean(reverses) < 0.7  # half of all edges are trained
    assert pairs_of(divided(graph).test) != pairs_of(found.test)


def without_last_edge(graph: Graph) -> Graph:
    last = int(np.flatnonzero(np.diff(graph.indptr))[-1])
    indptr = np.array(graph.indptr)
    indptr[last + 1 :] -= 1
    return replace(graph, indptr=indptr, indices=graph.indices[:-1])


def graph_of(edges: Sequence[tuple[int, int]], num_vertices: int) -> Graph:
    """Return the graph of ``edges``, copies and loops among them, as it is sorted in a store."""
    src, dst = np.array(sorted(edges, key=lambda edge: edge[::-1]), np.int64).reshape(-1, 2).T
    indptr = np.searchsorted(dst, np.arange(num_vertices + 1))
    return Graph(
        name="drawn",
        indptr=indptr.astype(np.int64),
        indices=src.astype(np.int32),
        features=np.zeros((num_vertices, 1), np.float32),
        feature_dtype="float32",
        labels=np.full(num_vertices, -1),
        num_classes=0,
        origin=Origin(content=f"{hash(tuple(edges)) % 2**64:032x}"),
    )


#: Graphs of several kinds: directed, all mutual, some mutual, and each with copies and loops.
drawn_edges = st.integers(4, 12).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.tuples(*2 * [st.integers(0, size - 1)]), min_size=12, max_size=60),
        st.sampled_from(["as they are", "all mutual", "all but one mutual", "all twice"]),
    )
)


@pytest.mark.long
@settings(max_examples=30)
@given(drawn=drawn_edges, slice_edges=st.sampled_from([1, 5, 1 << 22]), seed=st.integers(0, 9))
def test_no_copy_and_no_reverse_of_a_held_out_edge_sends_messages(
    drawn: Any, slice_edges: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    size, edges, kind = drawn
    if kind == "all twice":
        edges = edges * 2
    elif kind != "as they are":
        edges = [*edges, *(edge[::-1] for edge in edges)][kind == "all but one mutual" :]
    graph = graph_of(edges, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(edge_structure, "_SLICE_EDGES", slice_edges)
        try:
            found = divided(graph, seed=seed)
        except ConfigError:  # a part has no edge
            reject()
    distinct = {edge for edge in edges if edge[0] != edge[1]}
    assert found.undirected == all(edge[::-1] in distinct for edge in distinct)
    assert is_undirected(graph) == found.undirected
    parts = {part: getattr(found, part).tolist() for part in PARTS}
    predicted = [tuple(edge) for part in parts.values() for edge in part]
    assert len(predicted) == len(set(predicted))
    if found.undirected:
        assert {tuple(sorted(edge)) for edge in predicted} == pairs_of(np.array([*distinct]))
        assert len(predicted) == len(distinct) / 2
    else:
        assert set(predicted) == distinct
    sends = edges_of(found.graph)
    for part in ("valid", "test"):
        assert not {edge for edge in map(tuple, parts[part]) if edge in sends}
        assert not {edge for edge in map(tuple, parts[part]) if edge[::-1] in sends}
    # Every other edge sends messages, as often as it is there.
    held_out = {tuple(sorted(edge)) for part in ("valid", "test") for edge in parts[part]}
    kept = [edge for edge in edges if tuple(sorted(edge)) not in held_out]
    assert found.graph.num_edges == len(kept)


@pytest.mark.long
@settings(max_examples=20)
@given(drawn=drawn_edges)
def test_reverses_are_found_in_lists(drawn: Any) -> None:
    size, edges, _ = drawn
    graph = graph_of(edges, size)
    src, dst = (np.array(ends, np.int64) for ends in zip(*edges, strict=True))
    expected = [edge[::-1] in edges for edge in edges]
    assert has_reverse(graph, src, dst).tolist() == expected


def test_divisions_that_were_right_stay_what_they_were() -> None:
    """Their arrays are pinned, so that runs on them still open."""
    rng = np.random.default_rng(5)
    pairs = {tuple(sorted(pair)) for pair in rng.integers(30, size=(80, 2)).tolist()}
    directed = sorted(pair for pair in pairs if pair[0] != pair[1])
    mutual = [*directed, *(pair[::-1] for pair in directed)]
    contents = []
    for edges in (directed, mutual):
        graph = replace(graph_of(edges, 30), origin=Origin(content="0" * 32))
        contents.append(divided(graph).content)
    assert contents == ["a944500704348bc2515b626fec5c3d82", "6948922ffdf14a8188302b7b509a875f"]


def test_mutual_and_repeated_edges_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    # Five distinct edges of eight; 0 and 1 are mutual, loops are left out.
    edges = [(0, 1), (1, 0), (0, 1), (0, 1), (2, 3), (3, 4), (4, 5), (2, 3), (6, 6)]
    graph = graph_of(edges, 7)
    for seed in range(100):
        caplog.clear()
        try:
            divided(graph, seed=seed)
            break
        except ConfigError:
            continue
    (line,) = [record.message for record in caplog.records if "reverse" in record.message]
    assert line == (
        "task=links: of 8 edges of drawn 37.5% are copies, and 40.0% of the others have their "
        "reverse; an edge, its reverse and its copies are in one part"
    )


def test_the_seed_decides(graph: Graph) -> None:
    made = [make_split(graph, identify_split(graph, **SHARES)) for _ in range(2)]
    assert made[0] == made[1]
    assert pairs_of(divided(graph, seed=5).test) != pairs_of(divided(graph).test)


def test_a_part_without_edges_is_refused(graph: Graph, home: Path) -> None:
    with pytest.raises(ConfigError, match="got no valid edge"):
        divided(graph, valid_fraction=1e-9)
    assert list((home / "links").iterdir()) == []


@pytest.fixture
def made(graph: Graph) -> Path:
    return make_split(graph, identify_split(graph, **SHARES))


def change_kept(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    kept = json.loads((path / "links.json").read_text())
    change(kept)
    (path / "links.json").write_text(json.dumps(kept))


def test_damage_is_one_line(graph: Graph, made: Path) -> None:
    os.truncate(made / "test.npy", (made / "test.npy").stat().st_size - 8)
    with one_line(str(made), error=GraphError):
        open_split(made, graph)
    (made / "links.json").write_text("{")
    with one_line(str(made), error=GraphError):
        open_split(made, graph)


def put(path: Path, name: str, array: Any) -> None:
    """Put another array into a split, and let ``links.json`` say so: a lie that fits itself."""
    np.save(path / f"{name}.npy", np.ascontiguousarray(array))
    size = (path / f"{name}.npy").stat().st_size
    entry = {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": size}
    change_kept(path, lambda kept: kept["arrays"][name].update(entry))


def with_value(value: float, place: int = 7) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array = array.copy()
        array.reshape(-1)[place] = value
        return array

    return change


#: One array of a split, what is made of it, and what the line says.
LIES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "no offsets": ("indptr", lambda a: a[:0], "expected 401 offsets, got 0"),
    "offsets of fewer": ("indptr", lambda a: np.delete(a, 7), "expected 401 offsets, got 400"),
    "offsets that fall": ("indptr", with_value(10**6), "falls from 1000000 to"),
    "first offset": ("indptr", with_value(1, 0), "got 1 to"),
    "last offset": ("indptr", with_value(10**6, -1), "expected offsets from 0 to 1330, the number"),
    "real offsets": ("indptr", lambda a: a.astype(float), "expected int64[n], got float64[401]"),
    "no neighbours": ("indices", lambda a: a[:0], "indptr.npy: expected offsets from 0 to 0, the"),
    "large neighbour": ("indices", with_value(2**30), "vertex id 1073741824 is out of range, the"),
    "negative neighbour": ("indices", with_value(-1), "vertex id -1 is negative"),
    "wide neighbours": ("indices", lambda a: a.astype(np.int64), "expected int32[n], got int64["),
    "no weights": ("edge_weights", lambda a: a[:0], "weights, got 0"),
    "negative weight": ("edge_weights", with_value(-1), "edge 7: expected a weight of at least 0"),
}
LIES |= {
    f"train: {name}": ("train", change, message)
    for name, (change, message) in {
        "no edge": (lambda a: a[:0], "edges, got 0"),
        "many edges": (lambda a: np.tile(a, (40, 1)), "expected at most"),
        "large id": (with_value(2**30), "vertex id 1073741824 is out of range"),
        "wide ids": (lambda a: a.astype(np.int64), "expected int32[n, 2], got int64["),
        "one axis": (lambda a: a[:, 0], "expected int32[n, 2], got int32["),
    }.items()
}


@pytest.fixture
def weighted(graph: Graph) -> Graph:
    return replace(graph, edges=EdgeData(weights=np.ones(graph.num_edges, np.float32)))


@pytest.mark.long
@pytest.mark.parametrize("case", LIES)
def test_no_array_is_believed(weighted: Graph, case: str) -> None:
    path = make_split(weighted, identify_split(weighted, **SHARES))
    assert open_split(path, weighted).graph.edge_weights is not None
    name, change, message = LIES[case]
    put(path, name, change(np.load(path / f"{name}.npy")))
    with one_line(message, error=GraphError, begins=f"{path}/") as error:
        open_split(path, weighted)
    assert str(error.value).endswith(f"remove {path}, and it is made again")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("graph", {"content": "1" * 32}),
        ("graph", {"num_vertices": 2**30}),
        ("valid_fraction", 0.7),
        ("test_fraction", 1e300),
        ("seed", -5),
    ],
)
def test_no_identity_is_believed(graph: Graph, made: Path, entry: str, value: Any) -> None:
    identity = identify_split(graph, **SHARES)

    def change(kept: dict[str, Any]) -> None:
        old = kept["identity"][entry]
        kept["identity"][entry] = old | value if isinstance(value, dict) else value

    change_kept(made, change)
    message = rf"^{made}: (is a div.* of small|made with {entry}=).*; rem"
    with pytest.raises(GraphError, match=message):
        make_split(graph, identity)
    if entry == "graph":
        with one_line(str(made), error=GraphError):
            open_split(made, graph)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(0, 2), (1, 2), (0, 3), (1, 3)], True),  # sources are no destinations
        ([(0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0), (1, 3), (3, 1)], True),
        ([(0, 1), (1, 2), (2, 0)], False),  # a triangle
        ([(0, 1), (1, 0), (1, 2), (2, 1), (1, 3)], False),  # a tree has no kinds
        ([(0, 2), (1, 2), (0, 3), (1, 3), (3, 3)], True),  # a loop leads nowhere
        ([(0, 2), (1, 3), (0, 0), (3, 3)], True),
    ],
)
def test_bipartite_graphs_are_known(edges: list[tuple[int, int]], expected: bool) -> None:
    assert is_bipartite(graph_of(edges, 6)) == expected


@pytest.mark.parametrize(("num_stray", "expected"), [(1, True), (40, False)])
def test_few_stray_edges_make_no_other_graph(num_stray: int, expected: bool) -> None:
    """One user who follows another says nothing of candidates; such edges in numbers do."""
    generator = np.random.default_rng(0)
    films = np.stack([generator.integers(300, size=900), generator.integers(300, 600, size=900)])
    stray = np.stack([np.arange(num_stray), np.arange(num_stray) + 1])
    edges = np.concatenate([films, stray], axis=1).T
    assert is_bipartite(graph_of([tuple(each) for each in edges.tolist()], 600)) == expected


def stored(graph: Graph) -> Graph:
    return replace(graph, origin=Origin(content=f"{graph.times is None:032x}"))


@pytest.mark.long
@settings(max_examples=30)
@given(drawn=drawn_edges, slice_edges=st.sampled_from([1, 5, 1 << 22]), data=st.data())
def test_lists_sorted_by_time_are_divided_as_those_sorted_by_source(
    drawn: Any, slice_edges: int, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    size, edges, kind = drawn
    edges = edges if kind == "as they are" else [*edges, *(edge[::-1] for edge in edges)]
    edges = edges[kind == "all but one mutual" :] * (1 + (kind == "all twice"))
    count = len(edges)
    at = np.array(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    src, dst = np.array(edges).T
    x = np.zeros((size, 1), np.float32)
    graphs = [stored(from_arrays((src, dst), x, edge_times=times)) for times in (None, at)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(edge_structure, "_SLICE_EDGES", slice_edges)
        patch.setattr(time_order, "_SLICE", slice_edges)
        try:
            plain, timed = (divided(graph) for graph in graphs)
        except ConfigError:  # a part has no edge
            reject()
    assert plain.undirected == timed.undirected
    for part in PARTS:
        assert sorted(getattr(plain, part).tolist()) == sorted(getattr(timed, part).tolist())
    graph = timed.graph
    assert graph.times is not None
    assert np.array_equal(graph.indptr, plain.graph.indptr)
    owners = np.repeat(np.arange(size), np.diff(graph.indptr))
    sent = zip(graph.indices.tolist(), owners.tolist(), graph.times.edges.tolist(), strict=True)
    alone = edges_of(plain.graph)
    expected = zip(src.tolist(), dst.tolist(), at.tolist(), strict=True)
    assert sorted(sent) == sorted(edge for edge in expected if edge[:2] in alone)


def test_times_of_a_division_are_not_believed() -> None:
    src, dst = np.array([[i, j] for i in range(8) for j in range(8) if i != j]).T
    graph = stored(from_arrays((src, dst), np.zeros((8, 1)), edge_times=np.arange(len(src))))
    path = make_split(graph, identify_split(graph, **SHARES))
    put(path, "edge_times", np.load(path / "edge_times.npy")[::-1])
    with pytest.raises(
        GraphError, match=r"edge_times.npy: the neighbors of vertex \d are not sorted"
    ):
        open_split(path, graph)
    put(path, "edge_times", np.load(path / "edge_times.npy")[:-1])
    with pytest.raises(GraphError, match=r"edge_times.npy: expected \d+ times, got \d+"):
        open_split(path, graph)
