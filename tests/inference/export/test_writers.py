import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.inference.export import writers as tables
from gnnscale.inference.export.outputs import RowIds
from gnnscale.inference.export.writers import Layout, check_file, check_ids, open_table, row_bytes

ROWS = np.float32([[1, -3], [-4, 1], [2, 3]])
TENS = RowIds(vertices=np.array([0, 10, 20]))


def layout(*answers: str, **changes: Any) -> Layout:
    fields: dict[str, Any] = {"num_rows": 3, "width": 2, "multilabel": False, "ids": TENS}
    return Layout(answers=answers, **fields | changes)


def written(file: Path, what: Layout) -> None:
    with open_table(file, what) as table:
        table.write(ROWS[:2])
        table.write(ROWS[2:])


@pytest.mark.parametrize("group_bytes", [1, 1 << 20])
def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "_GROUP_BYTES", group_bytes)
    file = tmp_path / "p.parquet"
    written(file, layout("classes", "probabilities", "logits"))
    read = parquet.read_table(file)
    assert read.column_names == ["id", "class", "probabilities", "logits"]
    assert read["id"].to_pylist() == [0, 10, 20]
    assert read["class"].to_pylist() == [0, 1, 1]
    assert np.array(read["logits"].to_pylist()) == pytest.approx(ROWS)
    assert np.array(read["probabilities"].to_pylist()).sum(axis=1) == pytest.approx(1)
    assert parquet.ParquetFile(file).num_row_groups == (2 if group_bytes == 1 else 1)
    written(file, layout("classes", multilabel=True))
    assert parquet.read_table(file)["classes"].to_pylist() == [[0], [1], [0, 1]]
    written(file, layout("classes", multilabel=True, classes=["x", "y"]))
    assert parquet.read_table(file)["classes"].to_pylist() == [["x"], ["y"], ["x", "y"]]
    written(file, layout("classes", classes=["x", "y"]))
    assert parquet.read_table(file)["class"].to_pylist() == ["x", "y", "y"]
    written(file, layout("embeddings"))
    assert parquet.read_table(file).column_names == ["id", "embedding"]
    assert [each.name for each in tmp_path.iterdir()] == ["p.parquet"]


def test_npy(tmp_path: Path) -> None:
    file = tmp_path / "p.npy"
    written(file, layout("logits"))
    assert (np.load(file) == ROWS).all()
    assert np.load(tmp_path / "p.ids.npy").tolist() == [0, 10, 20]
    # Ids of an earlier file do not stay beside rows of all vertices.
    written(file, layout("classes", ids=RowIds(vertices=None)))
    assert np.load(file).tolist() == [0, 1, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["p.npy"]
    written(file, layout("classes", multilabel=True))
    assert np.load(file).tolist() == [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("name", ["p.parquet", "p.npy"])
def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_text("before")
    table = open_table(tmp_path / name, layout("logits"))
    with pytest.raises(KeyboardInterrupt), table as writes:  # noqa: PT012
        writes.write(ROWS)
        raise KeyboardInterrupt
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "before"


def test_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.ids.npy").touch()
    for name, message in (
        ("p.csv", r"expected a name that ends in \.parquet or \.npy"),
        ("none/p.npy", "no such folder"),
        ("p.npy", r"p\.ids\.npy exists, force=true overwrites it"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_file(tmp_path / name, force=False)
    check_file(tmp_path / "p.npy", force=True)
    (tmp_path / "q.npy").mkdir()
    with pytest.raises(ConfigError, match=r"q\.npy exists$"):
        check_file(tmp_path / "q.npy", force=True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"expected pyarrow for a \.parquet file"):
        check_file(tmp_path / "p.parquet", force=False)


def test_one_long_id_does_not_widen_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy gives every text the width of the longest: one line says so, and what has no width."""
    pa = pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    npy, parquet = Path("p.npy"), Path("p.parquet")
    many = pa.array(["x" * 60_000] + [f"u{i}" for i in range(5000)], pa.large_string())
    few = layout("logits", num_rows=5001, ids=RowIds(vertices=None, own=many))
    with pytest.raises(ConfigError) as error:
        check_ids(npy, few)
    assert str(error.value) == (
        "out=p.npy: p.ids.npy would take 1,200,240,000 bytes, since ids have up to "
        "60,000 characters, and NumPy gives as many to each; out=FILE.parquet has no such width"
    )
    check_ids(parquet, few)
    # Long ids of which each is as long are what they are, and so are a few rows of any width.
    check_ids(npy, replace(few, ids=RowIds(vertices=None, own=many.take([0, 0]))))
    check_ids(npy, replace(few, num_rows=2))
    check_ids(npy, replace(few, num_rows=10**9, ids=TENS))
    assert row_bytes(npy, few) == 8 + 4 * 60_000 + 8
    assert row_bytes(parquet, few) < 64


@pytest.mark.parametrize("multilabel", [False, True])
def test_long_names_of_classes_are_decoded_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, multilabel: bool
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "_GROUP_BYTES", 1 << 20)
    names = ["y" * (64 << 10), "z" * (64 << 10)]
    ids, sizes, write = RowIds(vertices=None), [], parquet.ParquetWriter.write_table

    def spied(self: Any, table: Any, *given: Any, **options: Any) -> Any:
        sizes.append(table.nbytes)
        return write(self, table, *given, **options)

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", spied)
    what = layout("classes", multilabel=multilabel, classes=names, ids=ids, num_rows=200)
    with open_table(tmp_path / "p.parquet", what) as table:
        table.write(np.ones((200, 2), np.float32))
    assert max(sizes) < 3 << 20
    column = parquet.read_table(tmp_path / "p.parquet").column(1)
    assert len(column) == 200
    assert set(map(str, column.to_pylist())) == {str(names if multilabel else names[0])}


PROGRAM = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from gnnscale.data import from_arrays
from gnnscale.inference.export.outputs import RowIds
from gnnscale.inference.export.writers import Layout, open_table
from gnnscale.nn import GCN
from gnnscale.inference.layerwise import LayerwiseInference, MemoryLimits

V, C = int(sys.argv[2]), 2000
src = np.random.default_rng(0).integers(0, V, (2, 2 * V))
graph = from_arrays(tuple(src), np.ones((V, 4), np.float32))
model = GCN(hidden=8).build(num_features=4, num_classes=C)
inference = LayerwiseInference(model, graph, num_threads=2, limits=MemoryLimits(chunk_vertices=512))
file = Path(sys.argv[1])
answers = ("probabilities",) if file.suffix == ".npy" else ("classes", "probabilities")
layout = Layout(num_rows=V, width=C, answers=answers, multilabel=False, ids=RowIds(vertices=None))
with open_table(file, layout) as table:
    for rows in inference.rows():
        table.write(rows.numpy())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["p.parquet", "p.npy"])
def test_memory_does_not_grow_with_the_rows_of_a_file(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")

    def peak(num_vertices: int) -> int:
        file = tmp_path / name
        arguments: list[Any] = [sys.executable, "-c", PROGRAM, file, str(num_vertices)]
        found = int(subprocess.run(arguments, check=True, capture_output=True).stdout)
        file.unlink()
        return found

    # 80 MB of rows, and 400 MB.
    few, many = peak(10_000), peak(50_000)
    assert many - few < 80 << 20
