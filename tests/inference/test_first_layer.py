from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import full_batch

from gnnscale.graph import Graph
from gnnscale.inference import first_layer as first
from gnnscale.inference import streamed_inputs as inputs
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.memory_plan import MemoryLimits
from gnnscale.nn import APPNP, GAT, GCN, GIN, SGC, GATv2, GraphSAGE

#: Layers whose rows get narrower, and such whose do not; heads that are concatenated and averaged.
MODELS = {
    "gcn": GCN(hidden=32),
    "gcn3": GCN(hidden=40, num_layers=3, residual=True, norm="batch"),
    "sage": GraphSAGE(hidden=32),
    "sage1": GraphSAGE(num_layers=1),
    "sage_wide": GraphSAGE(hidden=128, jumping="cat"),
    "gin": GIN(hidden=32),
    "gin_wide": GIN(hidden=128, num_layers=3),
    "pool": GraphSAGE(hidden=16, aggregator="pool"),
    "gat": GAT(hidden=32, num_heads=4, num_layers=3),
    "gat1": GAT(num_heads=4, num_layers=1),
    "gatv2": GATv2(hidden=32, num_heads=4),
    "gatv2_shared": GATv2(hidden=32, num_heads=4, share_weights=True),
    "sgc": SGC(num_layers=2),
}

#: Chunks and stretches are small; made rows of 16 columns fit, or all.
LIMITS = MemoryLimits(
    chunk_edges=300, chunk_vertices=40, file_chunk_edges=200, kept_bytes=0, made_bytes=1 << 30
)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_RANGE_BYTES", 4 * 80 * 50)
    monkeypatch.setattr(first, "_TRIAL_BYTES", 4 * 80 * 100)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).norm() < 1e-5 * expected.norm())


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("num_blocks", "has_weights", "hidden_bytes"), [("one", True, 1 << 30), ("several", False, 0)]
)
def test_rows_made_in_passes_equal_a_batch_of_full_neighbourhoods(
    random_graph, on_disk, name, num_blocks, has_weights, hidden_bytes
) -> None:
    fields = {"edge_weights": np.random.default_rng(1).random(4000)} if has_weights else {}
    graph, store = on_disk(random_graph(400, 4000, num_features=80, **fields))
    model = MODELS[name].build(num_features=80, num_classes=5).train()
    limits = replace(LIMITS, hidden_bytes=hidden_bytes)
    if num_blocks == "several":
        limits = replace(limits, made_bytes=4 * 16 * 400)
    inference = LayerwiseInference(model, graph, num_threads=2, store=store, limits=limits)
    shuffled = np.random.default_rng(0).permutation(400)[:90]
    for vertices in (None, shuffled):
        work = inference.work(vertices)
        begins, ends = zip(*work.inputs.blocks, strict=True)
        assert (0, *ends) == (*begins, work.inputs.layer.width)
        assert (len(begins) > 1) == (num_blocks == "several" and ends[-1] > 16)
        assert all(end - begin <= 16 for begin, end in work.inputs.blocks) or len(begins) == 1
        logits = inference.logits(vertices)
        assert close(logits, full_batch(model, graph, vertices))
        assert 0 < inference.estimate_s(vertices) < 100
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert close(inference.logits(shuffled), full_batch(model, graph, shuffled))


@pytest.mark.long
@pytest.mark.parametrize(("name", "num_blocks"), [*zip(MODELS, cycle(["one", "several"]))])
def test_only_rows_of_needed_vertices_are_made(
    random_graph: Any, on_disk: Any, monkeypatch: pytest.MonkeyPatch, name: str, num_blocks: str
) -> None:
    graph, store = on_disk(random_graph(4000, 1500, num_features=80))
    model = MODELS[name].build(num_features=80, num_classes=5)
    made_bytes = 4 * 16 * 400 if num_blocks == "several" else 1 << 30
    limits = replace(LIMITS, whole_vertices=0, made_bytes=made_bytes)
    inference = LayerwiseInference(model, graph, num_threads=2, store=store, limits=limits)
    read: list[int] = []
    start = inputs.FeatureReader.start

    def noted(self: Any, vertices: Any) -> Any:
        read.append(len(vertices))
        return start(self, vertices)

    monkeypatch.setattr(inputs.FeatureReader, "start", noted)
    vertices = np.random.default_rng(0).permutation(4000)[:30]
    found = inference.logits(vertices)
    assert close(found, full_batch(model, graph, vertices))
    plan = inference.work(vertices).inputs
    assert len(plan.vertices) < 400
    own = plan.num_passes - len(plan.blocks)
    destinations = len(inference.work(vertices).needed[0])
    assert sum(read) == len(plan.blocks) * len(plan.vertices) + own * destinations


@pytest.mark.long
@pytest.mark.parametrize(
    ("stored", "config"),
    [
        *((torch.float16, GAT), (torch.bfloat16, GraphSAGE), (torch.uint8, GAT)),
        *(("int8", GraphSAGE), ("int4", GAT)),
    ],
)
def test_any_storage(random_graph: Any, on_disk: Any, stored: Any, config: Any) -> None:
    if isinstance(stored, str):
        graph = random_graph(num_features=80).with_quantized_features(stored)
    else:
        graph = random_graph(num_features=80, dtype=stored)
    model = config(hidden=16).build(num_features=80, num_classes=5)
    expected = full_batch(model, graph)
    graph, store = on_disk(graph)
    inference = LayerwiseInference(model, graph, num_threads=1, store=store, limits=LIMITS)
    assert inference.work(None).inputs is not None
    assert close(inference.logits(), expected)


@pytest.mark.long
@pytest.mark.parametrize("made_bytes", [0, 1 << 30])
def test_an_encoder_reads_features_once(random_graph, on_disk, made_bytes) -> None:
    graph, store = on_disk(random_graph(400, 4000))
    model = APPNP(hidden=16, num_layers=3).build(num_features=20, num_classes=5)
    limits = replace(LIMITS, hidden_bytes=made_bytes, made_bytes=made_bytes)
    inference = LayerwiseInference(model, graph, num_threads=2, store=store, limits=limits)
    assert inference.work(None).encoded == ("memory" if made_bytes else "file")
    assert inference.estimate_s(None) > 0
    read: list[int] = []
    model.encoder.register_forward_hook(lambda _, inputs, __: read.append(len(inputs[0])))
    vertices = np.random.default_rng(0).permutation(400)[:30]
    found = inference.logits(vertices)
    assert sum(read) == 400
    assert close(found, full_batch(model, graph, vertices))


@pytest.mark.parametrize(
    ("config", "made"),
    [
        (GraphSAGE(hidden=32), False),
        (GCN(hidden=33), False),
        (GIN(hidden=32), False),
        (GAT(hidden=128), True),
        (GraphSAGE(hidden=128, aggregator="pool"), True),
    ],
)
def test_rows_of_features_in_memory_are_made_if_that_is_less_work(
    random_graph: Any, config: Any, made: bool
) -> None:
    graph = random_graph(400, 4000, num_features=80)
    model = config.build(num_features=80, num_classes=5)

    def inference(limits: MemoryLimits) -> LayerwiseInference:
        return LayerwiseInference(model, graph, num_threads=2, limits=limits)

    found = inference(LIMITS)
    assert (found.work(None).inputs is not None) == made
    assert close(found.logits(), full_batch(model, graph))
    # Not if they have no room, what is read is kept, or few vertices need them.
    for few in ({"made_bytes": 4 * 32 * 400 - 1}, {"kept_bytes": 4 * 80 * 400}):
        assert inference(replace(LIMITS, **few)).work(None).inputs is None
    sparse = random_graph(4000, 1500, num_features=80)
    limits = replace(LIMITS, whole_vertices=0)
    of_few = LayerwiseInference(model, sparse, num_threads=1, limits=limits)
    assert of_few.work(np.arange(30)).inputs is None


def test_sums_by_hand(tiny_graph: Graph, on_disk: Any) -> None:
    graph, store = on_disk(tiny_graph)
    model = GraphSAGE(num_layers=1).build(num_features=2, num_classes=2)
    with torch.no_grad():
        layer: Any = model.layers[0]
        # The first output adds own and mean first features, the second those of the second.
        layer.linear.weight.copy_(torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1]]))
    limits = replace(LIMITS, made_bytes=4 * 16 * 5)
    inference = LayerwiseInference(model, graph, num_threads=1, store=store, limits=limits)
    assert inference.work(None).inputs is not None
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4.
    sums = torch.tensor([1.5, 4, 3.5, 3, 8])
    assert torch.equal(inference.logits(), torch.stack([sums, 10 * sums], dim=1))


def test_whoever_stops_reading_leaves_no_file_open(random_graph: Any, on_disk: Any) -> None:
    graph, store = on_disk(random_graph(400, 4000, num_features=80))
    model = GraphSAGE(num_layers=1).build(num_features=80, num_classes=5).train()
    closed: list[Any] = []
    original = first.FeatureReader.close

    def noted(self: Any) -> None:
        closed.append(self)
        original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.FeatureReader, "close", noted)
        limits = replace(LIMITS, made_bytes=4 * 16 * 400)
        inference = LayerwiseInference(model, graph, num_threads=2, store=store, limits=limits)
        rows = inference.rows()
        next(rows)
        rows.close()
    assert len(closed) == 1
    assert model.training


def test_threads_change_nothing_and_errors_are_told(random_graph, on_disk, monkeypatch) -> None:
    graph, store = on_disk(random_graph(400, 4000, num_features=80))
    model = GraphSAGE(hidden=16).build(num_features=80, num_classes=5).train()
    infer = partial(LayerwiseInference, model, graph, store=store, limits=LIMITS)
    assert torch.equal(infer(num_threads=1).logits(), infer(num_threads=4).logits())

    def broken(self: Any, ticket: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(inputs.DiskRows, "finish", broken)
    with pytest.raises(OSError, match="Input/output error"):
        infer(num_threads=2).logits()
    assert model.training
