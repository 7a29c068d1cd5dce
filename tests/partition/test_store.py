import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fixture_types import Make

from gnnscale.core.artifact.npy import write_array
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph, Origin
from gnnscale.partition import P3, UNREACHED, Hash, Partition, PartitionerConfig, Parts, Random
from gnnscale.partition.metrics import MeasuredCost, PartitionStats, PredictedCost, examine
from gnnscale.partition.store import (
    PARTITION,
    PartitionIdentity,
    check_figures,
    describe,
    identify,
    partition_place,
    read_meta,
    read_partition,
    write_partition,
)

JSON_FILE = PARTITION.header
ENTRY = {"shape": [5], "dtype": "int16", "bytes": 138, "crc32": 0}
HOPS = np.array([[0, 0, 0, 1, 255], [1, 255, 1, 0, 0]], np.uint8)
OWNER = np.array([0, 0, 0, 1, 1], np.int16)


def figures_of(graph: Graph, parts: Parts) -> PartitionStats:
    measured = MeasuredCost(seconds=1.5, peak_rss_bytes=1 << 20)
    predicted = PredictedCost(seconds=1.0, peak_rss_bytes=None)
    return examine(graph, parts, algorithm="any", measured=measured, predicted=predicted)


def identity_of(graph: Graph, num_parts: int = 2, num_hops: int | None = None) -> PartitionIdentity:
    made: dict[str, Any] = {"algorithm": "any", "options": {"seed": 3}}
    return PartitionIdentity(graph=describe(graph), num_parts=num_parts, num_hops=num_hops, **made)


def write(folder: Path, graph: Graph, parts: Parts, num_hops: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_partition(
        folder, identity_of(graph, parts.num_parts, num_hops), parts, figures_of(graph, parts)
    )
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
    assert (found.parts.notes, found.path) == (("a note",), stored)
    assert found.content == read_meta(stored).content
    said = json.loads((stored / JSON_FILE).read_text())
    assert said["parts"][0] == {"num_vertices": 4, "num_inner": 3, "num_train": 3, "num_edges": 5}
    assert (said["seconds"], said["peak_rss_bytes"]) == (1.5, 1 << 20)
    assert said["options"] == {"seed": 3}
    assert said["predicted"]["peak_rss_bytes"] is None


@pytest.mark.parametrize("config", [Hash(), P3()])
def test_parts_of_partitioners_are_read_back(config, tmp_path, random_graph) -> None:
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
        ({"num_parts": 10**9}, "entry.num_parts: Expected `int` <= 1024"),
        ({"parts": []}, "parts and cut: expected an entry for each of 2"),
        ({"columns": [[0, 1], [1, 2]]}, "both owners and feature columns"),
        ({"num_hops": None}, "num_hops: expected 1 to 254, got 0"),
        ({"arrays": {"labels": ENTRY}}, "arrays: expected ['hops', 'owner'], got ['labels']"),
        ({"arrays": {}}, "owners without the cut between them, or a cut without owners"),
    ],
)
def test_damaged_figures(stored: Path, tiny_graph: Graph, changes: Any, said: str) -> None:
    file = stored / JSON_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert said in refused(stored, tiny_graph)


def test_files_that_do_not_fit_are_named(stored, tmp_path, tiny_graph, random_graph) -> None:
    assert "not a partition, it has no partition.json" in refused(tmp_path, tiny_graph)
    assert "is a partition of tiny (5 vertices, content " in refused(stored, random_graph())
    other = random_graph(7, 20, name="tiny")
    assert "not of tiny (7 vertices, content " in refused(stored, other)
    owner = (stored / "owner.npy").rename(tmp_path / "owner.npy")
    assert "owner.npy: missing; run gnnscale partition again" in refused(stored, tiny_graph)
    owner.rename(stored / "owner.npy")
    hops = HOPS.copy()
    hops[0, 3] = UNREACHED
    write_array(stored / "hops.npy", hops)
    assert "hops.npy: checksum " in refused(stored, tiny_graph)


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("owner", OWNER.astype(np.int32), "owner.npy: expected int16[5], got int32[5]"),
        ("hops", HOPS[:1], "hops.npy: expected uint8[2, 5], got uint8[1, 5]"),
        ("owner", OWNER + np.int16(1), "owner: expected -1 to 1, got 2"),
        ("hops", HOPS ^ 3, "hops: expected 0 to 1 or 255, got 3"),
    ],
)
def test_crafted_arrays(stored: Path, tiny_graph: Graph, name: str, array: Any, said: str) -> None:
    entry = dataclasses.asdict(write_array(stored / f"{name}.npy", array))
    header = json.loads((stored / JSON_FILE).read_text())
    header["arrays"][name] = entry
    (stored / JSON_FILE).write_text(json.dumps(header))
    assert said in refused(stored, tiny_graph)


@pytest.fixture
def graph(tiny_graph: Graph) -> Graph:
    return tiny_graph.with_split(train_idx=np.array([0, 1, 3]))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"parts": ()}, "parts and cut: expected an entry for each of 2"),
        ({"cut": ((1, 1), (2,))}, "parts and cut: expected"),
        ({"cut": ((1, 1), (2, 7))}, "cut: expected 0 to 6, got 7"),
        ({"edge_cut_fraction": 1.5}, "edge_cut_fraction: expected 0 to 1, got 1.5"),
        ({"vertex_balance": 3.0}, "vertex_balance: expected 0 to 2, got 3.0"),
        ({"seconds": -1.0}, "seconds: expected 0 to 1000000000000.0, got -1.0"),
        ({"algorithm": "a\x1b[31m"}, "expected a line of up to"),
        ({"sizes": {"num_inner": 7}}, "num_inner: expected 0 to 5, got 7"),
        ({"sizes": {"num_edges": 7}}, "num_edges: expected 0 to 6, got 7"),
    ],
)
def test_bad_figures_are_refused(graph: Graph, fields: Any, what: str) -> None:
    figures = figures_of(graph, Parts(num_parts=2, owner=np.array([0, 0, 1, 1, -1], np.int16)))
    if sizes := fields.pop("sizes", None):
        fields = {"parts": (figures.parts[0], dataclasses.replace(figures.parts[1], **sizes))}
    check_figures(Path("x.json"), figures, identity_of(graph))
    with pytest.raises(GraphError) as refused:
        check_figures(Path("x.json"), dataclasses.replace(figures, **fields), identity_of(graph))
    assert str(refused.value).startswith("x.json: ")
    assert what in str(refused.value)


@dataclass(frozen=True, kw_only=True)
class Deep(Hash):
    """Looks at hops, and holds another partitioner."""

    inner: PartitionerConfig = field(default_factory=Hash)
    sizes: tuple[int, ...] = (1, 2)
    depends_on_hops: ClassVar[bool] = True
    algorithm: ClassVar[str] = "deep"


def identity(config: PartitionerConfig, graph: Graph, num_hops: int = 2) -> PartitionIdentity:
    return identify(config, graph, num_parts=2, num_hops=num_hops)


def test_identity_has_only_deciding_options(tiny_graph: Graph) -> None:
    found = identity(Random(seed=3, num_parts=7, store="somewhere"), tiny_graph)
    assert found.options == {"seed": 3}
    assert (found.algorithm, found.num_parts, found.num_hops) == ("random", 2, None)
    assert identity(Random(), tiny_graph, 2) == identity(Random(), tiny_graph, 3)
    assert identity(Deep(), tiny_graph, 2) != identity(Deep(), tiny_graph, 3)
    options = identity(Deep(inner=Random(seed=1)), tiny_graph).options
    assert options["sizes"] == [1, 2]
    assert options["inner"]["_target_"] == "gnnscale.partition.by_id.Random"
    assert options["inner"]["seed"] == 1


def test_graphs_in_memory_are_told_apart(random_graph: Make) -> None:
    graph = random_graph()
    wide = dataclasses.replace(graph, indices=graph.indices.astype(np.int64))
    assert describe(graph) == describe(random_graph()) == describe(wide)
    assert describe(graph).num_train == 300
    indices = graph.indices.copy()
    indices[-1] ^= 1
    changed = [
        dataclasses.replace(graph, indices=indices),
        graph.with_split(train_idx=graph.train_idx[1:]),
        random_graph(num_features=21),
    ]
    assert len({describe(each).content for each in (graph, *changed)}) == 4
    assert describe(dataclasses.replace(graph, origin=Origin(content="abc"))).content == "abc"


def test_each_partition_has_a_place(tiny_graph: Graph, home: Path, tmp_path: Path) -> None:
    def place(config: PartitionerConfig, graph: Graph = tiny_graph, num_parts: int = 2) -> Path:
        return partition_place(config, identify(config, graph, num_parts=num_parts, num_hops=2))

    places = {place(each) for each in (Hash(), Random(), Random(seed=1), Deep())}
    places.add(place(Hash(), num_parts=3))
    places.add(place(Hash(), dataclasses.replace(tiny_graph, origin=Origin(content="other"))))
    assert len(places) == 6
    assert {each.parent for each in places} == {home / "partitions"}
    assert place(Hash()).name.startswith("tiny-hash-")
    assert place(Hash(store=f"{tmp_path}/x")) == tmp_path / "x"
