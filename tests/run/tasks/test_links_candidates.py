from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.run.tasks.edge_split import EdgeSplit
from gnnscale.run.tasks.links import read_candidates, with_candidate_destinations
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
    np.save(tmp_path / "films.npy", np.array([2, 3, 4]))
    found = read_candidates(str(tmp_path / "films.npy"), None, tiny_graph)
    assert found.kinds.tolist() == [-1, -1, 0, 0, 0]
    with pytest.raises(ConfigError, match=r"task.candidates=.*txt: allowed are"):
        read_candidates("films.txt", None, tiny_graph)


def test_edges_to_candidates_stay_and_pairs_without_direction_are_turned(split: EdgeSplit) -> None:
    found = with_candidate_destinations(split, FILMS, "films.npy")
    assert found.train.tolist() == split.train.tolist()
    turned = replace(split, undirected=True, train=split.train[:, ::-1])
    found = with_candidate_destinations(turned, FILMS, "films.npy")
    assert found.train.tolist() == split.train.tolist()


def test_mutual_edges_are_predicted_to_candidates(split: EdgeSplit) -> None:
    """A missing reverse makes no graph directed; a film's edge to a user alone is refused."""
    mutual = np.concatenate([split.train, split.train[:1, ::-1]])
    found = with_candidate_destinations(replace(split, train=mutual), FILMS, "films.npy")
    assert found.train.tolist() == split.train.tolist()
    for wrong in (
        replace(split, train=mutual, directed=True),
        replace(split, train=np.concatenate([split.train, [[3, 1]]])),
    ):
        with pytest.raises(ConfigError, match="1 of 3 train edges lead to another vertex"):
            with_candidate_destinations(wrong, FILMS, "films.npy")
    users = Candidates.from_kinds(np.array([0, 0, -1, -1, -1], np.int32))
    with pytest.raises(ConfigError) as error:
        with_candidate_destinations(split, users, "users.npy")
    assert str(error.value) == (
        "task.candidates=users.npy: expected all destinations of predicted edges, 1 of 1 test "
        "edges lead to another vertex, such as number 2"
    )
