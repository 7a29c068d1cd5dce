from dataclasses import replace

import numpy as np
import pytest
from one_line import one_line
from typed_graphs import shop

from gnnscale.graph import Origin
from gnnscale.inference.export.link_ends import LinkEnds

#: Vertices are 9 tags, 20 users and 6 items.
SHOP = shop(num_users=20, num_items=6)


def test_ids_count_within_the_types_of_both_ends(tmp_path) -> None:
    ends = LinkEnds(SHOP, 0)
    assert ends.types == ("user", "item")
    assert ends.sources("all").tolist() == [*range(9, 29)]
    assert ends.sources([3, 1]).tolist() == [12, 10]
    assert ends.candidates([5]).tolist() == [34]
    np.save(tmp_path / "pairs.npy", np.array([[19, 5], [0, 0]], np.uint8))
    for pairs in ([[19, 5], [0, 0]], tmp_path / "pairs.npy"):
        assert ends.pairs(pairs).tolist() == [[28, 34], [9, 29]]
    assert ends.numbers(np.array([[28, 34], [9, 29]])).tolist() == [[19, 5], [0, 0]]
    assert ends.numbers(np.array([28]), 0).tolist() == [19]
    assert ends.numbers(np.array([[34]]), 1).tolist() == [[5]]
    with one_line("pairs", "6 is no vertex of shop: item"):
        ends.pairs([[0, 6]])
    with one_line("candidates: expected vertices of type item", "user-buys-item", "type user"):
        ends.candidates(("user", [1]))


def test_users_own_ids() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    names = [f"{kind}{n}" for kind, count in (("t", 9), ("u", 20), ("i", 6)) for n in range(count)]
    ids = pyarrow.array(names, pyarrow.large_string())
    ends = LinkEnds(replace(SHOP, origin=Origin(ids=ids)), 0)
    pairs = ends.pairs([["u19", "i5"], ["u0", "i0"]])
    assert pairs.tolist() == [[28, 34], [9, 29]]
    assert ends.numbers(pairs) is pairs
    assert ends.candidates(["i2"]).tolist() == [31]
    with one_line("u1"):
        ends.candidates(["u1"])
