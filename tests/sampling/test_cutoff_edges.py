"""Edges without messages as of their own times, against a loop over all edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.sampling.cutoff_edges import CutoffEdges

EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-3, 3)), max_size=12)


@given(EDGES, EDGES)
def test_membership_is_that_of_unordered_pairs_with_times(listed, asked) -> None:
    ends = np.array([edge[:2] for edge in listed], np.int32).reshape(-1, 2)
    times = np.array([edge[2] for edge in listed], np.int64)
    edges = CutoffEdges(ends, times, num_vertices=5)
    known = {(frozenset(edge[:2]), edge[2]) for edge in listed}
    src, dst, moments = np.array(asked, np.int64).reshape(-1, 3).T
    expected = [(frozenset(edge[:2]), edge[2]) in known for edge in asked]
    assert edges.contains(src, dst, moments).tolist() == expected
