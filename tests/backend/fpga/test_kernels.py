"""The kernels against torch: logits, losses and gradients of one mini-batch, by their C simulation.

Rounding may open a ReLU in one of them that is shut in the other, whose gradients then differ by
more than rounding. So what is compared has no hidden value that is so near to zero.
"""

import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

from gnnscale.backend.base import DeviceError
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.csim.library import Buffer, Library
from gnnscale.backend.fpga.layout import ChipLimits, pack_batch
from gnnscale.backend.fpga.lowering import WeightLayout, kernel_header, lower, words
from gnnscale.backend.fpga.step_result import check_outcome
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GIN, GNN, GraphSAGE, Inputs
from gnnscale.nn.base import seed_loss
from gnnscale.nn.scatter_gather import Custom
from gnnscale.planner import Fpga
from gnnscale.sampling import Block, MiniBatch, NeighborSampler

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "examples" / "fpga"
#: The smallest n and the largest, and arrays from the smallest to the largest; more scatter-gather
#: PEs than rows of the array, and fewer. With (16, 16), more rows take turns than an addition takes
#: cycles; with (1, 16), fewer than a multiple of sixteen. To compile one takes long, but (2, 256).
DESIGNS = ((2, 256), (16, 16), (1, 2048), (1, 16))
#: Those of tests that are not long.
FEW = DESIGNS[:1]
#: Designs with a header are compiled for these sizes, as those of runs in other tests are.
OWN = (2, 256)
MODELS = (GCN, GraphSAGE, GIN)
LOSS, LOGITS, MULTILABEL = 1, 2, 4
#: Hidden values may not be nearer to zero than this part of the largest one.
NEAR = 1e-5


@pytest.fixture(scope="module")
def kernels(csim_home):
    """Return the kernels of a design; it is compiled when it is asked for first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(csim_home))

        @cache
        def kernels_of(n, m, header=None):
            return Library(library(SimulatedDesign(n=n, m=m, header=header)))

        yield kernels_of


def designs(*wanted):
    """Run a test on the kernels of each design."""
    marks = [() if design in FEW else pytest.mark.long for design in wanted]
    pairs = zip(wanted, marks, strict=True)
    values = [pytest.param(*design, marks=mark) for design, mark in pairs]
    return pytest.mark.parametrize(("n", "m"), values)


def models_on(*wanted):
    """Run a test with each model, on the kernels of a design of its own."""
    marks = [() if design in FEW else pytest.mark.long for design in wanted]
    rows = zip(MODELS, wanted, marks, strict=True)
    values = [pytest.param(config, *design, marks=mark) for config, design, mark in rows]
    return pytest.mark.parametrize(("config", "n", "m"), values)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mini-batch, and the model that it trains."""

    graph: Graph
    model: GNN
    batch: MiniBatch
    inputs: Inputs


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].shape == values.shape
        assert np.isfinite(found[name]).all()
        allowed = 1e-4 * np.abs(values).max(initial=0) + (1e-7 if name == "loss" else 1e-9)
        assert np.abs(found[name] - values).max(initial=0) <= allowed


def by_torch(case):
    """Return torch's answer, and the hidden value next to zero as a part of the largest one."""
    nearest = 1.0

    def note(_, __, out):
        nonlocal nearest
        sizes = out.detach().abs()
        if sizes.any():
            nearest = min(nearest, (sizes[sizes > 0].min() / sizes.max()).item())

    linears = [each for each in case.model.modules() if isinstance(each, nn.Linear)]
    hooks = [each.register_forward_hook(note) for each in linears[:-1]]
    case.model.zero_grad()
    logits = case.model(case.batch, replace(case.inputs, x=case.inputs.x.clone()))
    for hook in hooks:
        hook.remove()
    loss = seed_loss(case.graph, logits, case.batch.seeds)
    loss.backward()
    answer = {name: each.grad.numpy() for name, each in case.model.named_parameters()}
    answer |= {"loss": loss.detach().numpy(), "logits": logits.detach().numpy()}
    return answer, nearest


def clear(cases):
    """Return the first case without hidden values near to zero, and torch's answer."""
    answers = ((case, *by_torch(case)) for case in cases)
    return next((case, answer) for case, answer, nearest in answers if nearest > NEAR)


def aligned(num_bytes, content=None):
    """Return bytes at an address as a device's, which nobody has written before."""
    raw = np.full(num_bytes + 64, 0xFF, np.uint8)
    first = -raw.ctypes.data % 64
    found = raw[first : first + num_bytes]
    if content is not None:
        found[: content.nbytes] = content.reshape(-1).view(np.uint8)
    return found


def pack(case, limits):
    products = lower(case.model, aggregated=case.inputs.aggregated)
    limits.check(products)
    weights = WeightLayout(products)
    given = (case.graph, case.model, products, weights, limits, case.batch, case.inputs)
    seeds = range(case.batch.num_seeds)
    return pack_batch(*given, seeds, max_row_bytes=sys.maxsize, num_threads=1), weights


def by_kernels(kernels, case, limits=None):
    """Return the kernels' answer, what they counted, and what they were sent."""
    n, m = kernels.design["n"], kernels.design["m"]
    packed, layout = pack(case, limits or ChipLimits(n=n))
    num_seeds, classes = case.batch.num_seeds, case.graph.num_classes
    sent = (packed.batch, packed.edges, packed.features, layout.pack())
    buffers = [aligned(each.nbytes, each) for each in sent]
    result = aligned(64 + 64 * num_seeds * words(classes))
    buffers += [aligned(layout.num_bytes), aligned(max(packed.scratch_bytes, 64)), result]
    multilabel = case.graph.multilabel
    scale = np.float32(1 / num_seeds / (classes if multilabel else 1))
    random = np.array([case.batch.seed, case.batch.step], np.uint64).view(np.int32)
    flags = LOSS | LOGITS | (MULTILABEL if multilabel else 0)
    passed = [Buffer(each.ctypes.data, each.nbytes) for each in buffers]
    scalars = (packed.num_groups, flags, *random.tolist(), int(scale.view(np.int32)))
    outcome = kernels.call([*passed, *scalars])
    assert outcome.error == ""
    loss = np.float32(check_outcome(result.view(np.uint32), Fpga(n=n, m=m)))
    logits = result[64:].view(np.float32).reshape(num_seeds, -1)
    names = {parameter: name for name, parameter in case.model.named_parameters()}
    found = layout.unpack(buffers[4].view(np.float32))
    answer = {names[each]: gradient.numpy() for each, gradient in found.items()}
    answer |= {"loss": loss, "logits": logits[:, :classes]}
    return answer, dict(outcome.counters), packed


# Fields of a stage's record (`Stage` in batch.hpp): tiles forward, and on the way back.
NUM_FORWARD, NUM_BACKWARD = 13, 15


def stages_of(packed):
    """Return the records of the first group's stages."""
    words = packed.batch.view(np.int32).reshape(-1, 16)
    first, number = words[0, :2]
    return words[first : first + number].tolist()


def some_graph(rng, num_classes, *, multilabel):
    """Return vertices with labels; their edges and features are those of the mini-batch."""
    shape = (50, num_classes) if multilabel else (50,)
    labels = rng.integers(0, 2 if multilabel else num_classes, shape)
    none, features = np.zeros(0, np.int64), np.zeros((50, 1), np.float32)
    options = {"train_idx": np.arange(50), "num_classes": num_classes}
    return from_arrays((none, none), features, labels, **options)


def some_blocks(rng, num_seeds, num_layers, *, most, repeats=True):
    """Return random blocks: a fifth of the destinations has no edge, others up to ``most``."""
    blocks: list[Block] = []
    for _ in range(num_layers):
        num_dst = blocks[0].num_src if blocks else num_seeds
        num_src = num_dst + int(rng.integers(1, 30))
        degrees = rng.integers(0, most + 1, num_dst) * (rng.random(num_dst) < 0.8)
        lists: list[Any] = [np.zeros(0)]
        for degree in degrees:
            drawn = rng.random(degree) * rng.random(degree) * num_src
            lists.append(drawn if repeats else rng.permutation(num_src)[:degree])
        indices = np.concatenate(lists).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists[1:]])])
        blocks.insert(0, Block(indptr=indptr, indices=indices, num_src=num_src))
    return tuple(blocks)


def some_model(config, width, num_classes):
    model = config.build(num_features=width, num_classes=num_classes)
    with torch.no_grad():
        for each in model.parameters():
            each += 0.1 * torch.randn_like(each)
    return model.train()


def with_small_logits(case):
    """Let no seed be so sure of its class that its gradient is nothing but rounding."""
    *_, last = (each for each in case.model.modules() if isinstance(each, nn.Linear))
    with torch.no_grad():
        logits = case.model(case.batch, replace(case.inputs, x=case.inputs.x.clone()))
        for each in last.parameters():
            each /= max(1.0, logits.abs().max().item())
    return case


def make(
    config,
    seed,
    *,
    width,
    num_classes,
    num_seeds=20,
    most=8,
    multilabel=False,
    importance=False,
    aggregated=False,
    repeats=True,
):
    """Return a random mini-batch of vertices with large ids, and a model for it."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    blocks = some_blocks(rng, num_seeds, config.num_layers, most=most, repeats=repeats)
    if importance:
        drawn = (rng.random(each.num_edges).astype(np.float32) + 0.5 for each in blocks)
        blocks = tuple(map(lambda block, each: replace(block, importance=each), blocks, drawn))
    vertices = rng.permutation(max(50, num_seeds))[:num_seeds] % 50
    others = rng.integers(2**31, 2**40, blocks[0].num_src - num_seeds)
    batch = MiniBatch(
        seed=int(rng.integers(0, 2**63)),
        step=int(rng.integers(0, 2**40)),
        num_seeds=num_seeds,
        input_vertices=np.concatenate([vertices, others]),
        blocks=blocks,
    )
    degrees = rng.integers(1, 20, blocks[0].num_src).astype(np.float32)
    x = torch.from_numpy(rng.standard_normal((blocks[0].num_src, width), np.float32))
    model = some_model(config, width, num_classes)
    if aggregated:
        with torch.no_grad():
            x = model.layer(0).prepare(x, blocks[0], degrees, None)
    graph = some_graph(rng, num_classes, multilabel=multilabel)
    inputs = Inputs(x=x, aggregated=aggregated, degrees=degrees)
    return with_small_logits(Case(graph=graph, model=model, batch=batch, inputs=inputs))


@st.composite
def cases(draw):
    sizes, multilabel = st.integers(1, 70), draw(st.booleans())
    layers, dropout = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 0.3, 0.5]))
    config = draw(st.sampled_from(MODELS))
    return make(
        config(hidden=draw(sizes), num_layers=layers, dropout=dropout),
        draw(st.integers(0, 2**32)),
        width=draw(sizes),
        num_classes=draw(st.integers(1 if multilabel else 2, 70)),
        num_seeds=draw(st.integers(1, 40)),
        most=draw(st.sampled_from([0, 1, 3, 10, 40])),
        multilabel=multilabel,
        importance=draw(st.booleans()),
        aggregated=draw(st.booleans()),
    )


@designs(*DESIGNS)
def test_random_blocks(kernels, n, m):
    found = kernels(n, m)

    @settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])
    @given(cases())
    def check(case):
        wanted, nearest = by_torch(case)
        assume(nearest > NEAR)
        same(by_kernels(found, case)[0], wanted)

    check()


@models_on((1, 2048), (2, 256), (1, 2048))
def test_a_hub_of_ten_thousand_neighbours(kernels, config, n, m):
    rng = np.random.default_rng(1)
    few = rng.integers(0, 10_001, (2, 500))
    few = few[:, few[1] != 0]
    hub = np.stack([np.arange(1, 10_001), np.zeros(10_000, np.int64)])
    edges = tuple(np.concatenate([hub, few], axis=1))
    rows, labels = rng.standard_normal((10_001, 18), np.float32), rng.integers(0, 5, 10_001)
    graph = from_arrays(edges, rows, labels, train_idx=np.arange(10_001), num_classes=5)
    model = some_model(config(hidden=9, dropout=0.5), 18, 5)
    seeds = np.array([0, *few[1, :5], 7])
    batch = NeighborSampler(graph, fanouts=[-1, -1], seed=1).sample(np.unique(seeds), 3)
    inputs = FeatureLoader(graph, model, num_threads=1, aggregates=False).load(batch)
    case = with_small_logits(Case(graph=graph, model=model, batch=batch, inputs=inputs))
    assert max(np.diff(block.indptr).max() for block in batch.blocks) >= 10_000
    answer, counted, packed = by_kernels(kernels(n, m), case)
    # GraphSAGE's 10,000 hidden rows, own and gathered, are two tiles.
    tiles = [2, 1] if config is GraphSAGE else [1, 1]
    assert packed.num_groups == 1
    assert [each[NUM_FORWARD] for each in stages_of(packed)][:2] == tiles
    # One hidden value of 90,000 that is too near to zero changes less than 1e-4.
    same(answer, by_torch(case)[0])
    assert counted["hazards"] > 0


def sampled(graph, config, seeds):
    """Return a mini-batch of a sampler, all of whose vertices lead to the seeds."""
    torch.manual_seed(5)
    model = some_model(config, graph.num_features, graph.num_classes)
    sampler = NeighborSampler(graph, fanouts=[10, 5], seed=2)
    loader = FeatureLoader(graph, model, num_threads=1, aggregates=False)
    batches = (sampler.sample(seeds, step) for step in count())
    return clear(
        with_small_logits(Case(graph=graph, model=model, batch=each, inputs=loader.load(each)))
        for each in batches
    )


def edges_of(case, config):
    """Return the edges of each product, own ones included, and the words of its source rows."""
    found = []
    for index, block in enumerate(case.batch.blocks):
        width = case.inputs.x.shape[1] if index == 0 else config.hidden
        found.append((block.num_edges + block.num_dst, words(width)))
        if isinstance(config, GIN):
            found.append((block.num_dst, words(config.hidden)))
    return found


@models_on((2, 256), (16, 16), (1, 2048))
def test_what_is_read_and_gathered(kernels, random_graph, config, n, m):
    options = config(hidden=33, dropout=0.3)
    case, wanted = sampled(random_graph(num_features=50), options, np.arange(20))
    answer, counted, packed = by_kernels(kernels(n, m), case)
    same(answer, wanted)
    assert packed.num_groups == 1
    assert packed.num_sources == len(case.batch.input_vertices)
    assert packed.features.shape == (packed.num_sources * 4, 16)
    # Each word of an input row once, and once more that of GraphSAGE's own rows for each block of
    # rows of the weights: of sixteen, or of as many as the array has.
    own = case.batch.blocks[0].num_dst * max(1, 256 // m) if config is GraphSAGE else 0
    assert counted["feature_words"] == (packed.num_sources + own) * words(50)
    # Every edge once for each word, and once more on the way back, but to the input.
    edges = edges_of(case, options)
    gathered = sum(number * width for number, width in edges)
    assert counted["edges"] == 2 * gathered - edges[0][0] * edges[0][1]
    # The lists are kept on the chip: they are read once each.
    assert counted["edge_words"] == len(packed.edges) // 64


def kept_rows(case):
    """Return the rows of each product, in sixteens."""
    rows = [-(-block.num_dst // 16) * 16 for block in case.batch.blocks]
    return [rows[each.layer] for each in lower(case.model, aggregated=False)]


def banked(rows, n):
    """Return the words that a word of so many rows takes in 2 n banks."""
    return -(-rows // (2 * n)) * 2 * n


def hidden_words(case, n):
    """Return the words that all output rows take on the chip, in 2 n banks."""
    products = lower(case.model, aggregated=False)
    pairs = zip(kept_rows(case), products, strict=True)
    return sum(banked(rows, n) * words(each.width_out) for rows, each in pairs)


@pytest.mark.parametrize(("config", "dropout"), [(GCN, 0.5), (GraphSAGE, 0.0), (GIN, 0.5)])
def test_groups_of_seeds_add_up(kernels, random_graph, config, dropout):
    graph = random_graph()
    if dropout:
        labels = np.arange(300 * 18).reshape(300, 18) % 7 < 3
        graph = replace(graph, labels=labels.astype(np.uint8), num_classes=18, metric="micro_f1")
        assert graph.multilabel
    case, wanted = sampled(graph, config(hidden=40, dropout=dropout), np.arange(0, 200, 5))
    whole, counted, packed = by_kernels(kernels(*OWN), case)
    assert packed.num_groups == 1
    same(whole, wanted)
    limits = ChipLimits(n=OWN[0], row_words=hidden_words(case, OWN[0]) // 2)
    split, more, packed = by_kernels(kernels(*OWN), case, limits)
    assert packed.num_groups >= 3
    same(split, wanted)
    # What several groups need is read by each of them.
    assert more["feature_words"] > counted["feature_words"]


@pytest.mark.parametrize("dropout", [0.0, pytest.param(0.5, marks=pytest.mark.long)])
@models_on((16, 16), (2, 256), (1, 2048))
def test_rows_that_do_not_fit_are_gathered_tile_by_tile(
    kernels, random_graph, config, dropout, n, m
):
    options = config(hidden=40, dropout=dropout)
    case, wanted = sampled(random_graph(num_features=35), options, np.arange(0, 200, 5))
    _, counted, whole = by_kernels(kernels(n, m), case)
    split, more, packed = by_kernels(kernels(n, m), case, ChipLimits(n=n, gather_rows=64))
    same(split, wanted)
    assert packed.num_groups == whole.num_groups == 1
    sums = 32 if config is GraphSAGE else 64
    first, *_ = stages_of(packed)
    num_tiles = -(-case.batch.blocks[0].num_dst // sums)
    assert num_tiles > 1
    assert first[NUM_FORWARD] == num_tiles
    # Each tile reads all source rows.
    own = counted["feature_words"] - packed.num_sources * words(35)
    assert more["feature_words"] == num_tiles * packed.num_sources * words(35) + own
    assert max(each[NUM_BACKWARD] for each in stages_of(packed)) > 1


@models_on((1, 2048), (2, 256), (2, 256))
def test_aggregated_rows_may_be_kept_off_the_chip(kernels, random_graph, config, n, m):
    options = config(hidden=40, dropout=0.5)
    case, wanted = sampled(random_graph(num_features=70), options, np.arange(30))
    answer, counted, packed = by_kernels(kernels(n, m), case)
    same(answer, wanted)
    assert packed.scratch_bytes == counted["scratch_words"] == 0
    rows, *others = kept_rows(case)
    # GraphSAGE's own hidden rows are kept, too.
    later = (6 if config is GraphSAGE else 3) * sum(others)
    # Room for two of the first product's five columns, and for none.
    for room in (2 * rows, 0):
        limits = ChipLimits(n=n, row_words=hidden_words(case, n) + banked(room, n))
        answer, counted, packed = by_kernels(kernels(n, m), case, limits)
        same(answer, wanted)
        assert packed.num_groups == 1
        # The later ones take what is left on the chip: nothing, or nothing.
        outside = 5 * rows - room + later
        assert packed.scratch_bytes == 64 * outside
        assert outside < counted["scratch_words"] <= 2 * outside


def test_many_parts_on_the_chip_come_before_those_off_it(kernels):
    """A port has few requests at a time, however many parts are passed over."""
    case, wanted = clear(
        make(GraphSAGE(hidden=9), seed, width=1280, num_classes=3) for seed in count()
    )
    rows = -(-stages_of(pack(case, ChipLimits(n=2))[0])[0][1] // 16) * 16
    limits = ChipLimits(n=2, row_words=hidden_words(case, 2) + banked(30 * rows, 2))
    answer, _, packed = by_kernels(kernels(*OWN), case, limits)
    same(answer, wanted)
    assert packed.scratch_bytes > 0


@pytest.mark.parametrize(
    ("config", "num_seeds", "limits", "message"),
    [
        (GCN(hidden=528), 5, {"max_words_out": 99}, "stage 0 .*its output rows are too wide"),
        (GIN(num_layers=9, hidden=4), 5, {"max_stages": 99}, "the model has too many layers"),
        # 4,000 rows of 32 words, of 98,304; and twice 8,208 rows, of 16,384.
        (GCN(hidden=512), 4000, {"row_words": 1 << 20}, "stage 0 .*its rows do not fit"),
        (GraphSAGE(num_layers=1), 8200, {"gather_rows": 1 << 20}, "its rows do not fit"),
    ],
)
def test_the_kernels_refuse_what_they_have_no_room_for(kernels, config, num_seeds, limits, message):
    """What the host should have refused before."""
    case = make(config, 0, width=16, num_classes=3, num_seeds=num_seeds, most=1)
    with pytest.raises(DeviceError, match=message):
        by_kernels(kernels(*OWN), case, ChipLimits(n=OWN[0], **limits))


@pytest.fixture
def max_pool(monkeypatch):
    """The example of a layer with a header."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("max_pool")
    del sys.modules["max_pool"]


@pytest.mark.parametrize(
    ("kept", "num_layers", "hidden", "dropout"),
    [("all", 3, 33, 0), ("some", 2, 20, 0.5), ("none", 1, 8, 0)],
)
def test_functions_of_ones_own(kernels, max_pool, num_layers, hidden, dropout, kept):
    """A maximum, whose gradient takes the rows at both ends of an edge."""
    options = {"hidden": hidden, "num_layers": num_layers, "dropout": dropout}
    config = Custom(functions=max_pool.MaxPool, **options)
    # Messages that come twice would share their gradient in torch.
    sizes = {"width": 30, "num_classes": 6, "num_seeds": 30, "repeats": False}
    case, wanted = clear(make(config, seed, **sizes) for seed in count())
    header = kernel_header(case.model)
    assert header == EXAMPLE / "max_pool.hpp"
    limits = ChipLimits(n=OWN[0])
    if kept != "all":
        # All aggregated rows of the first product, and one column of the next one's; or none.
        first, *others = kept_rows(case)
        more = banked(words(30) * first + others[0], OWN[0]) if kept == "some" else 0
        limits = replace(limits, row_words=hidden_words(case, OWN[0]) + more)
    answer, counted, _ = by_kernels(kernels(*OWN, header), case, limits)
    same(answer, wanted)
    assert (counted["scratch_words"] > 0) == (kept != "all")
