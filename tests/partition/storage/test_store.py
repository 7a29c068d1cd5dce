from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.partition import P3, UNREACHED, Hash, Partition, PartitionerConfig, Parts
from gnnscale.partition.figures import Measured, Predicted, examine
from gnnscale.partition.storage.identity import Identity, describe
from gnnscale.partition.storage.store import (
    JSON_FILE,
    NPZ_FILE,
    read_meta,
    read_partition,
    write_partition,
)

HOPS = np.array([[0, 0, 0, 1, 255], [1, 255, 1, 0, 0]], np.uint8)
OWNER = np.array([0, 0, 0, 1, 1], np.int16)


def write(folder: Path, graph: Graph, parts: Parts, num_hops: int | None = None) -> Path:
    identity = Identity(
        graph=describe(graph),
        algorithm="any",
        options={"seed": 3},
        num_parts=parts.num_parts,
        num_hops=num_hops,
    )
    figures = examine(
        graph,
        parts,
        algorithm="any",
        measured=Measured(seconds=1.5, peak_rss_bytes=1 << 20),
        predicted=Predicted(seconds=1.0, peak_rss_bytes=None),
    )
    folder.mkdir(exist_ok=True)
    write_partition(folder, identity, parts, figures)
    return folder


@pytest.fixture
def stored(tmp_path: Path, tiny_graph: Graph) -> Path:
    """A partition with owners and hops."""
    parts = Parts(num_parts=2, owner=OWNER, hops=HOPS, num_hops=1, notes=("a note",))
    return write(tmp_path / "p", tiny_graph, parts, 1)


def test_what_is_written_is_read(stored: Path, tiny_graph: Graph) -> None:
    found = read_partition(stored, tiny_graph)
    assert isinstance(found, Partition)
    assert (found.parts.owner == OWNER).all()
    assert (found.parts.hops == HOPS).all()
    assert (found.parts.num_parts, found.parts.num_hops) == (2, 1)
    assert found.parts.notes == ("a note",)
    assert found.path == stored
    assert found.content == read_meta(stored).content
    said = json.loads((stored / JSON_FILE).read_text())
    assert said["parts"][0] == {
        "num_vertices": 4,
        "num_inner": 3,
        "num_train": 3,
        "num_edges": 5,
    }
    assert (said["seconds"], said["peak_rss_bytes"]) == (1.5, 1 << 20)
    assert said["options"] == {"seed": 3}
    assert said["predicted"]["peak_rss_bytes"] is None


@pytest.mark.parametrize("config", [Hash(), P3()])
def test_what_partitioners_return_is_read(
    config: PartitionerConfig, tmp_path: Path, random_graph: Callable[..., Graph]
) -> None:
    graph = random_graph()
    parts = config.assign(graph, num_parts=3, num_hops=2, num_threads=1)
    found = read_partition(write(tmp_path / "p", graph, parts), graph).parts
    assert found.columns == parts.columns
    assert (found.owner is None) == (parts.owner is None)
    assert found.owner is None or (found.owner == parts.owner).all()
    assert found.num_hops == 0


def test_content_tells_partitions_apart(tmp_path: Path, tiny_graph: Graph) -> None:
    def content(name: str, **fields: Any) -> str:
        parts = Parts(**{"num_parts": 2, "owner": OWNER, **fields})
        return read_meta(write(tmp_path / name, tiny_graph, parts, 1)).content

    assert content("a") == content("b", notes=("other",))
    assert content("c", owner=OWNER[::-1].copy()) != content("a")
    assert content("d", hops=HOPS, num_hops=1) != content("a")
    whole, columns = (content(name, owner=None) for name in "ef")
    assert whole == columns
    assert content("g", owner=None, columns=((0, 1), (1, 2))) != whole


def refused(stored: Path, graph: Graph) -> str:
    """The one line that is said of a damaged partition."""
    with pytest.raises(GraphError) as error:
        read_partition(stored, graph)
    line = str(error.value)
    assert line.startswith(str(stored))
    assert line.isprintable()
    return line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 2}, "format version 2, this release reads 1"),
        ({"num_parts": 0}, "num_parts is 0, allowed are 1 to 1024"),
        ({"num_parts": 10**9}, "num_parts is 1000000000"),
        ({"num_parts": "2"}, "entry.num_parts: 2 is no int"),
        ({"seconds": None}, "entry.seconds: None is no float"),
        ({"parts": []}, "parts and cut need an entry for each of 2"),
        ({"parts": [{}]}, "entry.parts.0: num_vertices is missing"),
        ({"options": []}, "options is [], allowed is an object"),
        ({"columns": [[0, 1, 2]]}, "columns is no list of pairs"),
        ({"columns": [[0, 1], [1, 2]]}, "both owners and feature columns"),
        ({"num_hops": None}, "num_hops is 0, allowed are 1 to 254"),
        ({"arrays": {}}, "members are ['hops.npy', 'owner.npy']"),
        ({"arrays": {"owner": {}}}, "entry.arrays.owner: shape is missing"),
        ({"graph": {"name": "x"}}, "entry.graph: num_vertices is missing"),
    ],
)
def test_damaged_figures(stored: Path, tiny_graph: Graph, changes: Any, said: str) -> None:
    file = stored / JSON_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert said in refused(stored, tiny_graph)


def test_names_of_arrays_that_no_partition_has(stored: Path, tiny_graph: Graph) -> None:
    file = stored / JSON_FILE
    content = json.loads(file.read_text())
    content["arrays"]["labels"] = content["arrays"].pop("hops")
    file.write_text(json.dumps(content))
    assert "arrays are ['labels', 'owner'], allowed are owner and hops" in refused(
        stored, tiny_graph
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"[1]", "holds a list, not an object"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"seconds": NaN}', "NaN is not a number"),
        (b"\xff", "cannot be read as JSON"),
    ],
)
def test_no_figures(stored: Path, tiny_graph: Graph, text: bytes, said: str) -> None:
    (stored / JSON_FILE).write_bytes(text)
    assert said in refused(stored, tiny_graph)


def test_what_is_no_partition(tmp_path: Path, stored: Path, tiny_graph: Graph) -> None:
    assert "not a partition, it has no partition.json" in refused(tmp_path, tiny_graph)
    (stored / NPZ_FILE).unlink()
    assert "partition.npz: missing" in refused(stored, tiny_graph)
    (stored / JSON_FILE).unlink()
    (stored / JSON_FILE).mkdir()
    assert "not a regular file" in refused(stored, tiny_graph)


def test_a_partition_of_another_graph(
    stored: Path, tiny_graph: Graph, random_graph: Callable[..., Graph]
) -> None:
    assert "is a partition of tiny, not of graph (300 vertices)" in refused(stored, random_graph())
    other = random_graph(7, 20, name="tiny")
    assert "is a partition of another tiny (5 vertices, other content)" in refused(stored, other)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def rewrite(stored: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    """Write another archive, and make ``partition.json`` agree with it as far as it can."""
    with zipfile.ZipFile(stored / NPZ_FILE, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    said = json.loads((stored / JSON_FILE).read_text())
    with zipfile.ZipFile(stored / NPZ_FILE) as archive:
        for info in archive.infolist():
            entry = said["arrays"].get(info.filename.removesuffix(".npy"))
            if entry is not None:
                entry.update(bytes=info.file_size, crc32=info.CRC)
    (stored / JSON_FILE).write_text(json.dumps(said))


GOOD = {"owner.npy": npy(OWNER), "hops.npy": npy(HOPS)}
#: A .npy file whose pickled objects would say so if they were read.
PICKLED = npy(np.array([print, 1], object))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"owner.npy": npy(OWNER)}, "members are ['owner.npy']"),
        ({**GOOD, "more.npy": b""}, "members are"),
        ({**GOOD, "hops.npy": npy(HOPS)[:-1]}, "9 bytes of data, needed are 10"),
        ({**GOOD, "hops.npy": npy(HOPS) + b"x"}, "11 bytes of data, needed are 10"),
        ({**GOOD, "owner.npy": npy(OWNER.astype(np.int32))}, "int32[5], needed is int16[5]"),
        ({**GOOD, "owner.npy": npy(OWNER[:, None])}, "int16[5, 1], needed is int16[5]"),
        ({**GOOD, "owner.npy": b"x" * 200}, "not a readable .npy array"),
        ({**GOOD, "owner.npy": PICKLED}, "not a readable .npy array (elements are"),
        ({**GOOD, "owner.npy": npy(OWNER + np.int16(1))}, "owner 2 is out of range"),
        ({**GOOD, "hops.npy": npy(HOPS ^ 3)}, "at 3 hops, allowed are 0 to 1 and 255"),
    ],
)
def test_crafted_arrays(
    stored: Path, tiny_graph: Graph, members: dict[str, bytes], said: str
) -> None:
    rewrite(stored, members)
    assert said in refused(stored, tiny_graph)


def test_compressed_arrays_are_no_bombs(stored: Path, tiny_graph: Graph) -> None:
    zeros = np.zeros((2, 5), np.uint8)
    rewrite(stored, {**GOOD, "hops.npy": npy(zeros) + bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    assert "bytes, uint8[2, 5] has 10" in refused(stored, tiny_graph)


def test_archives_that_were_exchanged(tmp_path: Path, stored: Path, tiny_graph: Graph) -> None:
    hops = HOPS.copy()
    hops[0, 3] = UNREACHED
    parts = Parts(num_parts=2, owner=OWNER, hops=hops, num_hops=1)
    other = write(tmp_path / "other", tiny_graph, parts, 1)
    (stored / NPZ_FILE).write_bytes((other / NPZ_FILE).read_bytes())
    assert "not the array that partition.json tells of" in refused(stored, tiny_graph)


def parts_or_line(stored: Path, graph: Graph) -> Parts | str:
    try:
        return read_partition(stored, graph).parts
    except GraphError as error:
        return str(error)


def test_every_damaged_byte_is_noticed_or_means_nothing(stored: Path, tiny_graph: Graph) -> None:
    whole = (stored / NPZ_FILE).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        (stored / NPZ_FILE).write_bytes(damaged)
        found = parts_or_line(stored, tiny_graph)
        if isinstance(found, str):
            assert found.isprintable()
            continue
        assert (found.owner == OWNER).all()
        assert (found.hops == HOPS).all()


def test_truncated_archives(stored: Path, tiny_graph: Graph) -> None:
    whole = (stored / NPZ_FILE).read_bytes()
    for size in range(0, len(whole), 7):
        (stored / NPZ_FILE).write_bytes(whole[:size])
        refused(stored, tiny_graph)
