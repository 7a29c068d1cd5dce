"""Splits of edges by time, written down by hand, and against comparisons of times."""

from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale import Graph, from_arrays
from gnnscale.core import ConfigError, GraphError
from gnnscale.core.errors import UserError
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.run.tasks.options import LinkPrediction
from gnnscale.run.tasks.timed_split import open_timed_split

#: Source, destination and time; of one time, copies and a loop.
EDGES = [(0, 1, 3), (0, 1, 3), (0, 1, 5), (2, 1, 4), (1, 2, 9), (2, 2, 9), (2, 0, 7), (1, 0, 7)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))


@pytest.fixture
def stored(tmp_path: Path):
    def store(edges=EDGES, **more) -> Graph:
        src, dst, times = np.array(edges).T
        options = {"edge_times": times, "time_unit": "step"} | more
        from_arrays((src, dst), np.ones((3, 1), np.float32), **options).save(tmp_path / "store")
        return Graph.open(tmp_path / "store")

    return store


def parts(split) -> dict[str, list[tuple[int, ...]]]:
    return {
        part: sorted(
            (int(t), *ends)
            for ends, t in zip(getattr(split, part).tolist(), split.times(part), strict=True)
        )
        for part in ("train", "valid", "test")
    }


def opened(graph: Graph, **options):
    task = LinkPrediction(split="time", **options)
    return open_timed_split(task.make(graph), graph)


def test_an_edge_is_predicted_once_for_each_time(stored) -> None:
    graph = stored()
    split = opened(graph, valid_from="5", test_from="8")
    assert parts(split) == {
        "train": [(3, 0, 1), (4, 2, 1)],
        "valid": [(5, 0, 1), (7, 1, 0), (7, 2, 0)],
        "test": [(9, 1, 2)],
    }
    # All edges, held-out ones too, are in the graph of messages, as of times.
    assert split.graph.samples_by_time
    assert split.graph.num_edges == len(EDGES)
    assert split.graph.content != graph.content
    assert opened(graph, valid_from="5", test_from="8").content == split.content


def test_fractions_hold_out_the_latest_edges(stored) -> None:
    split = opened(stored(), valid_fraction=0.4, test_fraction=0.2)
    # Six edges of times 3, 4, 5, 7, 7, 9: four fifths end before the second 7, two before 5.
    assert parts(split) == {
        "train": [(3, 0, 1), (4, 2, 1)],
        "valid": [(5, 0, 1)],
        "test": [(7, 1, 0), (7, 2, 0), (9, 1, 2)],
    }


def test_undirected_edges_are_predicted_in_one_direction(stored) -> None:
    once = [(0, 1, 1), (1, 2, 2), (0, 2, 3), (0, 1, 3)]
    split = opened(stored(once + [(v, u, t) for u, v, t in once]), valid_from="2", test_from="3")
    assert split.undirected
    found = parts(split)
    assert [(t, *sorted(ends)) for t, *ends in found["train"]] == [(1, 0, 1)]
    assert [(t, *sorted(ends)) for t, *ends in found["valid"]] == [(2, 1, 2)]
    assert sorted((t, *sorted(ends)) for t, *ends in found["test"]) == [(3, 0, 1), (3, 0, 2)]


def test_edges_of_one_type_are_predicted(tmp_path) -> None:
    buys, of = ("user", "buys", "item"), ("item", "of", "user")
    src, dst, times = np.array([0, 1, 1, 0]), np.array([2, 0, 1, 2]), np.array([4, 1, 3, 2])
    graph = from_typed_arrays(
        {"user": np.ones((2, 1), np.float32), "item": np.ones((3, 1), np.float32)},
        {buys: (src, dst), of: (dst, src)},
        edge_times={buys: times, of: times},
        time_unit="step",
    )
    graph.save(tmp_path / "store")
    graph = Graph.open(tmp_path / "store")
    split = opened(graph, edge_type="user-buys-item", valid_from="3", test_from="4")
    assert parts(split) == {
        "train": [(1, 1, 2), (2, 0, 4)],
        "valid": [(3, 1, 3)],
        "test": [(4, 0, 4)],
    }
    with one_line("task.edge_type=null: expected the edge type"):
        opened(graph)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"valid_from": "5", "test_from": "5"}, ("task.test_from=5: expected a time after",)),
        ({"valid_from": "5"}, ("task.test_from: expected a time with the other bound",)),
        ({"valid_from": "soon", "test_from": "9"}, ("task.valid_from=soon: expected an integer",)),
        ({"valid_from": "0", "test_from": "8"}, ("got 0 for train, 5 for valid, 1 for test",)),
        ({"valid_from": "8", "test_from": "9"}, ("got 5 for train, 0 for valid, 1 for test",)),
        ({"valid_from": "5", "test_from": "10"}, ("0 for test", "of one time are in one part")),
        ({"directed": True}, ("task.directed=true: expected false",)),
        ({"filter": "all"}, ("task.filter=all: expected task.num_candidates=all",)),
    ],
)
def test_splits_that_are_refused(stored, options, words) -> None:
    with one_line(*words, error=UserError):
        opened(stored(), **options)


def test_bounds_need_the_rule_and_the_rule_needs_times(stored) -> None:
    with one_line("task.valid_from=5: expected task.split=time, got random"):
        LinkPrediction(valid_from="5", test_from="7")
    with one_line("task.filter"):
        LinkPrediction(filter="all", num_candidates="all")
    task, graph = LinkPrediction(split="time"), stored(edge_times=None)
    for call in (task.make, lambda graph: task.with_cutoffs(graph, None)):
        with one_line("task.split=time: expected a graph with times", "dataset.edge_time"):
            call(graph)
    with one_line("sampler.time=none: expected a rule of time with task.split=time"):
        task.with_cutoffs(stored_again(graph), "none")
    with pytest.raises(ConfigError, match=r"sampler\.time=seed: expected none"):
        LinkPrediction().with_cutoffs(graph, "seed")


def stored_again(graph: Graph) -> Graph:
    src, dst, times = np.array(EDGES).T
    return from_arrays((src, dst), np.ones((3, 1), np.float32), edge_times=times, time_unit="step")


def test_damaged_splits_end_in_one_line(stored) -> None:
    graph = stored()
    path = LinkPrediction(split="time", valid_from="5", test_from="8").make(graph)
    file = path / "valid_times.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with one_line("valid_times.npy", error=GraphError):
        open_timed_split(path, graph)
