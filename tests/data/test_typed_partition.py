"""Generated graph with types."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale import Graph
from gnnscale.core import ConfigError
from gnnscale.data import TypedPartition, verify_store


@pytest.fixture
def graph(home: Path) -> Graph:
    return TypedPartition(num_vertices=4000).open()


def neighbors(graph: Graph, name: str) -> list[np.ndarray]:
    """Return the sources of an edge type, by destination."""
    names = [str(edge_type) for edge_type in graph.schema.edge_types]
    rows = graph.schema.rows(names.index(name))
    starts, ends = graph.indptr[:-1][rows], graph.indptr[1:][rows]
    return [graph.indices[start:end] for start, end in zip(starts, ends, strict=True)]


def test_sizes_and_reverse_edges(graph: Graph) -> None:
    assert [t.num_vertices for t in graph.schema.vertex_types] == [2000, 1800, 200]
    assert graph.features.widths == (16, 16, 0)
    assert graph.num_edges == 2 * (2 * 8 * 2000 + 3 * 1800)
    assert np.bincount(graph.labels[:2000]).tolist() == [250] * 8
    sizes = (len(graph.train_idx), len(graph.valid_idx), len(graph.test_idx))
    assert sizes == (600, 400, 1000)
    forth = {(u, v) for v, row in enumerate(neighbors(graph, "user-buys-item")) for u in row}
    back = {
        (v, i - 2000) for v, row in enumerate(neighbors(graph, "item-bought_by-user")) for i in row
    }
    assert forth == back


def test_classes_show_in_types_only(graph: Graph) -> None:
    """Users are told by their neighbors of each type, and half as well by all neighbors."""
    users = graph.labels[:2000]
    # Communities of items are those of most buyers.
    buyers = neighbors(graph, "user-buys-item")
    items = np.array([np.bincount(users[row], minlength=8).argmax() for row in buyers])

    def counts(name: str) -> Any:
        rows = neighbors(graph, name)
        return np.array([np.bincount(items[row - 2000], minlength=8) for row in rows])

    bought, returned = counts("item-bought_by-user"), counts("item-returned_by-user")
    accuracy = [
        (scores.argmax(axis=1) == users).mean()
        for scores in (bought + np.roll(returned, 4, axis=1), bought + returned)
    ]
    assert accuracy[0] > 0.9
    assert accuracy[1] < 0.65
    x = graph.features.matrices[0].rows
    means = np.stack([x[:2000][users == number].mean(axis=0) for number in range(8)])
    alone = ((x @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1) == users).mean()
    assert alone < 0.4
    assert graph.attainable_accuracy is not None
    assert accuracy[0] < graph.attainable_accuracy <= 1


def test_the_attainable_accuracy_falls_with_the_signal(home: Path) -> None:
    def attainable(**options: Any) -> float:
        graph = TypedPartition(num_vertices=4000, **options).open()
        assert graph.attainable_accuracy is not None
        return graph.attainable_accuracy

    assert attainable(within=0, signal=0) == pytest.approx(1 / 8, abs=0.05)
    assert attainable(within=1, degree=20) > 0.999
    assert attainable(within=0.2) < attainable(within=0.4)


def test_equal_options_give_equal_graphs(home: Path, tmp_path: Path) -> None:
    small = {"num_vertices": 400, "num_classes": 4}
    first = TypedPartition(**small).open()
    again = TypedPartition(**small, store=str(tmp_path / "again")).open()
    assert first.content == again.content
    assert TypedPartition(**small, seed=1).open().content != first.content
    assert first.path is not None
    assert all(check.problem is None for check in verify_store(first.path))
    entries = json.loads((first.path / "meta.json").read_text())
    assert entries["source"] == "TypedPartition"
    # A changed stream is another graph under the same options.
    assert [int(array[:50].sum()) for array in (first.indices, first.labels)] == [14376, 68]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 3}, "dataset.num_classes=3: expected an even number"),
        ({"num_vertices": 100}, "dataset.num_vertices=100: must be at least 160"),
        ({"degree": 0}, "dataset.degree=0"),
        ({"within": 1.5}, "dataset.within=1.5"),
        ({"num_features": 0}, "dataset.num_features=0"),
        ({"signal": float("nan")}, "dataset.signal=nan"),
        ({"split": "published"}, "the layout has no split"),
        ({"raw": "x"}, "TypedPartition generates its graph"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TypedPartition(**options)
