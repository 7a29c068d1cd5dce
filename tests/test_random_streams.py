"""Every random stream gives the values that it gave when it was released.

A sample, a mask, a graph or an order that changes makes a run something else than what its seed
meant: a checkpoint goes on differently, a store drawn again is another graph, and a GPU or FPGA
kernel that repeats a stream no longer agrees. So changing a value here is a change of format, which
the change log has to name. Initial weights are torch's own and not pinned.
"""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import ops
from gnnscale.data import from_arrays, random_split
from gnnscale.data.structure_only import class_centroids, class_features
from gnnscale.features import LearnedFeaturesConfig
from gnnscale.features.structural import projected_rows
from gnnscale.graph import EdgeData, Graph, GraphTimes
from gnnscale.nn.functional import input_dropout
from gnnscale.partition import Hash, Random
from gnnscale.sampling import (
    Block,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    NeighborSampler,
    ShuffledOrder,
    TimedSampler,
    TimeRule,
    TwoStageOrder,
    WeightedSampler,
)

SIZE = 100


def digest(*arrays: Any) -> str:
    """Return what tells sequences of whole numbers apart, whatever their type."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.asarray(array).astype("<i8").tobytes() + b"|")
    return total.hexdigest()[:16]


def complete_graph(id_type: Any = np.int32) -> Graph:
    """Return a graph in which a neighbour's place in every list is its id."""
    nothing = np.zeros(1, np.int64)
    return Graph(
        name="complete",
        features=nothing[:, None],
        feature_dtype="float32",
        indptr=np.arange(0, SIZE * SIZE + 1, SIZE),
        indices=np.tile(np.arange(SIZE, dtype=id_type), SIZE),
        labels=nothing,
        num_classes=2,
    )


def whole(batch: MiniBatch) -> str:
    parts = (part for block in batch.blocks for part in (block.indptr, block.indices))
    return digest(batch.input_vertices, *parts)


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("fanout", "replace", "expected"),
    [(5, False, [3, 88, 52, 71, 7]), (5, True, [3, 91, 53, 71, 7])],
)
def test_neighbours(id_type: Any, fanout: int, replace: bool, expected: list[int]) -> None:
    graph = complete_graph(id_type)
    sampler = NeighborSampler(graph, fanouts=[fanout], replace=replace, seed=42)
    batch = sampler.sample(np.array([7]), 3)
    assert batch.input_vertices[batch.blocks[0].indices].tolist() == expected


@pytest.mark.parametrize(
    ("fanouts", "replace", "seed", "step", "expected"),
    [
        ([10, 5], False, 0, 0, "5636200db6c41095"),
        ([10, 5], True, 0, 0, "17c35c0410d88b4d"),
        # More picks than are compared side by side: 16, and 32.
        ([25], False, 1, 2, "124b12cad81f01e3"),
        ([40], False, 1, 2, "e3affd5bbdc1743d"),
        ([3, 3, 3], False, 2**63 - 1, 2**40, "ea0675294e9ca3da"),
    ],
)
def test_samples_of_neighbours(fanouts, replace, seed, step, expected) -> None:
    given = {"fanouts": fanouts, "replace": replace, "seed": seed}
    sampler = NeighborSampler(complete_graph(), **given, num_threads=2)
    assert whole(sampler.sample(np.array([7, 0, 99, 50]), step)) == expected


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("fanouts", "replace", "first", "expected"),
    [
        ([5], False, [69, 76, 4, 79, 80], "d6a3e56e8c617356"),
        ([5], True, [69, 76, 4, 79, 80], "d6a3e56e8c617356"),
        ([40, 3], False, [2, 4, 5, 6, 10], "96057f507fd08427"),
    ],
)
def test_neighbours_by_weight(id_type, fanouts, replace, first, expected) -> None:
    weights = np.tile(np.arange(SIZE, dtype=np.float32) % 7, SIZE)
    graph = dataclasses.replace(complete_graph(id_type), edges=EdgeData(weights=weights))
    sampler = WeightedSampler(graph, fanouts=fanouts, replace=replace, seed=42)
    batch = sampler.sample(np.array([7, 0, 99]), 3)
    block = batch.blocks[-1]
    assert batch.input_vertices[block.indices[:5]].tolist() == first
    assert whole(batch) == expected


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("fanouts", "layer_dependency", "first", "expected"),
    [
        ([5], False, [14, 36, 45, 73, 97], "eb3c5dde34068516"),
        ([40, 3], False, [2, 4, 5, 8, 12], "4064e1da60c0e42c"),
        ([40, 3], True, [2, 4, 5, 8, 12], "46415745c5938b56"),
    ],
)
def test_samples_by_labor(id_type, fanouts, layer_dependency, first, expected) -> None:
    graph = complete_graph(id_type)
    given = {"fanouts": fanouts, "layer_dependency": layer_dependency, "seed": 42}
    batch = LaborSampler(graph, **given, num_threads=2).sample(np.array([7, 0, 99]), 3)
    assert batch.input_vertices[batch.blocks[-1].indices[:5]].tolist() == first
    assert whole(batch) == expected


@pytest.mark.parametrize(
    ("rule", "second_hop"),
    [
        (TimeRule(), [28, 17, 43, 4, 32, 30, 6, 24]),
        (TimeRule(rule="walk", direction="forward"), [28, 17, 43, 60, 38, 40, 57, 60]),
    ],
)
def test_samples_as_of_a_cutoff(rule: TimeRule, second_hop: list[int]) -> None:
    """The second rule also draws by the time of the edge that reached a vertex."""
    times = GraphTimes(unit="s", edges=np.tile(np.arange(SIZE), SIZE))
    graph = dataclasses.replace(complete_graph(), times=times)
    sampler = TimedSampler(graph, fanouts=[3, 2], rule=rule, seed=42)
    batch = sampler.sample_units(np.array([7]), np.array([60]), 3)
    drawn = [batch.input_vertices[block.indices].tolist() for block in batch.blocks]
    assert drawn == [second_hop, [43, 22, 57]]


def test_samples_of_layers() -> None:
    sampler = LayerSampler(complete_graph(), layer_sizes=[6, 20], seed=42)
    batch = sampler.sample(np.array([7, 0]), 3)
    first = batch.input_vertices[: batch.blocks[-1].num_src]
    assert first.tolist() == [7, 0, 8, 29, 50, 69, 85, 89]
    assert whole(batch) == "e6653750d9a6982d"


KEPT = """
#...#.#..##.#.####..
..#.#..#.#.....#....
#...#..#.....##..##.
#####.##..#.#.##.#..
"""


def test_dropout() -> None:
    x = torch.ones(4, 20)
    vertices = np.array([7, 0, 99, 2**31 - 1])
    ops.relu_dropout(x, vertices, p=0.5, seed=42, step=3, layer=1, num_threads=1)
    rows = ["".join("#" if value > 0 else "." for value in row) for row in x]
    assert rows == KEPT.split()


@pytest.mark.parametrize(
    ("p", "seed", "step", "layer", "expected"),
    [
        (0.1, 0, 0, 0, "405416dbac467b08"),
        (0.5, 1, 2, 3, "1ce5e8c8dd16b35a"),
        (0.9, 2**63 - 1, 2**40, 1, "dc33f53952599451"),
    ],
)
def test_masks_of_dropout(p: float, seed: int, step: int, layer: int, expected: str) -> None:
    masks = []
    for width in (1, 7, 16, 256, 2100):
        x = torch.ones(SIZE, width)
        ids = np.arange(SIZE) * 7919
        ops.relu_dropout(x, ids, p=p, seed=seed, step=step, layer=layer, num_threads=2)
        masks.append((x > 0).numpy())
    assert digest(*masks) == expected


def test_masks_of_input_dropout() -> None:
    block = Block(indptr=np.array([0, 1]), indices=np.zeros(1, np.int32), num_src=SIZE)
    batch = MiniBatch(
        seed=7, step=3, num_seeds=1, input_vertices=np.arange(SIZE) * 7919, blocks=(block,)
    )
    mask = input_dropout(torch.ones(SIZE, 20), 0.3, batch) > 0
    assert digest(mask.numpy()) == "e368c70ad8f8da4d"


def test_rmat() -> None:
    src, dst = ops.rmat_edges(SIZE, 200, 0.57, 0.19, 0.19, 42, 2)
    assert np.stack([src, dst], 1)[:4].tolist() == [[1, 49], [18, 49], [49, 52], [20, 49]]
    assert digest(src, dst) == "1970427281f04069"


def test_planted_partition() -> None:
    community = (np.arange(SIZE) % 4).astype(np.int32)
    weight = np.arange(1, SIZE + 1, dtype=np.float32)
    src, dst = ops.planted_partition_edges(community, weight, 200, 0.6, 42)
    assert np.stack([src, dst], 1)[:4].tolist() == [[47, 57], [77, 65], [85, 53], [96, 64]]
    assert digest(src, dst) == "9a4c14929aa736fa"


@pytest.mark.parametrize(
    ("seed", "epoch", "expected"),
    [
        (0, 0, [5, 0, 6, 1, 7, 2, 4, 3]),
        (0, 1, [2, 0, 4, 1, 7, 5, 3, 6]),
        (42, 0, [7, 0, 4, 2, 1, 3, 5, 6]),
        (2**63 - 1, 7, [7, 3, 1, 6, 4, 0, 5, 2]),
    ],
)
def test_order_of_seeds(seed: int, epoch: int, expected: list[int]) -> None:
    order = ShuffledOrder(np.arange(8), batch_size=3, seed=seed)
    batches = [step.seeds for step in order.epoch(epoch)]
    assert np.concatenate(batches).tolist() == expected


def test_order_of_seeds_over_parts() -> None:
    order = TwoStageOrder([np.arange(5), np.arange(5, 8)], batch_sizes=[2, 2], seed=42)
    batches = [step.seeds.tolist() for step in order.epoch(1)]
    assert batches == [[3, 0, 6, 7], [4, 1, 5, 2]]


def test_split() -> None:
    parts = random_split(np.zeros(10, np.int64), (0.5, 0.2), seed=42)
    assert [part.tolist() for part in parts] == [[3, 7, 1, 5, 6], [8, 2], [4, 9, 0]]


def test_training_vertices_among_which_overlaps_are_counted() -> None:
    graph = complete_graph()
    # Vertex v has the neighbours v - 1 and v - 2, so that what is sampled shows.
    indices = ((np.repeat(np.arange(SIZE), 2) + np.tile([-2, -1], SIZE)) % SIZE).astype(np.int32)
    parts, _, num_estimated = ops.pagraph_stream(
        np.arange(0, 2 * SIZE + 1, 2), indices, graph.indices[:SIZE],
        num_parts=4, num_hops=2, max_walked=0, max_sampled=16, seed=42, num_threads=2,
    )  # fmt: skip
    assert num_estimated == SIZE
    assert digest(parts) == "79eb9d3a1543fda6"


def test_parts_by_id() -> None:
    graph = complete_graph()
    options = {"num_parts": 5, "num_hops": 1, "num_threads": 1}
    graph = dataclasses.replace(
        graph.with_split(train_idx=np.arange(0, SIZE, 3, dtype=np.int32)),
        labels=np.zeros(SIZE, np.int64),
    )
    hashed = Hash().assign(graph, **options).owner
    assert hashed[:10].tolist() == [0, 0, 0, 3, 3, 3, 2, 2, 2, 3]
    assert digest(hashed) == "77da971c00266010"
    drawn = Random(seed=42).assign(graph, **options).owner
    assert drawn[:10].tolist() == [2, 4, 3, 4, 1, 0, 3, 1, 3, 1]
    assert digest(drawn) == "8fbfb7c30ee9ca97"


def test_features_of_synthetic_graphs() -> None:
    centroids = class_centroids(2, 3, signal=1.0, seed=42)
    (rows,) = class_features(np.array([0, 1, 0]), centroids, seed=42)
    assert np.rint(centroids * 1e4).tolist() == [[6054, 9059, -7750], [5042, -2417, 8104]]
    expected = [[-4893, 19982, -10272], [15016, -22662, -4788], [30389, 14183, 6495]]
    assert np.rint(rows * 1e4).tolist() == expected


def test_learned_rows_begin_and_projections_are_drawn() -> None:
    rows = LearnedFeaturesConfig(dim=3).draw(4, seed=7)
    assert digest((rows * 2**24).astype(np.int64)) == "24adb1f1549689cb"
    loops = np.arange(4)
    graph = from_arrays((loops, loops), np.zeros((4, 0), np.float32))
    signs = np.sign(projected_rows(graph, dim=8, hops=1, seed=7, num_threads=1))
    assert digest(signs) == "58a2b2b38549365b"
