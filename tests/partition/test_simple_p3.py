import pytest
from fixture_types import Make

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import P3, Parts


def assign(graph: Graph, num_parts: int) -> Parts:
    return P3().assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)


def test_columns_are_divided_as_evenly_as_can_be(random_graph: Make) -> None:
    parts = assign(random_graph(num_features=10), 4)
    assert parts.owner is None
    assert parts.columns == ((0, 2), (2, 5), (5, 7), (7, 10))


def test_more_parts_than_columns(tiny_graph: Graph) -> None:
    assert assign(tiny_graph, 2).columns == ((0, 1), (1, 2))
    message = (
        r"^partitioner\.num_parts=3: expected at most 2, a part for each feature column of tiny"
    )
    with pytest.raises(ConfigError, match=message):
        assign(tiny_graph, 3)
