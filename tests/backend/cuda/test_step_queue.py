"""Steps as recordings, with the host in the GPU's place: what they learn, and what finds no room.

Before a recording is repeated, its own memory is filled with NaN and with numbers that are no
index.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend import CacheInputs, DeviceStepInputs
from gnnscale.backend.cuda import step_queue
from gnnscale.backend.cuda.backend import CudaBackend
from gnnscale.backend.cuda.device_model import DeviceGradientAccumulator
from gnnscale.backend.cuda.device_step import StepPart
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.cache.plan import CliqueCache, LookAhead
from gnnscale.nn import GAT, GCN, GIN, GNN, GraphSAGE
from gnnscale.nn.optim import Adam, AdamW, Sgd
from gnnscale.planner import Cuda
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling

BATCH, STEPS = 40, 11


@pytest.fixture
def train(host, graph):
    """Train some steps on a device; return losses, and what weights and optimizer have become."""

    def run(
        model=None,
        optimizer=None,
        *,
        captures=True,
        place="device",
        sampling=None,
        rehearsed=BATCH,
        grows=False,
        accumulate=1,
        late=4,
        follows=None,
        rank=None,
        add_up=None,
        watched=lambda _: None,
    ):
        made = copy.deepcopy(model or new(GraphSAGE))
        optimizer = optimizer or Sgd(lr=0.1, momentum=0.5)
        sampling = sampling or NeighborSampling(fanouts=[10, 5])
        # Of two devices, only the first has too little room.
        few = BATCH if rank == 1 else rehearsed
        slices = tuple(half(seeds(number), rank)[:few] for number in range(3))
        own = DeviceStepInputs(
            build_optimizer=optimizer.build,
            host_optimizer=optimizer.build(made),
            clip_norm=1.0,
            first_slices=slices,
            sum=add_up,
        )
        parts = replace(
            host(made, step_inputs=own),
            batch_size=BATCH,
            sampling=sampling,
            sampler=sampling.sampler(graph, seed=1, num_threads=1),
        )
        if follows is not None:
            parts = replace(parts, cache=following(parts, match=follows))
        device = Cuda(
            host_driven=True, features=place, topology=place, name="card", captures=captures
        )
        backend = CudaBackend(device, parts, HostEngine(device))
        try:
            backend.load_state()
            losses, pending = [], []
            for step in range(STEPS):
                # The last mini-batch of an epoch is smaller.
                chosen = seeds(step)[: BATCH - 7 * (step % 4 == 3)]
                if grows:  # as slices of parts do, whose sizes follow the parts
                    chosen = seeds(step)[: 20 + 10 * (step // 5)]
                updates = step % accumulate == accumulate - 1
                pending.append(
                    backend.train(
                        half(chosen, rank),
                        step,
                        num_seeds=len(chosen),
                        rate=0.1 / (step + 1),
                        updates=updates,
                    )
                )
                if len(pending) > late:
                    losses.append(pending.pop(0).read().loss)
            losses += [each.read().loss for each in pending]
            watched(backend)
            backend.copy_state()
        finally:
            backend.close()
        kept = own.host_optimizer.state_dict()["state"].values()
        state = [each for values in kept for each in values.values() if each is not None]
        return losses, [*made.state_dict().values(), *state]

    def seeds(step):
        return np.random.default_rng(step).permutation(graph.num_vertices)[:BATCH].astype(np.int32)

    def following(parts, *, match):
        """A cache whose rows follow the batches, all of which are known."""
        policy = LookAhead(window=2, num_rows=60, match=match)
        priority = np.arange(graph.num_vertices, dtype=np.int32)
        replay = LookAheadReplay(graph.num_vertices, policy, priority=priority)
        for step in range(STEPS):
            chosen = seeds(step)[: BATCH - 7 * (step % 4 == 3)]
            replay.expect(parts.sampler.sample(chosen, step).input_vertices)
        nothing = (np.empty(0, np.int32),)
        kept = CliqueCache(
            names=("card",),
            positions=(0,),
            features=nothing,
            topology=nothing,
            own=0,
            look_ahead=policy,
        )
        return CacheInputs(kept=kept, replay=replay)

    def half(chosen, rank):
        """The seeds of one of two devices; all of them for a device alone."""
        middle = (len(chosen) + 1) // 2
        return chosen if rank is None else (chosen[:middle], chosen[middle:])[rank]

    def new(kind, **options):
        torch.manual_seed(3)
        options = {"hidden": 16, "dropout": 0.5, **options}
        built: GNN = kind(**options).build(
            num_features=graph.num_features, num_classes=graph.num_classes
        )
        return built

    run.new = new
    return run


class Meeting:
    """Adds up tensors of several devices, each in a separate thread."""

    def __init__(self, size):
        self._barrier = threading.Barrier(size, timeout=60)
        self._parts: list[torch.Tensor | None] = [None] * size

    def of(self, rank):
        def add_up(values):
            self._parts[rank] = values.clone()
            self._barrier.wait()
            values.copy_(sum(each for each in self._parts if each is not None))
            self._barrier.wait()

        return add_up


def together(train, **options):
    """Train on two devices, of which each has a half of every mini-batch."""
    meeting, model = Meeting(2), train.new(GraphSAGE)  # here: threads share torch's generator
    with ThreadPoolExecutor(2) as pool:
        started = [
            pool.submit(train, model, rank=rank, add_up=meeting.of(rank), **options)
            for rank in range(2)
        ]
        return [each.result() for each in started]


def same(found, known):
    pairs = zip(found[1], known[1], strict=True)
    return found[0] == known[0] and all(torch.equal(*pair) for pair in pairs)


KINDS: dict[str, dict[str, Any]] = {
    "sage": {},
    "rows over the link": {"place": "host"},
    "adam": {"optimizer": Adam(lr=0.01, weight_decay=0.1)},
    "adamw": {"optimizer": AdamW(lr=0.01)},
    "three mini-batches an update": {"accumulate": 3},
    "read at once": {"late": 0},
    "layer-wise": {"sampling": LayerSampling(layer_sizes=[20, 60])},
    "slices that grow": {"grows": True},
    "with replacement": {"sampling": NeighborSampling(fanouts=[40, 3], replace=True)},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_recorded_gives_the_same_bits(train, kind):
    assert same(train(**KINDS[kind]), train(**KINDS[kind], captures=False))


@pytest.mark.long
@pytest.mark.parametrize("kind", [GCN, GIN, GAT])
def test_every_model_can_be_recorded(train, kind):
    model = train.new(kind, norm="layer")
    assert same(train(model), train(model, captures=False))


def test_the_host_launches_nothing_of_what_was_recorded(train):
    def look(backend):
        slots = backend._own_steps._slots
        part = StepPart(num_seeds=BATCH, pending=DeviceGradientAccumulator(), updates=True)
        known = {("read", BATCH), (part, BATCH)}
        assert [set(each._captured) for each in slots] == [known] * 2

    train(watched=look)
    captured: list[Any] = []
    train(
        captures=False,
        watched=lambda each: captured.extend(slot._captured for slot in each._own_steps._slots),
    )
    assert captured == [{}, {}]


def test_what_a_queue_was_not_made_for(train):
    assert step_queue.NUM_RECORDS > 4 + 1
    with pytest.raises(AssertionError):
        train(late=step_queue.NUM_RECORDS + 1)
    with pytest.raises(Exception, match="have no weights"):
        train(sampling=WeightedSampling(fanouts=[4, 4]))


@pytest.mark.long
@pytest.mark.parametrize(("accumulate", "late"), [(1, 0), (2, 2), (1, 4)])
def test_a_step_that_finds_no_room_is_done_again(train, accumulate, late, caplog):
    options = {"accumulate": accumulate, "late": late}
    with caplog.at_level("INFO"):
        found = train(rehearsed=9, **options)
    assert "exceeds the observed capacity" in caplog.text
    known = train(**options)
    assert found[0] == pytest.approx(known[0], rel=1e-5)
    for one, other in zip(found[1], known[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert same(found, train(rehearsed=9, **options)), "what is repeated is fixed by the run"


@pytest.mark.integration
@pytest.mark.parametrize(("accumulate", "late"), [(1, 4), (2, 0)])
def test_two_devices_learn_what_one_does(train, accumulate, late):
    known = train(accumulate=accumulate)
    first, second = together(train, accumulate=accumulate, late=late)
    assert [sum(pair) for pair in zip(first[0], second[0], strict=True)] == pytest.approx(
        known[0], rel=1e-5
    )
    assert all(map(torch.equal, first[1], second[1]))
    for one, other in zip(first[1], known[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize(("accumulate", "late"), [(1, 0), (2, 3), (1, 4)])
def test_if_one_device_finds_no_room_all_do_the_step_again(train, accumulate, late):
    options = {"accumulate": accumulate, "late": late}
    found, known = together(train, rehearsed=5, **options), together(train, **options)
    assert all(map(torch.equal, found[0][1], found[1][1]))
    for one, other in zip(found, known, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-5)
        for left, right in zip(one[1], other[1], strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("match", "rehearsed", "captures"),
    [(True, BATCH, True), (False, 9, True), (False, BATCH, False)],
)
def test_rows_that_follow_the_batches_change_no_bit(train, match, rehearsed, captures):
    """Nor do they if steps are done again, after which the cache is empty."""
    options = {"place": "host", "rehearsed": rehearsed}
    known = train(**options)
    assert same(train(**options, follows=match, captures=captures), known)


@pytest.mark.long
def test_a_step_that_cannot_be_recorded_is_queued_piece_by_piece(train, monkeypatch, caplog):
    known = train(captures=False)

    def refused(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("gnnscale.backend.cuda.host_engine.HostStream.capture", refused)
    assert same(train(), known)
    warned = [each.message for each in caplog.records if "piece by piece" in each.message]
    assert len(warned) == 1
    assert "not permitted" in warned[0]
