from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.dataset import PlantedPartition
from gnnscale.graph import Graph, GraphError
from gnnscale.task.links import split as module
from gnnscale.task.links.split import (
    EdgeSplit,
    identify_split,
    is_undirected,
    make_split,
    open_split,
)

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
    monkeypatch.setattr(module, "_SLICE_EDGES", slice_edges)
    found = divided(graph)
    assert found.undirected
    parts = [pairs_of(each) for each in (found.train, found.valid, found.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    everything = {edge for edge in edges_of(graph) if edge[0] < edge[1]}
    assert set.union(*parts) == everything
    sent = edges_of(found.graph)
    assert sent == {
        edge for edge in edges_of(graph) if tuple(sorted(edge)) in parts[0] or edge[0] == edge[1]
    }
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


def test_directed_graphs_keep_directions(
    random_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random_graph(60, 300)
    object.__setattr__(drawn, "content", "0" * 32)
    assert not is_undirected(drawn)
    found = divided(drawn)
    assert not found.undirected
    parts = [set(map(tuple, each.tolist())) for each in (found.train, found.valid, found.test)]
    assert set.union(*parts) == {edge for edge in edges_of(drawn) if edge[0] != edge[1]}
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_one_missing_reverse_edge_makes_a_graph_directed(graph: Graph) -> None:
    assert is_undirected(graph)
    last = int(np.flatnonzero(np.diff(graph.indptr))[-1])
    indptr = np.array(graph.indptr)
    indptr[last + 1 :] -= 1
    assert not is_undirected(replace(graph, indptr=indptr, indices=graph.indices[:-1]))


def test_the_seed_decides(graph: Graph) -> None:
    assert make_split(graph, identify_split(graph, **SHARES)) == make_split(
        graph, identify_split(graph, **SHARES)
    )
    other = divided(graph, seed=5)
    assert pairs_of(other.test) != pairs_of(divided(graph).test)


def test_a_part_without_edges_is_refused(graph: Graph, home: Path) -> None:
    with pytest.raises(ConfigError, match="is left for valid"):
        divided(graph, valid_fraction=1e-9)
    assert list((home / "links").iterdir()) == []


@pytest.mark.parametrize("damage", ["another graph", "truncated", "text", "ids", "offsets"])
def test_damage_is_one_line(graph: Graph, damage: str) -> None:
    path = make_split(graph, identify_split(graph, **SHARES))
    file = {"truncated": "test.npy", "text": "links.json", "ids": "valid.npy"}
    if damage == "another graph":
        said = json.loads((path / "links.json").read_text())
        said["identity"]["graph"] = "1" * 32
        (path / "links.json").write_text(json.dumps(said))
    elif damage == "truncated":
        content = (path / file[damage]).read_bytes()
        (path / file[damage]).write_bytes(content[:-8])
    elif damage == "text":
        (path / file[damage]).write_text("{")
    else:
        name = "valid.npy" if damage == "ids" else "indptr.npy"
        array = np.load(path / name)
        array.reshape(-1)[-1] = 10**6
        np.save(path / name, array)
    with pytest.raises(GraphError) as error:
        open_split(path, graph)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
