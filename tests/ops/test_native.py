import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.graph import Graph


@settings(max_examples=30)
@given(st.data(), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_building_csc(data: st.DataObject, dtype: Any, drop_duplicates: bool) -> None:
    num_vertices = data.draw(st.integers(1, 30))
    vertex = st.integers(0, num_vertices - 1)
    edges = data.draw(st.lists(st.tuples(vertex, vertex), max_size=200))
    src, dst = np.array(edges, dtype).reshape(-1, 2).T.copy()
    degrees = np.zeros(num_vertices, np.int64)
    ops.count_in_degrees(dst, degrees)
    assert degrees.tolist() == np.bincount(dst, minlength=num_vertices).tolist()
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.full(len(edges), -1, dtype)
    middle = num_vertices // 2
    for first, last in ((0, middle), (middle, num_vertices)):
        cursor = indptr[first:last].copy()
        ops.csc_fill(src, dst, first, last, cursor, indices)
        assert cursor.tolist() == indptr[first + 1 : last + 1].tolist()
    new_indptr = ops.csc_sort(indptr, indices, drop_duplicates, 2)
    for v in range(num_vertices):
        neighbours = sorted(u for u, to in edges if to == v)
        expected = sorted(set(neighbours)) if drop_duplicates else neighbours
        assert indices[new_indptr[v] : new_indptr[v + 1]].tolist() == expected


def test_planted_and_expanded_edges() -> None:
    community = np.arange(1000, dtype=np.int32) % 4
    src, dst = ops.planted_partition_edges(community, np.ones(1000, np.float32), 40000, 0.6, 3)
    assert (src != dst).all()
    assert np.mean(community[src] == community[dst]) == pytest.approx(0.6 + 0.4 / 4, abs=0.01)
    out = np.empty((2, 3), np.int64)
    ops.expand_edges(np.array([0, 2, 2, 3]), np.array([4, 0, 1], np.int32), first_dst=10, out=out)
    assert out.tolist() == [[4, 0, 1], [10, 10, 12]]


@given(st.lists(st.integers(0, 40), max_size=30))
def test_expanded_edges_repeat_their_destination(counts: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    sources = np.arange(indptr[-1], dtype=np.int32) * 3
    out = np.full((2, indptr[-1]), -1)
    ops.expand_edges(indptr, sources, first_dst=5, out=out)
    assert out[0].tolist() == sources.tolist()
    assert out[1].tolist() == np.repeat(np.arange(len(counts)) + 5, counts).tolist()


@pytest.mark.long
@pytest.mark.parametrize("level", ["", "baseline", "avx2"])
def test_the_environment_limits_the_simd_level(level: str) -> None:
    command = [sys.executable, "-c", "from gnnscale import ops; print(ops.simd_level())"]
    environment = os.environ | {"GNNSCALE_SIMD_LEVEL": level}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if level == "avx2":
        assert "GNNSCALE_SIMD_LEVEL=avx2: must be baseline, v3 or v4" in ended.stderr
    else:
        expected = level if level == "baseline" else ops.supported_simd_level()
        assert expected in ("baseline", "v3", "v4")
        assert ended.stdout.strip() == expected


def test_phases_of_relabelling_are_timed(random_graph: Callable[..., Graph]) -> None:
    sampler = ops.NativeSampler(random_graph(2000, 40_000, num_features=1))
    for num_threads in (1, 3):
        draw = {"seed": 0, "step": 0, "num_threads": num_threads}
        seconds = sampler.time_relabelling(np.arange(500), [10, 5], **draw)
        assert list(seconds) == ["lists", "offsets", "pick", "count", "number", "alone"]
        assert min(seconds.values()) > 0
    with pytest.raises(ValueError, match="seeds: 2000 is not a vertex"):
        sampler.time_relabelling(np.array([2000]), [1], seed=0, step=0, num_threads=1)


def test_negatives_and_draws_of_pairs() -> None:
    edges = np.array([5, 900, 7])
    drawn = ops.draw_negatives(edges, 4, 1000, seed=3, step=9)
    assert drawn.shape == (3, 4)
    again = ops.draw_negatives(edges[::-1].copy(), 6, 1000, seed=3, step=9, num_threads=2)
    assert np.array_equal(again[::-1, :4], drawn)
    for other in ({"seed": 4, "step": 9}, {"seed": 3, "step": 10}):
        assert not np.array_equal(ops.draw_negatives(edges, 4, 1000, **other), drawn)
    drawn = ops.draw_negatives(np.arange(20_000), 5, 10, seed=1, step=0)
    # Chi-square with 9 degrees of freedom: above 33.7 once in 10,000 times.
    assert ((np.bincount(drawn.ravel(), minlength=10) - 10_000) ** 2 / 10_000).sum() < 33.7
    first, second = np.array([1, 2, 1]), np.array([2, 1, 2])
    drawn = ops.draw_of_pairs(first, second, seed=0)
    assert drawn[0] == drawn[2] != drawn[1]
    assert not np.array_equal(ops.draw_of_pairs(first, second, seed=1), drawn)
    first, second = (each.ravel() for each in np.mgrid[:300, :300])
    drawn = ops.draw_of_pairs(first, second, seed=7, num_threads=2)
    counts = np.bincount((drawn * 10).astype(int), minlength=10)
    assert ((counts - 9_000) ** 2 / 9_000).sum() < 33.7
    assert 0 < drawn.min() < drawn.max() < 1
    with pytest.raises(ValueError, match=r"^num_vertices"):
        ops.draw_negatives(np.arange(3), 1, 0, seed=0, step=0)
    with pytest.raises(ValueError, match=r"^second"):
        ops.draw_of_pairs(np.arange(3), np.arange(2), seed=0)
