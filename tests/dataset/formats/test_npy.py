from __future__ import annotations

import numpy as np
import pytest

from gnnscale.dataset.formats import npy
from gnnscale.dataset.formats.npy import NpyWriter, NpzReader, map_npy
from gnnscale.graph import GraphError


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(npy, "_SLICE_BYTES", 64)


def test_writer(tmp_path):
    writer = NpyWriter(tmp_path / "x.npy", np.dtype(np.float16), (2,))
    for rows in (np.ones((3, 2)), np.empty((0, 2)), np.zeros((100_000, 2))):
        writer.append(rows)
    entry = writer.close()
    array = np.load(tmp_path / "x.npy")
    assert array.shape == (100_003, 2)
    assert array[2].tolist() == [1, 1]
    assert entry["shape"] == [100_003, 2]
    assert entry["bytes"] == (tmp_path / "x.npy").stat().st_size


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_slices(tmp_path, small_slices, save):
    pairs, rows = np.arange(200).reshape(2, 100), np.arange(60.0).reshape(20, 3)
    save(tmp_path / "x.npz", pairs=pairs, rows=rows)
    with NpzReader(tmp_path / "x.npz") as npz:
        slices = list(npz.pairs("pairs"))
        assert len(slices) > 10
        np.testing.assert_array_equal(np.concatenate(slices, axis=1), pairs)
        slices = list(npz.rows("rows"))
        assert len(slices) == 10
        np.testing.assert_array_equal(np.concatenate(slices), rows)
        assert npz.shape("rows") == (20, 3)
        assert "rows" in npz
        assert "row" not in npz
        with pytest.raises(GraphError, match=r"rows is \[20, 3\], allowed is \[2, num_edges\]"):
            npz.pairs("rows")


def test_objects_and_fortran_order_are_refused(tmp_path):
    fortran = np.asfortranarray(np.ones((3, 2)))
    np.savez(tmp_path / "x.npz", objects=np.array([{}]), fortran=fortran)
    with NpzReader(tmp_path / "x.npz") as npz:
        for read in (npz.__getitem__, npz.shape):
            with pytest.raises(GraphError, match=r"x.npz: objects cannot be read"):
                read("objects")
        with pytest.raises(GraphError, match=r"fortran cannot be read \(float64 in Fortran order"):
            npz.rows("fortran")


def test_damaged_member(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).integers(9, size=10_000))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with NpzReader(path) as npz, pytest.raises(GraphError, match=r"x.npz: a cannot be read"):
        list(npz.rows("a"))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"text"])
def test_files_that_are_no_arrays(tmp_path, content):
    for name in ("x.npy", "x.npz"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match=r"x.npy: not a readable .npy file"):
        map_npy(tmp_path / "x.npy")
    with pytest.raises(GraphError, match=r"x.npz: file cannot be read"):
        NpzReader(tmp_path / "x.npz")
