import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
import torch

from gnnscale.backend import CacheInputs, DeviceBatch, DeviceMemoryError
from gnnscale.backend.base import DeviceError
from gnnscale.backend.fpga import backend as fpga_backend
from gnnscale.backend.fpga.backend import FpgaBackend
from gnnscale.backend.fpga.board import BoardMemoryError
from gnnscale.backend.fpga.csim import xrt
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.xrt_card import XrtCard
from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import Memory
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE
from gnnscale.planner import Cpu, Fpga, Threads

#: A card that no other test of this process opens.
CARD = 9
SEEDS = np.arange(0, 300, 5)

Open = Callable[..., FpgaBackend]


def card(**options):
    return Fpga(**({"name": "card", "index": CARD} | options))


@pytest.fixture(autouse=True)
def compiled(csim_home, monkeypatch):
    monkeypatch.setenv("GNNSCALE_HOME", str(csim_home))


@pytest.fixture
def opened(backend):
    """Open cards whose weights are the model's; they are closed when the test ends."""
    found: list[FpgaBackend] = []

    def build(model=None, *, loaded=True, **options):
        one = backend(card(**options), model)
        assert isinstance(one, FpgaBackend)
        found.append(one)
        if loaded:
            one.load_state()
        return one

    yield build
    for each in found:
        each.close()


def model_of(graph, config):
    torch.manual_seed(3)
    return config.build(num_features=graph.num_features, num_classes=graph.num_classes).train()


def sent(backend, batch):
    return backend.transfer(batch, backend.load(batch))


def propagated(backend, batch, weight=1.0):
    arrived = sent(backend, batch)
    backend.propagate(arrived, weight)
    return backend.finish(arrived)


def gradients(backend, model):
    into = [torch.full_like(each, torch.nan) for each in model.parameters()]
    backend.copy_gradients(into)
    return into


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "fused"),
    [(GCN(hidden=16), False), (GraphSAGE(hidden=16), True), (GIN(hidden=16, dropout=0), False)],
)
def test_answers_are_the_processors(backend, opened, graph, config, fused):
    model, copy = model_of(graph, config), model_of(graph, config)
    processor, board = backend(Cpu(), model), opened(copy, host_aggregates=fused)
    # Few seeds are one or two for each compute unit, or none for some.
    for step, seeds in enumerate([np.arange(0, 200, 3), *(SEEDS[:count] for count in (6, 3, 1))]):
        batch = processor.sample(seeds, step)
        assert batch.input_vertices.tolist() == board.sample(seeds, step).input_vertices.tolist()
        model.zero_grad()
        expected, outcome = propagated(processor, batch, 0.3), propagated(board, batch, 0.3)
        assert outcome.loss == pytest.approx(expected.loss, rel=1e-5)
        sizes = expected.num_edges, expected.num_vertices
        assert (outcome.num_edges, outcome.num_vertices) == sizes
        for gradient, parameter in zip(gradients(board, copy), model.parameters(), strict=True):
            atol = 1e-4 * parameter.grad.abs().max().item() + 1e-9
            torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=atol)


@pytest.mark.long
def test_what_a_step_tells(opened, batch):
    found = opened(link_bandwidth=1e6, link_latency_s=0.5, link_request_bytes=128)
    inputs = found.load(batch)
    arrived = found.transfer(batch, inputs)
    assert len(arrived.inputs.x) == 0
    rows, lists = arrived.traffic.rows, arrived.traffic.lists
    # Each of the four units gets the rows that lead to its seeds, of 20 features in 2 words.
    assert rows.link_bytes >= len(batch.input_vertices) * 2 * 64
    assert rows.host_bytes == inputs.traffic.rows.host_bytes
    assert rows.link_requests == -(-rows.link_bytes // 128)
    assert lists.link_bytes > 0
    assert arrived.num_bytes == rows.link_bytes + lists.link_bytes
    found.propagate(arrived, 1.0)
    outcome = found.finish(arrived)
    assert (outcome.num_edges, outcome.num_vertices) == (batch.num_edges, batch.num_vertices)
    assert outcome.traffic == arrived.traffic
    # Its own clock is the kernels'; the link is modelled.
    seconds = outcome.seconds
    moved = rows.link_bytes + lists.link_bytes
    assert seconds["transfer"] == pytest.approx(0.5 + moved / 1e6)
    assert seconds["propagate"] == outcome.counters["csim_cycles"] / 300e6
    assert outcome.counters["csim_feature_bytes"] >= rows.link_bytes
    assert outcome.counters["csim_simulating_s"] > 0
    assert found.device.figures == "csim"


@pytest.mark.long
@torch.no_grad()
def test_the_card_owns_its_weights(opened, batch, model):
    found = opened(model)
    before = propagated(found, batch).loss
    for each in model.parameters():
        each += 0.1
    assert propagated(found, batch).loss == before
    for take_over in (found.update_weights, found.load_state):
        take_over()
        after = propagated(found, batch).loss
        assert after != pytest.approx(before, rel=1e-3)
        before = after
        for each in model.parameters():
            each *= 1.5
    # A card has no buffers, and the host's gradients are the optimizer's.
    found.copy_buffers()
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.long
def test_gradients_are_brought_once_and_may_be_asked_for_first(opened, batch, model):
    found = opened(model)
    # Whoever has no mini-batch at all is asked, too.
    assert not any(each.any() for each in gradients(found, model))
    wanted = propagated(found, batch)
    first = gradients(found, model)
    assert all(each.any() for each in first)
    assert not any(each.any() for each in gradients(found, model))
    outcome = propagated(found, found.sample(SEEDS[:0], 1))
    assert (outcome.loss, outcome.num_edges, outcome.seconds.keys()) == (0, 0, {"transfer"})
    assert not any(each.any() for each in gradients(found, model))
    arrived = sent(found, batch)
    found.propagate(arrived, 1.0)
    assert all(map(torch.equal, first, gradients(found, model)))
    assert found.finish(arrived).loss == wanted.loss
    found.set_threads(Threads(sample=2, load=3, propagate=1))
    assert (found._host.sampler.num_threads, found._host.loader.num_threads) == (2, 3)
    assert propagated(found, batch).loss == wanted.loss


@pytest.mark.long
def test_a_closed_card_is_free_and_has_no_weights(opened, batch):
    found = opened()
    found.propagate(sent(found, batch), 1.0)
    found.close()
    found.close()
    bare = opened(loaded=False)
    with pytest.raises(DeviceError, match=r"^card: board 9 .*weights of compute unit 0"):
        bare.propagate(sent(bare, batch), 1.0)
    bare.close()
    assert propagated(opened(), batch).loss > 0


@pytest.mark.long
def test_mini_batches_are_sent_while_others_are_computed(opened):
    found = opened()
    batches = [found.sample(np.arange(step, 300, 7), step) for step in range(12)]
    wanted = [propagated(found, each).loss for each in batches]
    assert len(set(wanted)) == len(wanted)
    room, arrived, slots = threading.Semaphore(4), Queue[DeviceBatch](), set()

    def send():
        for each in batches:
            room.acquire()
            arrived.put(sent(found, each))

    sender = threading.Thread(target=send)
    sender.start()
    for loss in wanted:
        batch = arrived.get(timeout=60)
        slots.add(batch.slot)
        found.propagate(batch, 1.0)
        assert found.finish(batch).loss == loss
        room.release()
    sender.join()
    # Of so many slots only those that were used at once have buffers.
    assert len(slots) <= 5


@pytest.mark.long
def test_memory_is_refused_beyond_the_budget_and_given_back(opened, batch):
    model = 2 * 4 * opened()._weights.num_bytes
    one = sent(opened(), batch).num_bytes
    found = opened(memory_bytes=model + 2 * one)
    first, _ = sent(found, batch), sent(found, batch)
    with pytest.raises(DeviceMemoryError) as caught:
        sent(found, batch)
    assert "\n" not in str(caught.value)
    for part in ("card: out of device memory", f"{len(batch.seeds)} seeds", "smaller cache"):
        assert part in str(caught.value)
    found.propagate(first, 1.0)
    found.finish(first)
    sent(found, batch)
    with pytest.raises(DeviceMemoryError):
        sent(found, batch)
    with pytest.raises(DeviceMemoryError, match="out of device memory: the model needs"):
        opened(memory_bytes=model - 1)


@pytest.mark.long
def test_a_full_bank_leaves_nothing_behind(opened, batch, monkeypatch):
    """It is tried again once another mini-batch is done."""
    model = 2 * 4 * opened()._weights.num_bytes
    found = opened(memory_bytes=model + sent(opened(), batch).num_bytes)
    slots = list(found._slots)

    def full(*arguments):
        raise BoardMemoryError("bank 1 is full")

    with monkeypatch.context() as patched:
        patched.setattr(found._board, "send", full)
        with pytest.raises(DeviceMemoryError, match="card: bank 1 is full"):
            sent(found, batch)
    assert found._slots == slots
    assert propagated(found, batch).loss > 0


@pytest.mark.long
def test_all_units_share_the_memory_that_is_left(opened, batch, monkeypatch):
    found = opened()
    inputs = found.load(batch)
    needed = 3 * found.transfer(batch, inputs).traffic.rows.link_bytes
    answers = [needed - 1, needed]

    def memory():
        return Memory(total=1 << 40, available=answers.pop(), installed=1 << 40)

    monkeypatch.setattr(fpga_backend, "read_memory", memory)
    found.transfer(batch, inputs)
    assert answers == [needed - 1]
    with pytest.raises(DeviceMemoryError, match="memory has room for"):
        found.transfer(batch, inputs)


@pytest.mark.long
def test_a_step_that_takes_too_long(opened, batch, monkeypatch):
    found = opened(timeout_s=1e-6)
    # However fast this machine is, the card is still at it.
    monkeypatch.setattr(XrtCard, "wait_for_end", lambda *_: None)
    with pytest.raises(DeviceError, match=r"^card: board 9 .* is not done after 1e-06 s"):
        propagated(found, batch)


@pytest.mark.long
def test_a_bitstream_is_driven_by_the_runtime(opened, batch, monkeypatch):
    """The kernels in place of a bitstream, and the simulated card's module in place of pyxrt."""
    monkeypatch.setitem(sys.modules, "pyxrt", xrt)
    path = str(library(SimulatedDesign()))
    found = opened(bitstream=path)
    outcome = propagated(found, batch)
    assert outcome.loss == propagated(opened(), batch).loss
    # Everything is measured: nothing is counted, and nothing modelled.
    assert outcome.counters.keys() == {"arranging_s"}
    assert outcome.seconds.keys() == {"propagate"}
    assert found.device.figures == "measured"
    # A bitstream tells for which sizes it was made.
    for sizes in ({"n": 4}, {"m": 512}):
        other = opened(bitstream=path, **sizes)
        with pytest.raises(DeviceError, match=r"^card: expected .* got n=2 and m=256"):
            propagated(other, batch)


@pytest.mark.long
def test_a_bitstream_of_something_else(opened, bitstream, batch, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyxrt", xrt)
    found = opened(bitstream=str(bitstream))
    with pytest.raises(DeviceError, match="takes 3 scalars, got 7"):
        propagated(found, batch)
    found.close()
    wrong = tmp_path / "gnn.xclbin"
    wrong.write_bytes(b"xclbin2 and so on")
    with pytest.raises(DeviceError, match=r"^card: board 9 .*a bitstream of a real board"):
        opened(bitstream=str(wrong))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bitstream": "no.xclbin"}, "device_plan.devices: card: bitstream=no.xclbin: no such"),
        ({"bitstream": str(Path(__file__).parent)}, "device_plan.devices: card: bitstream=.*: no"),
        ({"index": 99}, "card: board 99: opening the card: No such device 99"),
        ({"bitstream": __file__}, "a bitstream needs the Xilinx Runtime"),
    ],
)
def test_cards_that_are_not_there(opened, monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    with pytest.raises(ConfigError, match=f"^{message}") as caught:
        opened(**options)
    assert "\n" not in str(caught.value)


def test_models_and_runs_that_are_refused(opened, graph, host, model, monkeypatch):
    """Before anything is compiled or opened."""
    monkeypatch.setattr(fpga_backend, "library", None)
    for config, message in (
        (GAT(hidden=8), "model: GATLayer does not run on an fpga"),
        (GCN(hidden=2048), "model.hidden: expected at most 512 output features on an fpga, got"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}"):
            opened(model_of(graph, config))
    for options, message in (
        ({"dtype": torch.bfloat16}, "runtime.compute_dtype=bfloat16: expected float32 on card"),
        ({"cache": CacheInputs(num_bytes=1)}, "cache_planner: card is an fpga, which has no cache"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}"):
            FpgaBackend(card(), host(model, **options))
