import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaded_run import loaded
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.inference.export import writers as tables
from gnnscale.inference.export.outputs import RowIds
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.inference.export.writers import (
    Layout,
    check_file,
    check_room,
    row_bytes,
    write_outputs,
    write_partners,
    write_scores,
)

ROWS = np.float32([[1, -3], [-4, 1], [2, 3]])
TENS = RowIds(vertices=np.array([0, 10, 20]))


def layout(*answers: str, **changes: Any) -> Layout:
    fields: dict[str, Any] = {"num_rows": 3, "width": 2, "multilabel": False, "ids": TENS}
    return Layout(answers=answers, **fields | changes)


def written(file: Path, what: Layout) -> None:
    write_outputs(file, what, [ROWS[:2], ROWS[2:]])


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

    def interrupted() -> Iterator[Any]:
        yield ROWS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_outputs(tmp_path / name, layout("logits"), interrupted())
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
    few = layout("logits", num_rows=5001, ids=RowIds(vertices=None, user_ids=many))
    with pytest.raises(ConfigError) as error:
        check_room(npy, few)
    assert str(error.value) == (
        "out=p.npy: p.ids.npy would take 1,200,240,000 bytes, since ids have up to "
        "60,000 characters, and NumPy gives as many to each; out=FILE.parquet has no such width"
    )
    check_room(parquet, few)
    # Long ids of which each is as long are what they are, and so are a few rows of any width.
    check_room(npy, replace(few, ids=RowIds(vertices=None, user_ids=many.take([0, 0]))))
    check_room(npy, replace(few, num_rows=2))
    check_room(npy, replace(few, num_rows=10**9, ids=TENS))
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
    write_outputs(tmp_path / "p.parquet", what, [np.ones((200, 2), np.float32)])
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
from gnnscale.inference.export.writers import Layout, write_outputs
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
write_outputs(file, layout, (rows.numpy() for rows in inference.rows()))
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

    # 40 MB of rows, and 200 MB.
    few, many = peak(5_000), peak(25_000)
    assert many - few < 80 << 20


Trained = Callable[..., Path]
VERTICES = np.array([2, 0])
FOUND = [(np.array([[1, 0]]), np.float32([[3, 2]])), (np.array([[2, 1]]), np.float32([[5, 4]]))]


@pytest.mark.parametrize("own", [None, ["a", "b", "c"]])
def test_contents_of_files(tmp_path: Path, own: list[str] | None) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    ids = None if own is None else pyarrow.array(own)
    names = own or [0, 1, 2]
    write_partners(tmp_path / "t.parquet", VERTICES, FOUND, 2, ids)
    assert parquet.read_table(tmp_path / "t.parquet").to_pydict() == {
        "source": [names[each] for each in (2, 2, 0, 0)],
        "target": [names[each] for each in (1, 0, 2, 1)],
        "score": [3, 2, 5, 4],
    }
    write_partners(tmp_path / "t.npy", VERTICES, FOUND, 2, ids)
    assert np.load(tmp_path / "t.npy").tolist() == [[3, 2], [5, 4]]
    partners = np.load(tmp_path / "t.ids.npy").tolist()
    assert partners == [[names[1], names[0]], [names[2], names[1]]]
    pairs, scores = np.array([[0, 1], [2, 2], [1, 0]]), [np.float32([1, 2]), np.float32([3])]
    write_scores(tmp_path / "s.parquet", pairs, scores, ids)
    assert parquet.read_table(tmp_path / "s.parquet").to_pydict() == {
        "source": [names[each] for each in (0, 2, 1)],
        "target": [names[each] for each in (1, 2, 0)],
        "score": [1, 2, 3],
    }
    # A vertex may have fewer partners.
    few = [(np.array([[1, -1]]), np.float32([[3, -np.inf]])), FOUND[1]]
    write_partners(tmp_path / "few.parquet", VERTICES, few, 2, ids)
    found = parquet.read_table(tmp_path / "few.parquet")
    assert found["target"].to_pylist() == [names[each] for each in (1, 2, 1)]
    # The ids of partners that an earlier command wrote belong to other scores.
    write_scores(tmp_path / "t.npy", pairs, scores, ids)
    assert np.load(tmp_path / "t.npy").tolist() == [1, 2, 3]
    assert not (tmp_path / "t.ids.npy").exists()


@pytest.mark.long
@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_scores_and_partners_of_a_run(trained: Trained, tmp_path: Path, decoder: str) -> None:
    run = trained("task=links", "model=sage", f"task.decoder={decoder}")
    given: dict[str, Any] = {"run": run, "num_threads": 2}
    rows = np.load(predict(PredictConfig(out=tmp_path / "rows.npy", **given)))
    graph, _ = loaded(run)
    top = predict(PredictConfig(out=tmp_path / "top.npy", top=3, vertices=[5, 9], **given))
    scores, partners = np.load(top), np.load(tmp_path / "top.ids.npy")
    assert partners.shape == scores.shape == (2, 3)
    assert not (partners == [[5], [9]]).any()
    assert (np.diff(scores) <= 0).all()
    pairs = np.stack([np.repeat([5, 9], 3), partners.reshape(-1)], axis=1)
    np.save(tmp_path / "p.npy", pairs)
    same = predict(PredictConfig(out=tmp_path / "s.npy", pairs=str(tmp_path / "p.npy"), **given))
    assert np.load(same) == pytest.approx(scores.reshape(-1), rel=1e-4, abs=1e-5)
    if decoder == "dot":
        every = rows[[5, 9]] @ rows.T
        every[[0, 1], [5, 9]] = -np.inf
        assert scores == pytest.approx(-np.sort(-every, axis=1)[:, :3], rel=1e-4, abs=1e-5)
    some = {"top": 2, "candidates": [1, 2, 3]}
    predict(PredictConfig(out=tmp_path / "few.npy", **some, **given))
    assert set(np.load(tmp_path / "few.ids.npy").reshape(-1)) == {1, 2, 3}
    assert len(np.load(tmp_path / "few.npy")) == graph.num_vertices
    with one_line("top=3: expected at most 2 of 3 candidates; a candidate is not"):
        predict(PredictConfig(out=tmp_path / "x.npy", **some | {"top": 3}, **given))
    fresh = {"top": 5, "vertices": [5, 9], "known": "exclude"}
    predict(PredictConfig(out=tmp_path / "fresh.npy", **fresh, **given))
    neighbors = [{*graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()} for v in (5, 9)]
    listed = np.load(tmp_path / "fresh.ids.npy").tolist()
    assert not any(known & {*some} for known, some in zip(neighbors, listed, strict=True))
    count = graph.num_vertices - 1
    with one_line(f"top={count}: expected {count} candidates or more without a known edge"):
        predict(PredictConfig(out=tmp_path / "x.npy", **fresh | {"top": count}, **given))
    # None of those that are asked for is a candidate itself.
    asked = some | {"top": 3, "vertices": [0, 9]}
    predict(PredictConfig(out=tmp_path / "all.npy", **asked, **given))
    every = np.load(tmp_path / "all.ids.npy")
    assert np.sort(every, axis=1).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert np.isfinite(np.load(tmp_path / "all.npy")).all()
    with one_line("top=4: expected at most 3 of 3 candidates"):
        predict(PredictConfig(out=tmp_path / "x.npy", **asked | {"top": 4}, **given))


def test_options_that_do_not_go_together(trained: Trained, tmp_path: Path) -> None:
    given: dict[str, Any] = {"run": trained(), "num_threads": 1, "out": tmp_path / "x.npy"}
    for options, message in (
        ({"top": 0}, "top=0"),
        ({"top": 1, "pairs": [[0, 1]]}, "pairs, top: expected one of them"),
        ({"candidates": [1]}, "candidates: expected top=K with candidates"),
        ({"pairs": [[0, 1]], "vertices": [1]}, "vertices: expected all with pairs"),
        ({"top": 1, "layer": -2}, "layer, what: expected neither with pairs or top"),
        ({"known": "exclude"}, "known=exclude: expected top=K with it, got top=null"),
        ({"top": 1, "known": "all"}, "known=all: allowed are include, exclude"),
        ({"top": 1}, "top: expected a run of task=links, got a run that"),
        ({"pairs": [[0, 1]]}, "pairs: expected a run of task=links, got a run"),
    ):
        with one_line(message):
            predict(PredictConfig(**given, **options))
    assert not (tmp_path / "x.npy").exists()
