from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops


def texts(words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    data = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(data), np.uint8)


def check_places(found: tuple[NDArray[np.int32], int], ids: list[Any], wanted: list[Any]) -> None:
    places, unknown = found
    expected = [ids.index(each) if each in ids else -1 for each in wanted]
    assert places.dtype == np.int32
    assert places.tolist() == expected
    assert unknown == (expected.index(-1) if -1 in expected else -1)


@pytest.mark.long
@settings(max_examples=40)
@given(st.lists(st.integers(-50, 50) | st.integers(-(2**63), 2**63 - 1), unique=True), st.data())
def test_integers_are_found_where_they_stand(ids: list[int], data: st.DataObject) -> None:
    known = st.sampled_from(ids) if ids else st.nothing()
    wanted = data.draw(st.lists(known | st.integers(-60, 60)))
    table = ops.IntegerIds(np.array(ids, np.int64))
    check_places(table.find(np.array(wanted, np.int64), num_threads=2), ids, wanted)


@pytest.mark.long
@settings(max_examples=40)
@given(st.lists(st.text(max_size=20), unique=True), st.data())
def test_texts_are_found_where_they_stand(ids: list[str], data: st.DataObject) -> None:
    known = st.sampled_from(ids) if ids else st.nothing()
    wanted = data.draw(st.lists(known | st.text(max_size=2)))
    check_places(ops.TextIds(*texts(ids)).find(*texts(wanted), num_threads=2), ids, wanted)


def test_many_integers() -> None:
    for spread, num_threads in ((1, 1), (3, 2), (2**40 + 1, 1), (2**40 + 1, 5)):
        generator = np.random.Generator(np.random.Philox(0))
        ids = generator.permutation(100_000) * spread - 7
        order = generator.permutation(len(ids))
        table = ops.IntegerIds(ids)
        places, unknown = table.find(ids[order], num_threads=num_threads)
        np.testing.assert_array_equal(places, order)
        assert unknown == -1
        wanted = ids[order].copy()
        wanted[[70_000, 40_000]] = (-8, ids.max() + 1)
        assert table.find(wanted, num_threads=num_threads)[1] == 40_000


def test_many_texts() -> None:
    ids = [f"user-{number * 7919 % 100_003}" for number in range(100_000)]
    order = np.random.Generator(np.random.Philox(0)).permutation(len(ids))
    table = ops.TextIds(*texts(ids))
    places, unknown = table.find(*texts([ids[place] for place in order]), num_threads=3)
    np.testing.assert_array_equal(places, order)
    assert unknown == -1
    assert table.num_bytes > 100_000 * 16


def test_repeated_and_copied_ids() -> None:
    for far in (0, 2**50):  # a range, and hashed
        assert ops.IntegerIds(np.array([far, 4, 5, 6])).repeated is None
        assert ops.IntegerIds(np.array([far, 4, 5, 4, 5, far])).repeated == (1, 3)
    assert ops.TextIds(*texts(["", "a", "aa"])).repeated is None
    assert ops.TextIds(*texts(["", "a", "aa", "aa", "", "a"])).repeated == (2, 3)
    table = ops.TextIds(*texts(["a", "a\0", "\0a"]))
    wanted = ["\0a", "a", "a\0", "a\0\0"]
    check_places(table.find(*texts(wanted), num_threads=1), ["a", "a\0", "\0a"], wanted)
    offsets, data = texts(["ab", "cd"])
    offsets, data = offsets.copy(), data.copy()
    table = ops.TextIds(offsets, data)
    offsets[:], data[:] = 2**60, 0
    assert table.find(*texts(["cd"]), num_threads=1)[0].tolist() == [1]
