"""Table of a graph's types."""

import numpy as np

from gnnscale.data.type_table import type_table
from gnnscale.data.typed_arrays import from_typed_arrays


def test_lines_are_aligned_by_kind() -> None:
    graph = from_typed_arrays(
        {"user": np.ones((1200, 2), np.float32), "tag": None},
        {("user", "uses", "tag"): ([2, 0, 1], [1, 1, 0]), ("tag", "of", "user"): ([1], [2])},
        num_vertices={"tag": 2},
    )
    assert type_table(graph) == [
        "user  1,200 vertices  2 features, float32",
        "tag       2 vertices  no features",
        "user-uses-tag  3 edges  1.5 per tag",
        "tag-of-user    1 edges  0.0 per user",
    ]


def test_lines_have_the_ranges_of_times() -> None:
    graph = from_typed_arrays(
        {"user": np.ones((2, 2), np.float32), "tag": None},
        {("user", "uses", "tag"): ([1, 0, 1], [1, 1, 0]), ("tag", "of", "user"): ([1], [1])},
        num_vertices={"tag": 2},
        vertex_times={"user": np.array(["2001-03-04", "2010-01-01"], "datetime64[s]")},
    )
    assert type_table(graph) == [
        "user  2 vertices  2 features, float32, 2001-03-04 to 2010-01-01",
        "tag   2 vertices  no features, always",
        "user-uses-tag  3 edges  1.5 per tag, 2001-03-04 to 2010-01-01",
        "tag-of-user    1 edges  0.5 per user, always",
    ]
