"""Purchases with times, and task rows of users as of cut-offs."""

from typing import Any

import numpy as np

from gnnscale import Graph
from gnnscale.data import from_arrays
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Split, TaskRows

#: Purchases happen on days below this one; rows have cut-offs at later multiples of ten.
DAYS = 60
CUTOFFS = (20, 30, 40, 50, 60)


def timed_shop(
    num_users: int = 120, num_items: int = 30, per_user: int = 12, width: int = 4
) -> Graph:
    """Return users, the items that they buy, and rows of users with the cut-offs ``CUTOFFS``.

    The label of a row is the class of most of the user's purchases in the past, of items that show
    their class by their features. Rows of the last two cut-offs are validation and test.
    """
    generator = np.random.default_rng(0)
    buyers = np.repeat(np.arange(num_users), per_user)
    days = generator.integers(0, DAYS, len(buyers))
    # Taste changes once, at a day of each user.
    changes = generator.integers(10, 50, num_users)
    taste = generator.integers(0, 2, num_users)
    classes = np.where(days < changes[buyers], taste[buyers], 1 - taste[buyers])
    items = generator.integers(0, num_items // 2, len(buyers)) * 2 + classes
    features = generator.standard_normal((num_items, width)).astype(np.float32)
    features[np.arange(num_items), np.arange(num_items) % 2] += 3
    users, cutoffs = np.tile(np.arange(num_users), len(CUTOFFS)), np.repeat(CUTOFFS, num_users)
    labels = np.array(
        [
            _majority(classes[(buyers == user) & (days <= cutoff)])
            for user, cutoff in zip(users, cutoffs, strict=True)
        ]
    )
    return shop_of(buyers, items, days, features, users, cutoffs, labels)


def _majority(classes: Any) -> int:
    return int(2 * int(classes.sum()) > len(classes))


def future_shop(num_users: int = 300) -> Graph:
    """Return a shop whose labels, drawn at random, only purchases after the cut-off tell."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, num_users)
    users = np.arange(num_users)
    buyers = np.concatenate([users, users, users, users])
    # A purchase of a random item in the past, three of the label's class in the future.
    past = generator.integers(0, 20, num_users)
    future = generator.integers(0, 10, 3 * num_users) * 2 + np.tile(labels, 3)
    days = np.repeat([5, 15, 15, 15], num_users)
    features = generator.standard_normal((20, 4)).astype(np.float32)
    features[np.arange(20), np.arange(20) % 2] += 3
    split = Split(
        train_idx=users[: num_users // 2],
        valid_idx=users[num_users // 2 : 3 * num_users // 4],
        test_idx=users[3 * num_users // 4 :],
    )
    items, cutoffs = np.concatenate([past, future]), np.full(num_users, 10)
    return shop_of(buyers, items, days, features, users, cutoffs, labels, split)


def shop_of(
    buyers: Any,
    items: Any,
    days: Any,
    features: Any,
    users: Any,
    cutoffs: Any,
    labels: Any,
    split: Split | None = None,
    **options: Any,
) -> Graph:
    """Return the graph of purchases and rows; without ``split`` by the last two cut-offs."""
    last = np.unique(cutoffs)[-2:]
    rows = TaskRows(
        name="shop",
        vertices=users,
        cutoffs=cutoffs,
        labels=labels,
        num_classes=2,
        split=split
        or Split(
            train_idx=np.flatnonzero(cutoffs < last[0]),
            valid_idx=np.flatnonzero(cutoffs == last[0]),
            test_idx=np.flatnonzero(cutoffs == last[1]),
        ),
        metric=options.pop("metric", "accuracy"),
    )
    num_users = int(max(users.max(), buyers.max())) + 1
    age = np.linspace(0, 1, num_users, dtype=np.float32)[:, None]
    return from_typed_arrays(
        {"user": age, "item": features},
        {
            ("item", "sold", "user"): (items, buyers),
            ("user", "buys", "item"): (buyers, items),
        },
        vertex_times={"item": np.zeros(len(features), np.int64)},
        edge_times={("item", "sold", "user"): days, ("user", "buys", "item"): days},
        time_unit="day",
        rows=("user", rows),
        name="shop",
        **options,
    )


def contacts(num_vertices: int = 80) -> Graph:
    """Return contacts at random times without types of vertices, and rows of random labels."""
    generator = np.random.default_rng(2)
    ends = generator.integers(0, num_vertices, (2, 600))
    features = generator.standard_normal((num_vertices, 6)).astype(np.float32)
    graph = from_arrays(
        tuple(ends),
        features,
        edge_times=generator.integers(0, 40, 600),
        vertex_times=generator.integers(0, 5, num_vertices),
        time_unit="day",
        name="contacts",
    )
    vertices = np.tile(np.arange(num_vertices), 4)
    cutoffs = np.repeat([10, 20, 30, 40], num_vertices)
    rows = TaskRows(
        name="contacts",
        vertices=vertices,
        cutoffs=cutoffs,
        labels=generator.integers(0, 2, len(vertices)),
        num_classes=2,
        split=Split(
            train_idx=np.flatnonzero(cutoffs < 30),
            valid_idx=np.flatnonzero(cutoffs == 30),
            test_idx=np.flatnonzero(cutoffs == 40),
        ),
    )
    return with_checked_rows(graph, rows)


def ageing(scale: int, num_vertices: int = 150) -> Graph:
    """Return vertices with equal features, and rows labeled by whether they are of an age.

    It is ten days times ``scale``.
    """
    generator = np.random.default_rng(3)
    born = generator.integers(0, 40, num_vertices)
    vertices = np.tile(np.arange(num_vertices), 4)
    cutoffs = born[vertices] + generator.integers(0, 20, len(vertices))
    order = np.argsort(cutoffs, kind="stable")
    vertices, cutoffs = vertices[order], cutoffs[order]
    ring = (np.arange(num_vertices), np.roll(np.arange(num_vertices), 1))
    graph = from_arrays(
        ring,
        np.ones((num_vertices, 2), np.float32),
        vertex_times=born * scale,
        time_unit="day",
        name="ageing",
    )
    rows = TaskRows(
        name="ageing",
        vertices=vertices,
        cutoffs=cutoffs * scale,
        labels=(cutoffs - born[vertices] >= 10).astype(np.int64),
        num_classes=2,
        split=Split(
            train_idx=np.arange(0, 400), valid_idx=np.arange(400, 500), test_idx=np.arange(500, 600)
        ),
    )
    return with_checked_rows(graph, rows)


def own_times(num_users: int = 200) -> Graph:
    """Return labeled vertices whose label only neighbors that appear after them tell."""
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 2, num_users)
    tellers = np.arange(num_users) + num_users
    features = generator.standard_normal((2 * num_users, 3)).astype(np.float32)
    features[tellers, 0] = 4.0 * labels - 2
    train, valid, test = np.split(np.arange(num_users), [100, 150])
    return from_arrays(
        (tellers, np.arange(num_users)),
        features,
        np.concatenate([labels, np.full(num_users, -1)]),
        train_idx=train,
        valid_idx=valid,
        test_idx=test,
        vertex_times=np.repeat([5, 9], num_users),
        time_unit="day",
        name="own",
    )
