from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.data import from_arrays
from gnnscale.data.tables.categories import Column, feature_mapping, mixed_up, remap_features

EDGES = (np.array([0, 1]), np.array([1, 2]))
AGE = Column(name="age", width=1)


def cities(*names: str) -> Column:
    return Column(name="city", width=len(names), categories=names)


def test_places_by_hand() -> None:
    want = (cities("bern", "oslo", "rome"), AGE)
    assert feature_mapping("new", want, want) is None
    found = feature_mapping("new", (cities("oslo", "rome"), AGE), want)
    assert found.tolist() == [-1, 0, 1, 2]
    graph = from_arrays(EDGES, np.array([[1, 0, 31], [0, 1, 27], [0, 0, 5]], np.float32))
    arranged = remap_features(graph, found)
    assert arranged.features.tolist() == [[0, 1, 0, 31], [0, 0, 1, 27], [0, 0, 0, 5]]
    assert graph.features.shape == (3, 3)
    lossy = remap_features(graph.with_quantized_features("int8"), found)
    assert lossy.feature_dtype == "float32"
    assert lossy.features == pytest.approx(arranged.features, abs=31 / 127 / 2 * 1.001)


def test_columns_are_what_they_say_and_categories_known() -> None:
    for names in (("b", "a"), ("a", "a")):
        with pytest.raises(ValueError, match="2 categories of 2 features"):
            cities(*names)
    with pytest.raises(ValueError, match="2 categories of 3 features"):
        replace(cities("a", "b"), width=3)
    with one_line("dataset: column 'city' of new: expected the categories of training,"):
        feature_mapping("new", (cities("bern", "oslo", "zug"),), (cities("oslo", "rome"),))


def test_numbers_among_texts() -> None:
    assert mixed_up(["1", "2.5", "-3e4", "n/a"]) == "n/a"
    assert mixed_up(["1", "07"]) is None
    assert mixed_up(["a", "b1", "nan"]) is None


@pytest.mark.long
@settings(max_examples=20)
@given(st.data())
def test_one_hot_rows_mean_the_same_after_they_are_arranged(data: Any) -> None:
    known = tuple(sorted(data.draw(st.sets(st.sampled_from("abcdefgh"), min_size=1))))
    there = tuple(sorted(data.draw(st.sets(st.sampled_from(known), min_size=1))))
    rows = data.draw(st.lists(st.sampled_from(there), min_size=3, max_size=3))
    have, want = (AGE, cities(*there)), (AGE, cities(*known))

    def one_hot(categories: tuple[str, ...]) -> np.ndarray:
        return np.array([[9, *(each == name for name in categories)] for each in rows], np.uint8)

    graph = from_arrays(EDGES, one_hot(there))
    places = feature_mapping("new", have, want)
    arranged = graph if places is None else remap_features(graph, places)
    assert np.array_equal(arranged.features, one_hot(known))
    assert arranged.features.dtype == np.uint8
