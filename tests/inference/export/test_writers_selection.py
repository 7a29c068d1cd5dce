from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaded_run import loaded
from one_line import one_line

from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.inference.export.writers import write_partners, write_scores

Trained = Callable[..., Path]
VERTICES = np.array([2, 0])
FOUND = [(np.array([[1, 0]]), np.float32([[3, 2]])), (np.array([[2, 1]]), np.float32([[5, 4]]))]


@pytest.mark.parametrize("own", [None, ["a", "b", "c"]])
def test_what_files_hold(tmp_path: Path, own: list[str] | None) -> None:
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
    write_scores(tmp_path / "s.npy", pairs, scores, ids)
    assert np.load(tmp_path / "s.npy").tolist() == [1, 2, 3]


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
        ({"pairs": [[0, 1]], "what": "logits"}, "layer, what: expected neither with pairs or top"),
        ({"top": 1, "layer": -2}, "layer, what: expected neither with pairs or top"),
        ({"top": 1}, "top: expected a run of task=links, got a run that"),
        ({"pairs": [[0, 1]]}, "pairs: expected a run of task=links, got a run"),
    ):
        with one_line(message):
            predict(PredictConfig(**given, **options))
    assert not (tmp_path / "x.npy").exists()
