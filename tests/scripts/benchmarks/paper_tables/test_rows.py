import pytest
from benchmarks.paper_tables.rows import Row, Table


def test_errors_are_of_what_is_known() -> None:
    rows = [
        Row(cell="a", unit="s", published=2.0, predicted=3.0),
        Row(cell="b", unit="s", published=4.0, predicted=3.0),
        Row(cell="c", unit="s", published=None, predicted=3.0),
        Row(cell="d", unit="s", published=1.0, predicted=None),
    ]
    assert [row.error for row in rows] == [0.5, -0.25, None, None]
    assert Table(name="t", rows=rows).mean_error == pytest.approx(0.375)
    assert Table(name="t", rows=rows[2:]).mean_error is None
