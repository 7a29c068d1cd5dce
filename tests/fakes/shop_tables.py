"""Tables of a shop, as a user has them: text ids, dates, categories, empty cells, unknown ids."""

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

KINDS = ("book", "film", "game")
#: Options of ``train`` on the tables of ``write_shop``.
OF_SHOP = (
    "dataset=typed_tables",
    "dataset.name=shop",
    "dataset.vertices={user:users.csv,item:items.csv}",
    "dataset.edges={user-buys-item:orders.csv}",
    "dataset.target=user",
    "dataset.label=fan",
    "dataset.split=random",
    "dataset.standardize=true",
)


def write_shop(folder: Path, num_users: int, num_items: int, *, seed: int) -> None:
    """Write ``users.csv``, ``items.csv`` and ``orders.csv``; users buy items of their class."""
    rng = np.random.default_rng(seed)

    def gap(value: object) -> object:
        return "" if rng.random() < 0.1 else value

    def day(since: int) -> date:
        return date(since, 1, 1) + timedelta(days=int(rng.integers(700)))

    kinds, tastes = rng.integers(3, size=num_items), rng.integers(3, size=num_users)
    items = [("item_id", "kind", "price", "since")]
    items += [
        (f"I{number}", gap(KINDS[kind]), gap(round(rng.gamma(2, 10), 2)), gap(day(2020)))
        for number, kind in enumerate(kinds)
    ]
    towns = rng.choice(["Oslo", "Rome"], num_users)
    users = [("user_id", "joined", "town", "age", "fan")]
    users += [
        (f"U{number}", gap(day(2021)), gap(towns[number]), gap(20 + number % 50), gap(KINDS[taste]))
        for number, taste in enumerate(tastes)
    ]
    orders = [("user_id", "item_id")]
    for number, taste in enumerate(tastes):
        bought = rng.choice(np.flatnonzero(kinds == taste), 6)
        orders += [(f"U{number}", f"I{item}") for item in bought]
    orders += [("GUEST", "I1"), ("U1", "I-LOST")]
    folder.mkdir()
    for name, rows in (("users", users), ("items", items), ("orders", orders)):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows(rows)
