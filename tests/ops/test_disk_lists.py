import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.core import GraphError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.graph import Graph

ENGINES = ("io_uring", "threads")
CHOICES: dict[str, Any] = {"replace": False, "seed": 3, "num_threads": 1}


def on_disk(graph: Graph, folder: Path, dtype: Any = np.int32) -> Graph:
    path = folder / "indices.npy"
    np.save(path, graph.indices.astype(dtype))
    return replace(graph, indices=map_npy(path))


def opened(graph: Graph, held: Any = (), **options: Any) -> Graph:
    indices: Any = graph.indices
    options = {"max_gap_bytes": 0, "offset": indices.offset} | options
    held = np.array(held, graph.indices.dtype)
    try:
        lists = ops.DiskLists(str(indices.filename), graph.indptr, indices, held, **options)
    except PermissionError as error:  # of containers
        pytest.skip(str(error))
    return replace(graph, lists=lists)


def sampled(graph: Graph, seeds: Any, fanouts: list[int], **choices: Any) -> list[Any]:
    given = CHOICES | {"step": 5} | choices
    sampler = ops.NativeSampler(graph)
    vertices, hops, sources = sampler.sample_neighbors(seeds, fanouts, edge_positions=True, **given)
    reached, indptrs = sampler.reach_neighbors(seeds, fanouts, **given)
    blocks = [each for hop in hops for each in (hop.indptr, hop.indices, hop.positions)]
    return [vertices, *blocks, sources, reached, *indptrs]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists")


def test_a_sample_by_hand(tiny_graph: Graph, tmp_path: Path) -> None:
    disk = on_disk(tiny_graph, tmp_path)
    graph = opened(disk, held=[2])
    vertices, hops, sources = ops.NativeSampler(graph).sample_neighbors(
        np.array([0, 2]), [-1], step=0, **CHOICES
    )
    assert vertices.tolist() == [0, 2, 1, 3]
    assert sources is not None
    assert sources.tolist() == [1, 2, 0, 3]  # of 0: 1 and 2; of 2: 0 and 3
    assert hops[0].indices.tolist() == [2, 1, 0, 3]
    counters = graph.lists.take_counters()
    assert (counters["hits"], counters["misses"], counters["requests"]) == (2, 2, 1)
    assert counters["waited_s"] > 0 < counters["bytes_read"]
    assert not any(graph.lists.take_counters().values())
    # Memory is that of the lists that are held.
    none, two = (opened(disk, held).lists.num_bytes for held in ([], [0, 4]))
    assert two - none == 3 * 4 + 2 * 8


@pytest.mark.long
@settings(max_examples=30)
@given(st.data())
def test_samples_are_those_of_memory(folder: Path, random_graph: Any, data: st.DataObject) -> None:
    draw = data.draw
    # Some lists are empty; a hub's is longer than a block.
    num_edges = draw(st.sampled_from([1, 3000, 40_000]))
    graph = random_graph(300, num_edges, num_features=1, seed=draw(st.integers(0, 9)))
    graph = replace(graph, indices=graph.indices.astype(draw(st.sampled_from(["i4", "i8"]))))
    held = sorted(draw(st.sets(st.integers(0, 299), max_size=300)))
    disk = opened(
        on_disk(graph, folder, graph.indices.dtype),
        held,
        depth=draw(st.integers(1, 70)),
        max_gap_bytes=draw(st.integers(0, 20_000)),
        engine=draw(st.sampled_from(ENGINES)),
        direct=draw(st.booleans()),
    )
    seeds = np.array(draw(st.lists(st.integers(0, 299), unique=True, max_size=80)), np.int64)
    fanouts = draw(st.lists(st.sampled_from([1, 5, 20, 40, 700, -1]), max_size=3))
    choices = {"replace": draw(st.booleans()), "step": draw(st.integers(0, 9))}
    memory = sampled(graph, seeds, fanouts, **choices)
    threads = draw(st.sampled_from([1, 2, 8]))
    assert same(sampled(disk, seeds, fanouts, **choices, num_threads=threads), memory)


@pytest.mark.parametrize("held", [[], [0]])
def test_what_the_file_holds_is_checked(tiny_graph: Graph, tmp_path: Path, held: list[int]) -> None:
    disk = on_disk(tiny_graph, tmp_path)
    with (tmp_path / "indices.npy").open("r+b") as file:
        file.seek(-disk.indices.nbytes, 2)
        file.write(np.int32(5).tobytes())
    sampler = ops.NativeSampler(opened(disk, held))
    with pytest.raises(GraphError, match=r"tiny: damaged, indices: 5 is no vertex"):
        sampler.sample_neighbors(np.array([0]), [-1], step=0, **CHOICES)


def test_files_and_lists_that_do_not_fit(tiny_graph, tmp_path, random_graph) -> None:
    graph = opened(on_disk(tiny_graph, tmp_path))
    sampler = ops.NativeSampler(graph)
    os.truncate(tmp_path / "indices.npy", 130)
    with pytest.raises(OSError, match=r"the file ends within .*indices\.npy"):
        sampler.sample_neighbors(np.array([0]), [-1], step=0, **CHOICES)
    with pytest.raises(FileNotFoundError):
        ops.DiskLists("/none", graph.indptr, graph.indices, np.int32([]), offset=0, max_gap_bytes=0)
    sampler = ops.NativeSampler(opened(on_disk(tiny_graph, tmp_path)))
    seeds = np.array([0])
    draw: dict[str, Any] = {"seed": 0, "step": 0}
    labor = draw | {"layer_dependency": False, "num_threads": 1}
    with pytest.raises(ValueError, match=r"^by_weight: a graph whose lists are read from the disk"):
        sampler.sample_neighbors(seeds, [1], step=0, by_weight=True, **CHOICES)
    for sample, options in (
        *((sampler.sample_labor, labor), (sampler.reach_labor, labor)),
        *((sampler.sample_layers, draw), (sampler.time_relabelling, draw | {"num_threads": 1})),
    ):
        with pytest.raises(ValueError, match="disk"):
            sample(seeds, [1], **options)
    lists = opened(on_disk(tiny_graph, tmp_path)).lists
    wide = replace(tiny_graph, indices=tiny_graph.indices.astype(np.int64))
    for other in (random_graph(), wide):
        with pytest.raises(ValueError, match=r"^lists: "):
            ops.NativeSampler(replace(other, lists=lists))
    with pytest.raises(TypeError, match=r"^lists: str, allowed"):
        ops.NativeSampler(replace(tiny_graph, lists="lists"))
