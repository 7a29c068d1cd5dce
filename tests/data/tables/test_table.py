from itertools import product
from pathlib import Path

import pyarrow as pa

from gnnscale.data.tables.batch import Problems
from gnnscale.data.tables.table import CsvFile, Table


def test_a_small_file_of_equal_rows_is_counted_exactly(tmp_path: Path) -> None:
    """The header is no row, and the last row counts without its line end as well."""
    file = tmp_path / "vertices.csv"
    for rows, end in product((1, 2, 800), ("\n", "")):
        file.write_text("id,label\n" + "\n".join(["1000,1"] * rows) + end)
        assert CsvFile(file, ",", ".", Problems()).num_rows() == rows


def test_a_word_for_empty_cells(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text('id,town,age\n1,\\N,\\N\n\\N,Bonn,3\n2,"\\N",\n')
    table = Table([file], ",", 1 << 20, null="\\N")
    kinds = {"id": pa.int64(), "town": pa.string(), "age": pa.float64()}
    (batch,) = table.batches([*kinds], kinds, 8)
    assert [batch.columns[name].to_pylist() for name in kinds] == [
        [1, None, 2],
        [None, "Bonn", "\\N"],
        [None, 3, None],
    ]
    with_text = Table([file], ",", 1 << 20)
    (batch,) = with_text.batches(["town"], {"town": pa.string()}, 8)
    assert batch.columns["town"].to_pylist() == ["\\N", "Bonn", "\\N"]
