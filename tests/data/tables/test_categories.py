from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from one_line import one_line

from gnnscale.data import from_arrays
from gnnscale.data.tables.categories import (
    Arrangement,
    Column,
    arrange_rows,
    arrangement,
    check_kinds,
    count_cells,
    unseen_categories,
)
from gnnscale.graph import FeatureMatrix, Graph

EDGES = (np.array([0, 1]), np.array([1, 2]))
AGE = Column(name="age", width=1)


def cities(*names: str) -> Column:
    return Column(name="city", width=len(names), categories=names)


def arranged_as(have: tuple[Column, ...], want: tuple[Column, ...]) -> Arrangement | None:
    return arrangement("new", have, want, unseen="refuse")


def arranged_by(target: Arrangement, graph: Graph) -> FeatureMatrix:
    dtype: Any = graph.feature_dtype
    matrix = FeatureMatrix(rows=graph.features, dtype=dtype, width=graph.num_features)
    return arrange_rows(matrix, target)


def test_places_by_hand() -> None:
    want = (cities("bern", "oslo", "rome"), AGE)
    assert arranged_as(want, want) is None
    found = arranged_as((cities("oslo", "rome"), AGE), want)
    assert found is not None
    assert found.index.tolist() == [-1, 0, 1, 2]
    graph = from_arrays(EDGES, np.array([[1, 0, 31], [0, 1, 27], [0, 0, 5]], np.float32))
    arranged = arranged_by(found, graph)
    assert arranged.rows.tolist() == [[0, 1, 0, 31], [0, 0, 1, 27], [0, 0, 0, 5]]
    assert graph.features.shape == (3, 3)
    lossy = arranged_by(found, graph.with_quantized_features("int8"))
    assert lossy.dtype == "float32"
    assert lossy.rows == pytest.approx(arranged.rows, abs=31 / 127 / 2 * 1.001)


def test_columns_are_what_they_say_and_categories_known() -> None:
    for names in (("b", "a"), ("a", "a")):
        with pytest.raises(ValueError, match="2 categories of 2 features"):
            cities(*names)
    with pytest.raises(ValueError, match="2 categories of 3 features"):
        replace(cities("a", "b"), width=3)
    with one_line("dataset: column 'city' of new: expected the categories of training,"):
        arranged_as((cities("bern", "oslo", "zug"),), (cities("oslo", "rome"),))
    with pytest.raises(ValueError, match="2 features with gaps True"):
        Column(name="age", width=2, has_gaps=True, mean=(1.0, 2.0))


def test_empty_cells_get_the_mean_of_training_and_dates_its_first_day() -> None:
    """The graph's first day is 3 days after the run's; its own mean, 8, is in its empty cell."""
    have = (
        Column(name="age", width=2, has_gaps=True, mean=(8.0,)),
        Column(name="day", width=1, origin=103, mean=(1.0,)),
    )
    want = (
        Column(name="age", width=1, mean=(50.0,)),
        Column(name="day", width=2, origin=100, has_gaps=True, mean=(2.0,)),
    )
    rows = np.array([[7, 0, 0], [9, 0, 2], [8, 1, 1]], np.float32)
    graph = from_arrays(EDGES, rows)
    found = arranged_as(have, want)
    assert found is not None
    assert arranged_by(found, graph).rows.tolist() == [[7, 3, 0], [9, 5, 0], [50, 4, 0]]
    # In a column without a value all cells are empty, whatever it had in training.
    nothing = tuple(Column(name=name, width=2, has_gaps=True) for name in ("age", "city", "day"))
    run = (want[0], cities("oslo", "rome"), want[1])
    for column, expected in zip(nothing, run, strict=True):
        check_kinds("new", column, expected)
    found = arranged_as(nothing, run)
    assert found is not None
    empty = from_arrays(EDGES, np.tile(np.array([0, 1], np.float32), (3, 3)))
    assert arranged_by(found, empty).rows.tolist() == [[50, 0, 0, 2, 1]] * 3


def test_dates_are_no_numbers() -> None:
    day = Column(name="age", width=1, origin=100)
    with one_line("column 'age' of new: expected numbers as in training, got dates"):
        check_kinds("new", day, AGE)
    with one_line("column 'age' of new: expected dates as in training, got numbers"):
        check_kinds("new", AGE, day)


def test_unseen_categories_are_empty_cells_and_counted() -> None:
    have, want = (AGE, cities("bern", "oslo", "zug")), (AGE, cities("oslo", "rome"))
    rows = np.array([[5, 1, 0, 0], [6, 0, 1, 0], [7, 0, 0, 1]], np.float32)
    graph = from_arrays(EDGES, rows)
    found = arrangement("new", have, want, unseen="empty")
    assert found is not None
    assert arranged_by(found, graph).rows.tolist() == [[5, 0, 0], [6, 1, 0], [7, 0, 0]]
    assert list(unseen_categories(have, want)) == [("city", ["bern", "zug"], [1, 3])]
    assert count_cells(rows, [1, 3], "float32", 4) == 2
