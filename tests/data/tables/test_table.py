from itertools import product
from pathlib import Path

from gnnscale.data.tables.batch import Problems
from gnnscale.data.tables.table import CsvFile


def test_a_small_file_of_equal_rows_is_counted_exactly(tmp_path: Path) -> None:
    """The header is no row, and the last row counts without its line end as well."""
    file = tmp_path / "vertices.csv"
    for rows, end in product((1, 2, 800), ("\n", "")):
        file.write_text("id,label\n" + "\n".join(["1000,1"] * rows) + end)
        assert CsvFile(file, ",", ".", Problems()).num_rows() == rows
