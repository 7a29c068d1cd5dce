import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.errors import GraphError
from gnnscale.data.formats.npz import ArrayFolder, NpzReader, open_arrays

PAIRS = np.array([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_slices(tmp_path, save):
    pairs, rows = np.arange(200).reshape(2, 100), np.arange(60.0).reshape(20, 3)
    save(tmp_path / "x.npz", pairs=pairs, rows=rows)
    with NpzReader(tmp_path / "x.npz", slice_bytes=64) as npz:
        slices = list(npz.pairs("pairs"))
        assert len(slices) > 10
        np.testing.assert_array_equal(np.concatenate(slices, axis=1), pairs)
        slices = list(npz.rows("rows"))
        assert len(slices) == 10
        np.testing.assert_array_equal(np.concatenate(slices), rows)
        np.testing.assert_array_equal(npz.matrix("rows"), rows)
        assert npz.header("rows", axes=2, kinds="f").shape == (20, 3)
        assert npz.names == ["pairs", "rows"]
        assert "rows" in npz
        assert "row" not in npz
        with pytest.raises(GraphError, match=r"rows.npy: expected whole numbers, got float64"):
            list(npz.pairs("rows"))


def test_bad_arrays_are_refused(tmp_path):
    arrays = {
        **{"objects": np.array([{}]), "fortran": np.asfortranarray(np.ones((3, 2)))},
        **{"records": np.zeros(3, [("a", int)]), "text": np.array(["a", "b"])},
        **{"point": np.array(3), "cube": np.zeros((1, 2, 3), int), "flags": np.zeros(3, bool)},
        "pairs": np.zeros((3, 2), int),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    cases = {
        "objects": "not a readable array",
        "fortran": "not a readable array (fortran_order: expected C order, got True",
        "records": "not a readable array",
        "text": "not a readable array",
        "point": "expected 1 axes, got int64[] with 0",
        "cube": "expected 1 axes, got int64[1, 2, 3] with 3",
        "flags": "expected whole numbers, got bool[3]",
        "pairs": "expected 1 axes, got int64[3, 2] with 2",
        "none": "has no array 'none', only objects",
    }
    with NpzReader(tmp_path / "x.npz") as npz:
        for name, message in cases.items():
            with one_line(message, "x.npz", error=GraphError):
                npz.vector(name)
        with pytest.raises(GraphError, match=r"pairs.npy: \[3, 2\], allowed is \[2, num_edges\]"):
            list(npz.pairs("pairs"))


def with_header(descr="'<i8'", fortran="False", shape="(4,)", data=bytes(32)):
    """Return a .npy file with any header."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        with_header(descr="'<i8', "),
        with_header(descr="'|O'"),
        with_header(shape="(4"),
        with_header(shape="(99999999999999999999,)"),
        with_header(shape="(" * 3000),
        with_header(data=bytes(31)),
        b"",
        b"\x93NUMPY",
    ],
)
def test_arrays_that_cannot_be_read(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(GraphError, match=r"x.npy: not a readable .npy file"):
        map_npy(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with NpzReader(tmp_path / "x.npz") as npz, pytest.raises(GraphError, match=r"x.npz/a.npy: "):
        npz.vector("a")


READS = (lambda npz: npz.vector("a"), lambda npz: list(npz.pairs("b")))


def test_damaged_members_and_checksums(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).integers(9, size=(1000, 10)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with NpzReader(path) as npz, pytest.raises(GraphError, match=r"x.npz/a.npy: cannot be read"):
        list(npz.rows("a"))
    np.savez(path, a=np.arange(5), b=np.arange(6).reshape(2, 3))
    data = path.read_bytes()
    for place in [match.start() for match in re.finditer(b"PK\x01\x02", data)]:
        data = data[: place + 16] + bytes(4) + data[place + 20 :]
    path.write_bytes(data)
    for read in READS:
        with NpzReader(path) as npz, pytest.raises(GraphError, match=r"cannot be read \(Bad CRC"):
            read(npz)


def test_zeros_that_unpack_to_too_much(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(9 << 20, np.int8), b=np.zeros((2, 17 << 20), np.int8))
    for read in READS:
        with NpzReader(path) as npz, pytest.raises(GraphError, match=r"x.npz/..npy: .*np.savez wr"):
            read(npz)


@pytest.mark.long
def test_labels_that_are_nearly_all_unknown(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros((17 << 20, 1), np.float32))
    with NpzReader(path) as npz:
        assert npz.labels("a", 17 << 20).shape == (17 << 20, 1)
        with pytest.raises(GraphError, match=r"x.npz/a.npy: .*np.savez wrote"):
            npz.labels("a", 100)


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
            message = r"ids.npy: expected 2 axes, got int64\[3\] with 1"
            with pytest.raises(GraphError, match=message):
                each.header("ids", axes=2, kinds="iu")


def test_slices_of_a_folder_and_links_that_lead_nowhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("gnnscale.data.formats.npz.SLICE_BYTES", 32)
    np.save(tmp_path / "pairs.npy", PAIRS)
    slices = [np.stack(ends).tolist() for ends in ArrayFolder(tmp_path).pairs("pairs")]
    assert slices == [[[0, 1], [3, 4]], [[2], [5]]]
    with pytest.raises(GraphError, match=r"x.npy: allowed are a folder of .npy files and a .npz"):
        open_arrays(tmp_path / "x.npy")
    # No array that is left out.
    (tmp_path / "x.npy").symlink_to("x.npy")
    (tmp_path / "y.npy").symlink_to("elsewhere")
    with open_arrays(tmp_path) as folder:
        for name in "xy":
            assert name in folder
            with pytest.raises(GraphError, match=rf"/{name}\.npy: "):
                next(iter(folder.rows(name)))
