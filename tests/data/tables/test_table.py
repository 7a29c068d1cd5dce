from pathlib import Path

import pytest

from gnnscale.data.tables.table import CsvFile


@pytest.mark.parametrize("rows", [1, 2, 800])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_small_file_of_equal_rows_is_counted_exactly(tmp_path: Path, rows: int, end: str) -> None:
    """The header is no row, and the last row counts without its line end as well."""
    file = tmp_path / "vertices.csv"
    file.write_text("id,label\n" + "\n".join(["1000,1"] * rows) + end)
    assert CsvFile(file, ",").num_rows() == rows
