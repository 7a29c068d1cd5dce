"""Options of tables by type that name no such type, or do not fit each other, are refused."""

from typing import Any

import pytest

from gnnscale.core import ConfigError
from gnnscale.data import TypedTables

VERTICES = {"user": "users.csv", "item": "items.csv"}
LIKES = {"user-likes-user": "orders.csv"}
SHOP = {
    "name": "shop",
    "vertices": VERTICES,
    "edges": {"user-buys-item": "orders.csv"},
    "target": "user",
    "label": "churned",
}


def test_options_that_fit() -> None:
    TypedTables(**SHOP)
    TypedTables(**SHOP | {"target": None, "label": {"user": "churned", "item": "kind"}})
    TypedTables(**SHOP | {"edges": LIKES, "vertices": {"user": "users.csv"}, "reverse": False})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": {"user-buys-thing": "orders.csv"}}, "user-buys-thing: expected SOURCE-RELATION"),
        ({"edges": {"user-item": "orders.csv"}}, "which are user, item, got other names"),
        ({"vertices": VERTICES | {"tag": None}}, "dataset.vertices: tag: expected a file"),
        ({"vertices": VERTICES | {"user": None}}, "target: user: expected a type with a table"),
        ({"target": "usr"}, "dataset.target: usr: .* did you mean 'user'"),
        ({"target": None}, "dataset.label=churned: expected dataset.target too"),
        ({"label": None}, "dataset.target=user: expected dataset.label too"),
        ({"label": {"user": "churned"}}, "dataset.target=user: expected null, as dataset.label"),
        ({"target": None, "label": {"usr": "churned"}}, "dataset.label: usr: .* mean 'user'"),
        ({"target": None, "label": {"user": 3}}, "dataset.label=.*: expected a column, or columns"),
        ({"label_kind": {"usr": "values"}}, "dataset.label_kind: usr: .* mean 'user'"),
        ({"target": None, "label": None, "split": "random"}, "leaves nothing to split"),
        ({"features": {"shop": ["age"]}}, "dataset.features: shop: expected a type"),
        ({"id": 3}, "dataset.id=3: expected a column, or columns by vertex type"),
        (
            {"ends": {"user-sees-item": ["a", "b"]}},
            "dataset.ends: user-sees-item: expected an edge",
        ),
        (
            {"ends": {"user-buys-item": ["a"]}},
            r"expected two columns, \[SOURCE, TARGET\], got \[a\]",
        ),
        (
            {"edges": LIKES | {"user-rev_likes-user": "orders.csv"}},
            "appears twice; dataset.reverse",
        ),
        ({"foreign_keys": {"user.town": "town"}}, "foreign_keys: town: expected a type"),
        ({"foreign_keys": {"town": "item"}}, "town: expected TYPE.COLUMN with a type"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        TypedTables(**SHOP | options)
    assert "\n" not in str(error.value)
