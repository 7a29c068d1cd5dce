from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.core.errors import GraphError
from gnnscale.ops import naming_graph


@pytest.mark.long
@settings(max_examples=80)
@given(st.data())
def test_sums_are_those_of_numpy(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20))
    values = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), np.int32)
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=30))
    order = np.array(places, data.draw(st.sampled_from([np.int32, np.int64])))
    falling = data.draw(st.booleans())
    if falling:
        order = order[np.argsort(-values[order])]
    every = data.draw(st.integers(1, 35))
    entry, each = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    sizes: dict[str, Any] = {"bytes_per_vertex": each}
    numbers = values[order].astype(np.int64) + each
    if data.draw(st.booleans()):
        sizes |= {"offsets": np.cumsum([0, *lengths]), "bytes_per_entry": entry}
        numbers += np.array(lengths)[order] * entry
    sums = np.concatenate([[0], np.cumsum(numbers)])
    sizes |= {"every": every, "falling": falling}
    expected = sums[[*range(0, len(order), every), len(order)]]
    for threads in (1, 3):
        for each in (values, values.astype(np.float32)):
            found = ops.running_sums(order, each, num_threads=threads, **sizes)
            assert found.dtype == (np.int64 if each.dtype == np.int32 else np.float64)
            assert found.tolist() == expected.tolist()


def test_sums_by_hand() -> None:
    values = np.array([2**24, 1, 1, 0.5], np.float32)
    for every in (1, 3, 4):
        found = ops.running_sums(np.arange(4), values, every=every, num_threads=1)
        assert found[-1] == 2**24 + 2.5
    # Where values fall, all between two equal ones are as large; here they do not fall.
    values = np.array([1, 9, 1], np.int32)
    for falling, expected in ((True, 3), (False, 11)):
        found = ops.running_sums(np.arange(3), values, every=3, falling=falling, num_threads=1)
        assert found.tolist() == [0, expected]
    damaged = {"offsets": np.array([0, 3, 2, 5]), "bytes_per_entry": 4, "num_threads": 1}
    with pytest.raises(GraphError, match="tiny: damaged, offsets: the list"), naming_graph("tiny"):
        ops.running_sums(np.arange(3), every=2, **damaged)
