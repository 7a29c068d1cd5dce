"""Small graphs with types of vertices and edges."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gnnscale import Graph
from gnnscale.data import from_arrays
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import GraphSchema, TypedFeatures

Lists = dict[tuple[int, int], list[int]]  # by edge type and destination: sources, as global ids


def _schema(sizes: list[int], ends: list[tuple[int, int]]) -> GraphSchema:
    names = [f"t{number}" for number in range(len(sizes))]
    edges = [
        (names[source % len(names)], f"r{number}", names[destination % len(names)])
        for number, (source, destination) in enumerate(ends)
    ]
    return GraphSchema.of(dict(zip(names, sizes, strict=True)), edges)


#: Up to four vertex types, some without vertices, and up to six edge types.
SCHEMAS: st.SearchStrategy[GraphSchema] = st.builds(
    _schema,
    st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(sum),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6),
)


def typed_graph(schema: GraphSchema, lists: Lists, **edge_arrays: Any) -> Graph:
    """Return the graph of lists of global ids, without features of use."""
    rows: list[list[int]] = [[] for _ in range(schema.num_rows)]
    for (edge_type, v), sources in lists.items():
        destination = int(schema.destinations[edge_type])
        numbers = schema.rows(edge_type)
        row = numbers.start + (v - schema.vertices(destination).start) * numbers.step
        rows[row] = sorted(sources)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.array([u for row in rows for u in row], np.int32)
    none = np.empty(0, np.int64)
    base = from_arrays((none, none), np.zeros((schema.num_vertices, 1), np.float32))
    edges = replace(base.edges, **edge_arrays)
    features: Any = TypedFeatures([None] * len(schema.vertex_types))
    return replace(
        base, indptr=indptr, indices=indices, types=schema, edges=edges, features=features
    )


def random_lists(schema: GraphSchema, generator: np.random.Generator, mean: float) -> Lists:
    """Return lists of random lengths, with repeated neighbours."""
    lists: Lists = {}
    for edge_type in range(len(schema.edge_types)):
        sources = schema.vertices(int(schema.sources[edge_type]))
        destinations = schema.vertices(int(schema.destinations[edge_type]))
        for v in range(destinations.start, destinations.stop):
            size = int(generator.poisson(mean)) if sources.stop > sources.start else 0
            found = generator.integers(sources.start, max(sources.stop, 1), size)
            lists[edge_type, v] = found.tolist()
    return lists


def shop(num_users: int = 600, num_items: int = 200) -> Graph:
    """Return users without features, the items that they buy, and tags of items.

    The class of a user is that of most of the items, which show theirs by their features.
    """
    generator = np.random.default_rng(0)
    user_classes = generator.integers(0, 3, num_users)
    item_classes = np.arange(num_items) % 3
    buyers = generator.integers(0, num_users, 8 * num_users)
    items = generator.integers(0, num_items // 3, len(buyers)) * 3 + user_classes[buyers]
    other = generator.random(len(buyers)) < 0.2
    items[other] = generator.integers(0, num_items, int(other.sum()))
    features = generator.standard_normal((num_items, 5)).astype(np.float32)
    features[np.arange(num_items), item_classes] += 2
    tags = generator.integers(0, 9, num_items), np.arange(num_items)
    return from_typed_arrays(
        {
            "tag": generator.standard_normal((9, 2)).astype(np.float16),
            "user": None,
            "item": features,
        },
        {
            ("user", "buys", "item"): (buyers, items),
            ("item", "bought-by", "user"): (items, buyers),
            ("tag", "of", "item"): tags,
            ("user", "knows", "user"): generator.integers(0, num_users, (2, 900)),
        },
        ("user", user_classes),
        num_vertices={"user": num_users},
        split="random",
        name="shop",
    )
