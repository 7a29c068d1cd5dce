from pathlib import Path

import pytest
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data.tables.batch import Problems

FIRST, SECOND = Path("a.csv"), Path("b.csv")


def test_each_kind_is_shown_once_by_its_first_row() -> None:
    problems = Problems()
    problems.raise_any()
    problems.add(("x", "kind"), SECOND, 4, "x is bad", 2)
    problems.add(("x", "kind"), FIRST, 9, "x is worse", 1)
    problems.add(("y", "kind"), FIRST, 3, "y is empty", 1)
    wanted = "a.csv: row 3: y is empty | row 9: x is worse (and 2 more like it)"
    with pytest.raises(GraphError) as error:
        problems.raise_any()
    assert str(error.value) == wanted


def test_a_second_pass_counts_nothing_again() -> None:
    problems = Problems()
    problems.add(("x",), FIRST, 1, "x is bad", 1)
    problems.settle()
    problems.add(("x",), FIRST, 1, "x is bad", 1)
    problems.add(("y",), FIRST, 2, "y is bad", 1)
    with one_line("row 1: x is bad | row 2: y is bad", error=GraphError):
        problems.raise_any()


def test_many_kinds_make_one_short_line() -> None:
    problems = Problems()
    for number in range(1000):
        problems.add((str(number),), FIRST, number + 1, "bad", 1)
    with one_line("and 988 more kinds of problems", error=GraphError, shorter_than=400):
        problems.raise_any()
