from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnscale.dataset.formats import array_folder
from gnnscale.dataset.formats.array_folder import ArrayFolder, open_arrays
from gnnscale.dataset.formats.npz import NpzReader
from gnnscale.graph import GraphError

PAIRS = np.array([[0, 1, 2], [3, 4, 5]])


def test_a_folder_reads_as_an_archive_does(tmp_path: Path) -> None:
    arrays = {"pairs": PAIRS, "ids": np.arange(3), "labels": np.array([[1, 0], [0, 1]])}
    np.savez(tmp_path / "all.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    with open_arrays(tmp_path) as folder, open_arrays(tmp_path / "all.npz") as archive:
        assert isinstance(folder, ArrayFolder)
        assert isinstance(archive, NpzReader)
        assert sorted(folder.names) == sorted(archive.names) == sorted(arrays)
        for each in (folder, archive):
            assert "ids" in each
            assert "other" not in each
            assert each.vector("ids").tolist() == [0, 1, 2]
            assert each.labels("labels", 2).tolist() == [[1, 0], [0, 1]]
            assert np.concatenate(list(each.rows("pairs"))).tolist() == PAIRS.tolist()
            slices = list(each.pairs("pairs"))
            ends = [np.concatenate(end).tolist() for end in zip(*slices, strict=True)]
            assert ends == PAIRS.tolist()
            assert each.header("pairs", axes=2, kinds="iu").shape == (2, 3)
            with pytest.raises(GraphError, match=r"ids.npy: int64\[3\] has 1 axes"):
                each.header("ids", axes=2, kinds="iu")


def test_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_folder, "SLICE_BYTES", 32)
    np.save(tmp_path / "pairs.npy", PAIRS)
    slices = [np.stack(ends).tolist() for ends in ArrayFolder(tmp_path).pairs("pairs")]
    assert slices == [[[0, 1], [3, 4]], [[2], [5]]]


def test_neither_folder_nor_archive(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"x.npy: allowed are a folder of .npy files and a .npz"):
        open_arrays(tmp_path / "x.npy")
