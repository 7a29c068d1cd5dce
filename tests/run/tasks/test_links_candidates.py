from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typed_graphs import typed_graph

from gnnscale.core.errors import ConfigError
from gnnscale.data.base import ExistingStore
from gnnscale.data.readers.tables import Tables
from gnnscale.graph import Graph, GraphSchema, Relation
from gnnscale.run.tasks.edge_split import EdgeSplit
from gnnscale.run.tasks.links import (
    LinkTask,
    read_candidates,
    typed_candidates,
    with_candidate_destinations,
)
from gnnscale.sampling import NeighborSampling, ShuffledOrder
from gnnscale.sampling.edge_batches import Candidates

#: Vertices 0 and 1 are users, 2 to 4 films; edges lead from users to films.
FILMS = Candidates.from_kinds(np.array([-1, -1, 0, 0, 0], np.int32))


@pytest.fixture
def split(tiny_graph: Graph) -> EdgeSplit:
    edges = [np.array(each, np.int32) for each in ([[0, 2], [1, 4]], [[0, 3]], [[1, 2]])]
    train, valid, test = edges
    parts = {"train": train, "valid": valid, "test": test}
    return EdgeSplit(graph=tiny_graph, undirected=False, directed=False, bipartite=True, **parts)


def test_candidates_are_read(tiny_graph: Graph, tmp_path: Path) -> None:
    source = ExistingStore(store=str(tmp_path))
    np.save(tmp_path / "films.npy", np.array([2, 3, 4]))
    file = str(tmp_path / "films.npy")
    found, option = read_candidates(file, None, None, tiny_graph, source)
    assert found.kinds.tolist() == [-1, -1, 0, 0, 0]
    assert option.startswith("task.candidates=/")
    table = tmp_path / "kinds.csv"
    table.write_text("id,kind\n3,film\n0,user\n1,user\n4,film\n2,film\n")
    of_kinds, _ = read_candidates(str(table), "kind", None, tiny_graph, source)
    assert of_kinds.kinds.tolist() == [1, 1, 0, 0, 0]
    films, option = read_candidates(str(table), "kind", "film", tiny_graph, source)
    assert films.kinds.tolist() == found.kinds.tolist()
    assert option == "task.candidate_kind=film"
    for given, message in (
        (("films.txt", None, None), "task.candidates=.*txt: allowed are"),
        ((file, "kind", None), r"films.npy: expected a table .* with columns id and kind"),
        ((None, "kind", None), "task.candidate_column=kind: expected task.candidates=FILE"),
        (
            (str(table), "kind", "movie"),
            "=movie: .* no such kind in column kind, it has film, user",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            read_candidates(*given, tiny_graph, source)


def test_kinds_in_the_table_of_the_vertices(tmp_path: Path, monkeypatch: Any) -> None:
    """Texts as ids, another name of their column, and another delimiter."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    (tmp_path / "vertices.csv").write_text("who;kind\nanna;user\nalien;film\nben;user\n")
    (tmp_path / "edges.csv").write_text("source;target\nanna;alien\nben;alien\n")
    given: dict[str, Any] = {"label": None, "features": [], "delimiter": ";"}
    tables = Tables(name="films", raw=str(tmp_path), id="who", **given)
    found, option = read_candidates(None, "kind", "film", tables.open(), tables)
    assert found.kinds.tolist() == [-1, 0, -1]
    found, option = read_candidates(None, "kind", None, tables.open(), tables)
    assert (found.kinds.tolist(), option) == ([0, 1, 0], "task.candidate_column=kind")


def test_popular_negatives_and_what_is_known(split: EdgeSplit, tiny_graph: Graph) -> None:
    given: dict[str, Any] = {"num_negatives": 1, "hits": (10,), "seed": 0}
    task = LinkTask(split=split, num_candidates=None, negatives="popular", k=(5,), **given)
    assert task.popularity.tolist() == np.diff(tiny_graph.indptr).tolist()
    order = ShuffledOrder(task.seeds, batch_size=2, seed=0)
    sampling = task.sampling(NeighborSampling(fanouts=[1]), order)
    weights = np.diff(sampling.candidates.ends, prepend=0) / 2**40
    expected = (1 + task.popularity) ** 0.75
    assert weights == pytest.approx(expected / expected.sum())
    assert task.measures == ("recall@5", "map@5", "ndcg@5", "mrr", "hits@10")
    assert [pairs.tolist() for pairs in task.known_pairs("test")] == [[[0, 2], [1, 4]], [[0, 3]]]
    assert task.known_pairs("train") == []
    turned = replace(task, split=replace(split, undirected=True))
    assert [pairs.tolist() for pairs in turned.known_pairs("valid")] == [
        *([[0, 2], [1, 4]], [[2, 0], [4, 1]], [[3, 0]]),
    ]
    assert [pairs.tolist() for pairs in turned.held_out_pairs] == [
        *([[0, 3]], [[1, 2]], [[3, 0]], [[2, 1]]),
    ]
    assert replace(turned, filters_known=False).known_pairs("test") == []


def test_edges_to_candidates_stay_and_pairs_without_direction_are_turned(split: EdgeSplit) -> None:
    found = with_candidate_destinations(split, FILMS, "task.candidates=films.npy")
    assert found.train.tolist() == split.train.tolist()
    turned = replace(split, undirected=True, train=split.train[:, ::-1])
    found = with_candidate_destinations(turned, FILMS, "task.candidates=films.npy")
    assert found.train.tolist() == split.train.tolist()


def test_mutual_edges_are_predicted_to_candidates(split: EdgeSplit) -> None:
    """A missing reverse makes no graph directed; a film's edge to a user alone is refused."""
    mutual = np.concatenate([split.train, split.train[:1, ::-1]])
    found = with_candidate_destinations(
        replace(split, train=mutual), FILMS, "task.candidates=films.npy"
    )
    assert found.train.tolist() == split.train.tolist()
    for wrong in (
        replace(split, train=mutual, directed=True),
        replace(split, train=np.concatenate([split.train, [[3, 1]]])),
    ):
        with pytest.raises(ConfigError, match="1 of 3 train edges lead to another vertex"):
            with_candidate_destinations(wrong, FILMS, "task.candidates=films.npy")
    users = Candidates.from_kinds(np.array([0, 0, -1, -1, -1], np.int32))
    with pytest.raises(ConfigError) as error:
        with_candidate_destinations(split, users, "task.candidates=users.npy")
    assert str(error.value) == (
        "task.candidates=users.npy: expected all destinations of predicted edges, 1 of 1 test "
        "edges lead to another vertex, such as number 2"
    )


@pytest.mark.parametrize("directed", [False, True])
def test_the_sampler_of_an_edge_type(directed: bool) -> None:
    types = [("user", "buys", "item"), ("item", "by", "user"), ("item", "like", "item")]
    schema = GraphSchema.of({"user": 2, "item": 3}, types)
    lists = {(0, 2): [0, 1, 1], (0, 4): [0], (1, 0): [2], (2, 4): [2, 3]}
    edges = np.array([[0, 2], [1, 2]], np.int32)
    parts = dict.fromkeys(("train", "valid", "test"), edges)
    flags = {"undirected": False, "directed": directed, "bipartite": False}
    for relation, popularity, drops in (
        (Relation(0, (1,)), [0, 0, 3, 0, 1], False),
        (Relation(2), [0, 0, 0, 0, 2], not directed),
    ):
        split = EdgeSplit(graph=typed_graph(schema, lists), relation=relation, **flags, **parts)
        task = LinkTask(
            **{"split": split, "num_candidates": 5, "negatives": "popular", "seed": 0},
            **{"num_negatives": 1, "hits": (10,)},
            candidates=typed_candidates(schema, relation.edge_type),
        )
        assert task.popularity.tolist() == popularity
        order = ShuffledOrder(task.seeds, batch_size=2, seed=0)
        sampling: Any = task.sampling(NeighborSampling(fanouts=[1]), order)
        assert (sampling.relation, sampling.drop_reverses) == (relation, drops)
        assert sampling.candidates.vertices.tolist() == [2, 3, 4]
        drawn = sampling.candidates.draw(np.arange(2), edges[:, 1], 50, seed=0, step=0)
        assert set(drawn.reshape(-1).tolist()) == {2, 3, 4}
