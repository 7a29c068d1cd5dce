import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from gnnscale.backend import DeviceMemoryError
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.csim.library import Library
from gnnscale.backend.fpga.layout import ChipLimits, pack_batch
from gnnscale.backend.fpga.lowering import WeightLayout, lower
from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.nn import GCN, GIN, GraphSAGE, Inputs
from gnnscale.sampling import Block, MiniBatch

NULL, FIRST = 0x7FFFFFFF, 1 << 31
ACTIVATES, DROPS, CONCATENATES = 1, 2, 4
#: Of ``Stage`` in fpga/include/gnnscale_fpga/batch.hpp.
FIELDS = (
    *("num_sources", "num_rows", "words_in", "words_out", "weights", "flags", "dropout"),
    *("vertices", "hidden", "kept", "kept_parts", "outside"),
    *("forward", "num_forward", "backward", "num_backward"),
)
DEGREES = np.array([3, 1, 8, 2, 5], np.float32)
#: Features: the row, and a hundredth of the column.
X = torch.arange(5)[:, None] + torch.arange(17)[None] / 100
NONE = np.zeros(0, np.int64)
#: Six vertices of three classes, whose edges and features are those of the mini-batch.
OPTIONS = {"train_idx": np.arange(6), "num_classes": 3}
GRAPH = from_arrays((NONE, NONE), np.zeros((6, 17), np.float32), np.arange(6) % 3, **OPTIONS)
#: Seeds 4 and 2: 4 <- 0; 2 <- 0, 4 above; below 4 <- 5; 2 <- nobody; 0 <- 1, 4.
BATCH = MiniBatch(
    seed=1,
    step=2,
    num_seeds=2,
    input_vertices=np.array([4, 2, 0, 5, 1], np.int32),
    blocks=(
        Block(indptr=np.array([0, 1, 1, 3]), indices=np.array([3, 4, 0], np.int32), num_src=5),
        Block(indptr=np.array([0, 1, 3]), indices=np.array([2, 2, 0], np.int32), num_src=3),
    ),
)
INPUTS = Inputs(x=X, aggregated=False, degrees=DEGREES)


def built(config, num_classes=3):
    return config.build(num_features=17, num_classes=num_classes)


def packed(
    config,
    batch=BATCH,
    inputs=INPUTS,
    *,
    graph=GRAPH,
    seeds=None,
    max_row_bytes=sys.maxsize,
    **limits,
):
    """Pack seeds of a mini-batch for kernels of one PE unless ``limits`` say otherwise."""
    chip = ChipLimits(**({"n": 1} | limits))
    model = built(config, graph.num_classes)
    products = lower(model, aggregated=inputs.aggregated)
    chip.check(products)
    part = range(batch.num_seeds) if seeds is None else seeds
    given = (graph, model, products, WeightLayout(products), chip, batch, inputs, part)
    return pack_batch(*given, max_row_bytes=max_row_bytes, num_threads=1)


def words_of(made):
    return made.batch.view(np.int32).reshape(-1, 16)


def stages_of(made):
    words = words_of(made)
    first, count = words[0, :2]
    return [dict(zip(FIELDS, row, strict=True)) for row in words[first : first + count].tolist()]


def sizes_of(stage):
    """Return source rows, output rows, and words of each."""
    return tuple(stage[name] for name in FIELDS[:4])


def memory_of(stage):
    """Return where output rows and aggregated rows are, and where those off the chip."""
    return tuple(stage[name] for name in ("hidden", "kept", "kept_parts", "outside"))


def tiles_of(made, first, count):
    """Return the first row of each tile, its rows, and the first word and words of its edges."""
    words = words_of(made)[first : first + count]
    assert not words[:, 4:].any()
    return words[:, :4].tolist()


Edges = list[tuple[int, bool, float]]


def edges_at(made, first, count):
    """Return destination, whether it is its source's first, and weight; None of what is no edge."""
    raw = made.edges.view(np.uint32)[16 * first : 16 * (first + count)].reshape(-1, 2)
    pairs = zip(raw[:, 0].tolist(), raw[:, 1].view(np.float32).tolist(), strict=True)
    edges = ((end & NULL, bool(end & FIRST), round(weight, 5)) for end, weight in pairs)
    return [edge for edge in edges if edge[0] != NULL]


def edges_of(made, stage, way):
    """Return the edges of a stage's only tile, ``way`` forward or backward."""
    ((_, _, first, count),) = tiles_of(made, stage[way], stage[f"num_{way}"])
    return edges_at(made, first, count)


def test_limits_are_those_of_the_kernels(csim_home):
    assert asdict(ChipLimits(n=2)).items() <= Library(library(SimulatedDesign())).design.items()


def test_two_layers_by_hand():
    made = packed(GCN(hidden=3, dropout=0.5))
    assert (made.num_groups, made.num_seeds, made.num_sources) == (1, 2, 5)
    assert made.scratch_bytes == 0
    words = words_of(made)
    # 1: vertices; 2: tile below; 3 and 4: tiles above and back; 5, 6: stages; 7: labels.
    assert len(words) == 8
    assert words[0].tolist() == [5, 2, 0, 7, 2, 3, 1, *[0] * 9]
    assert words[1].view(np.int64)[:3].tolist() == [4, 2, 0]
    assert words[7].tolist() == [1, 2, *[0] * 14]
    below, above = stages_of(made)
    # Five rows to three, two words to one; no way back. The weights begin; half is dropped, of
    # layer 0. Sixteen rows are eight in each of two banks. Output rows of both stages come first,
    # then both columns of aggregated rows.
    flags = ACTIVATES | DROPS
    assert [*below.values()] == [5, 3, 2, 1, 0, flags, 32768, 1, 0, 16, 2, 0, 2, 1, 0, 0]
    # Behind [32][1] words of weights and a bias.
    assert [*above.values()] == [3, 2, 1, 1, 33, 0, 1 << 16, 0, 8, 32, 1, 0, 3, 1, 4, 1]
    assert tiles_of(made, 2, 3) == [[0, 3, 0, 1], [0, 2, 1, 1], [0, 3, 2, 1]]
    assert made.edges.nbytes == 3 * 64
    # Sixteen columns of all rows, then the last one.
    assert made.features.shape == (10, 16)
    assert np.array_equal(made.features[:5], X[:, :16])
    assert np.array_equal(made.features[5:, 0], X[:, 16])
    assert not made.features[5:, 1:].any()
    # 1 / sqrt(D(v) D(u)), scaled by degree / sampled.
    root = 1 / np.sqrt(DEGREES + 1)
    own = [round(float(value), 5) for value in root**2]

    def edge(u, v, sampled):
        return round(float(root[u] * root[v] * DEGREES[v] / sampled), 5)

    assert edges_of(made, above, "forward") == [
        *((0, True, own[0]), (1, False, edge(0, 1, 2))),
        *((1, True, own[1]), (0, True, edge(2, 0, 1)), (1, False, edge(2, 1, 2))),
    ]
    assert edges_of(made, above, "backward") == [
        *((0, True, own[0]), (2, False, edge(2, 0, 1))),
        *((0, True, edge(0, 1, 2)), (1, False, own[1]), (2, False, edge(2, 1, 2))),
    ]
    assert edges_of(made, below, "forward") == [
        *((0, True, own[0]), (2, False, edge(0, 2, 2)), (1, True, own[1]), (2, True, own[2])),
        *((0, True, edge(3, 0, 1)), (2, True, edge(4, 2, 2))),
    ]


def test_a_perceptron_is_two_stages():
    made = packed(GIN(hidden=3, dropout=0.25))
    stages = stages_of(made)
    sizes = [(5, 3, 2, 1), (3, 3, 1, 1), (3, 2, 1, 1), (2, 2, 1, 1)]
    assert [sizes_of(each) for each in stages] == sizes
    assert [each["flags"] for each in stages] == [ACTIVATES, ACTIVATES | DROPS, ACTIVATES, 0]
    assert [each["dropout"] for each in stages] == [0, 16384, 1 << 16, 1 << 16]
    # From each row to itself, and back.
    for way in ("forward", "backward"):
        assert edges_of(made, stages[3], way) == [(0, True, 1.0), (1, True, 1.0)]


def test_rows_that_the_host_aggregated():
    config, inputs = GraphSAGE(hidden=3, dropout=0), Inputs(x=torch.ones(3, 34), aggregated=True)
    made = packed(config, BATCH, inputs)
    below, above = stages_of(made)
    assert sizes_of(below) == (3, 3, 3, 1)
    assert (below["num_backward"], below["weights"], below["flags"]) == (0, 0, ACTIVATES)
    assert above["flags"] == CONCATENATES
    assert made.features.shape == (9, 16)
    # What leads to the second seed alone: its own row, and those of its neighbours.
    one = packed(config, BATCH, inputs, seeds=range(1, 2))
    assert (one.num_seeds, one.num_sources) == (1, 3)


def test_what_leads_to_some_seeds():
    made = packed(GCN(hidden=3, dropout=0.5), seeds=range(1))
    words = words_of(made)
    # 4 <- 0 above; 4 <- 5 and 0 <- 1, 4 below: vertex 2 is left out.
    below, above = stages_of(made)
    assert [sizes_of(each)[:2] for each in (below, above)] == [(4, 2), (2, 1)]
    assert words[below["vertices"]].view(np.int64)[:2].tolist() == [4, 0]
    assert made.features[:4, 0].tolist() == [0, 2, 3, 4]
    assert words[words[0, 3], 0] == 1


def test_labels_of_several_classes():
    labels = np.zeros((6, 18), np.uint8)
    labels[4, [0, 17]] = labels[2, 3] = 1
    several = replace(GRAPH, labels=labels, num_classes=18, metric="micro_f1")
    made = packed(GCN(hidden=3), graph=several)
    first = words_of(made)[0, 3]
    rows = made.batch.view(np.float32).reshape(-1, 16)[first : first + 4].reshape(2, 32)
    assert np.array_equal(rows[:, :18], labels[[4, 2]])
    assert not rows[:, 18:].any()


def alone(num_seeds):
    """Return a mini-batch of seeds without neighbours."""
    offsets, none = np.zeros(num_seeds + 1, np.int64), np.zeros(0, np.int32)
    block = Block(indptr=offsets, indices=none, num_src=num_seeds)
    seeds = np.arange(num_seeds) % 6
    batch = MiniBatch(seed=0, step=0, num_seeds=num_seeds, input_vertices=seeds, blocks=(block,))
    x = torch.arange(num_seeds * 17).float().view(num_seeds, 17)
    return batch, Inputs(x=x, aggregated=False, degrees=np.zeros(num_seeds, np.float32))


@pytest.mark.parametrize(
    ("limits", "seeds", "groups"),
    [
        ({}, range(20), [20]),
        ({"gather_rows": 16}, range(20), [20]),
        ({"row_words": 16}, range(40), [10, 10, 10, 10]),
        ({"row_words": 32}, range(33), [16, 17]),
    ],
)
def test_seeds_are_halved_until_they_fit(limits, seeds, groups):
    batch, inputs = alone(40)
    made = packed(GCN(num_layers=1), batch, inputs, seeds=seeds, n=2, **limits)
    heads = words_of(made)[: made.num_groups]
    assert heads[:, 4].tolist() == groups
    assert made.num_sources == made.num_seeds == len(seeds)
    starts = np.cumsum([0, *groups[:-1]])
    # Two words a row; logits follow the outcome, a word a seed.
    assert heads[:, 2].tolist() == (2 * starts).tolist()
    assert heads[:, 6].tolist() == (1 + starts).tolist()
    for head, start, count in zip(heads, starts, groups, strict=True):
        part = seeds[start : start + count]
        labels = words_of(made)[head[3] :].ravel()[:count]
        assert labels.tolist() == GRAPH.labels[batch.seeds[part.start : part.stop]].tolist()
        rows = made.features[2 * start : 2 * start + count, 0]
        assert np.array_equal(np.sort(rows), inputs.x[part.start : part.stop, 0])


def test_input_rows_of_all_groups_must_fit_in_memory():
    # Four groups of ten rows, of two words each: three of them take 3,840 bytes.
    given, limits = (GCN(num_layers=1), *alone(40)), {"n": 2, "row_words": 16}
    assert packed(*given, max_row_bytes=5120, **limits).num_groups == 4
    with pytest.raises(DeviceMemoryError) as caught:
        packed(*given, max_row_bytes=3839, **limits)
    assert str(caught.value) == (
        "the input rows of 30 of 40 seeds, in 3 groups whose output rows fit on the fpga's chip, "
        "take 3,840 bytes, and memory has room for 3,839; lower batch_size, sampler.fanouts or "
        "model.hidden"
    )


@pytest.mark.parametrize(
    ("row_words", "kept", "outside"), [(48, 2, 0), (47, 1, 1), (32, 1, 1), (31, 0, 2), (16, 0, 2)]
)
def test_aggregated_rows_take_what_is_left(row_words, kept, outside):
    made = packed(GCN(num_layers=1), *alone(9), n=8, row_words=row_words)
    (stage,) = stages_of(made)
    assert memory_of(stage) == (0, 1, kept, 0)
    assert made.scratch_bytes == 64 * 16 * outside


def with_a_hub():
    """Seed 3 has no neighbours, and seed 5 has 32 of its own, which have none."""
    hub = np.arange(1, 33, dtype=np.int32)
    above = Block(indptr=np.array([0, 0, 32]), indices=hub, num_src=33)
    below = Block(indptr=np.zeros(34, np.int64), indices=hub[:0], num_src=33)
    vertices = np.array([3, 5, *range(100, 131)])
    batch = MiniBatch(seed=0, step=0, num_seeds=2, input_vertices=vertices, blocks=(below, above))
    return batch, Inputs(x=torch.ones(33, 17), aggregated=False, degrees=np.ones(33, np.float32))


def test_rows_whose_sums_do_not_fit_are_tiles():
    made = packed(GCN(hidden=20), *with_a_hub(), gather_rows=16)
    below, above = stages_of(made)
    assert made.num_groups == 1
    # 33 rows; each tile has an entry of every source, which are five words.
    below_tiles = tiles_of(made, below["forward"], below["num_forward"])
    assert below_tiles == [[0, 16, 0, 5], [16, 16, 5, 5], [32, 1, 10, 5]]
    rows = [edge[0] for edge in edges_at(made, 0, 15)]
    assert sorted(rows) == sorted([*range(16), *range(16), 0])
    assert tiles_of(made, above["forward"], above["num_forward"]) == [[0, 2, 15, 5]]
    # On the way back the sources are cut, and the two rows have the edges to these.
    back = tiles_of(made, above["backward"], above["num_backward"])
    assert [each[:2] for each in back] == [[0, 16], [16, 16], [32, 1]]
    ends = [len(edges_at(made, first, count)) for _, _, first, count in back]
    assert sum(ends) == 32 + 2
    # Two sums of each row are half as many rows.
    below, above = stages_of(packed(GraphSAGE(hidden=20), *with_a_hub(), gather_rows=32))
    assert (below["num_forward"], above["num_forward"], above["num_backward"]) == (3, 1, 2)


def test_a_seed_that_does_not_fit():
    # Seed 5 has 32 rows below, which are 2 * 2 * 16 words, and 16 of its own.
    given = (GCN(hidden=20), *with_a_hub())
    assert packed(*given, row_words=80, seeds=range(1, 2)).num_groups == 1
    with pytest.raises(DeviceMemoryError) as caught:
        packed(*given, row_words=79)
    assert str(caught.value) == (
        "what leads to vertex 5 does not fit on the fpga's chip: output rows take 80 words of 64 "
        "bytes, of 79; lower sampler.fanouts or model.hidden"
    )


@pytest.mark.parametrize(
    ("fits", "config", "message"),
    [
        (
            GCN(hidden=512),
            GCN(hidden=513),
            "model.hidden: .* at most 512 output features .* got 513",
        ),
        (GIN(num_layers=8), GIN(num_layers=9), "model.num_layers: .* at most 16 .* got 18"),
    ],
)
def test_models_that_are_too_large(fits, config, message):
    ChipLimits(n=2).check(lower(built(fits), aggregated=False))
    with pytest.raises(ConfigError, match=f"^{message}"):
        ChipLimits(n=2).check(lower(built(config), aggregated=False))
