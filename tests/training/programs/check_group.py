"""One of several processes that exchange what a run exchanges, and check it."""

import re
import socket
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend import BackendInputs, BatchOutcome, CpuBackend
from gnnscale.core.errors import ConfigError
from gnnscale.core.stages import Access, StageTimes, Traffic
from gnnscale.distributed.process_group import Group, join
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.nn.optim.update_rules import PlainAdam, RowSums, RowWiseAdagrad
from gnnscale.planner import Cpu
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.training.determinism import check_equal_values
from gnnscale.training.gradient_sync import Synchronizer, sum_embedding_gradients


def check_exchanges(group: Group) -> None:
    rank, size = group.rank, group.size
    assert group.is_rank0 == (rank == 0)
    assert (group.local_rank, group.local_size) == (rank, size)

    values = torch.tensor([rank + 1.0, 10.0 * rank])
    group.sum(values)
    assert values.tolist() == [size * (size + 1) / 2, 10.0 * size * (size - 1) / 2]

    # Sums that depend on the order of terms: all the same, bit for bit, in both ways to sum.
    torch.manual_seed(rank)
    for count in (10_007, 100_003):
        values = torch.randn(count) * 10.0 ** torch.randint(-6, 6, (count,))
        each = group.gather(values.numpy().tobytes())
        group.sum(values)
        gathered = group.gather(values.numpy().tobytes())
        assert len(set(gathered)) == (1 if rank == 0 else 0)
        if rank == 0:
            terms = torch.stack([torch.frombuffer(bytearray(x), dtype=torch.float32) for x in each])
            torch.testing.assert_close(values, terms.sum(0), rtol=1e-4, atol=1.0)

    for content in (b"", b"\0", bytes(range(256)) * 5000):
        assert group.broadcast(content if rank == 0 else None) == content
        gathered = group.gather(content * (rank + 1))
        assert gathered == ([content * (i + 1) for i in range(size)] if rank == 0 else [])
    # The process that leads has the least to say.
    gathered = group.gather(b"x" * rank)
    assert gathered == ([b"x" * i for i in range(size)] if rank == 0 else [])
    for plain in (None, [1, "two", {"three": 3.5}]):
        assert group.broadcast_object(plain if rank == 0 else "not asked") == plain
    # A tensor that nobody else has outlives gloo's threads, which may hold it for a moment longer.
    for values in (torch.zeros(1), torch.zeros(100_000)):
        kept = weakref.ref(values)
        if size == 2:
            group.sum(values)
            del values
            assert kept() is not None
    group.barrier()


def check_sums(group: Group) -> None:
    """In shared memory, at rank 0 and in a ring."""
    shared, own = group, group.new_group()
    assert own.sums is not shared.sums is not None
    over_gloo = replace(group, sums=None)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16):
        for count in (5, 100_003):
            torch.manual_seed(group.rank)
            values = (torch.randn(count, 2) * 1000).to(dtype)
            every = [values.clone() for _ in range(3)]
            for each, way in zip(every, (shared, own, over_gloo), strict=True):
                way.sum(each)
            assert torch.equal(every[0], every[1])
            torch.testing.assert_close(every[0], every[2], rtol=3e-2, atol=0.02)
            if count == 5:  # both sum in the order of ranks
                assert torch.equal(every[0], every[2])
    values = torch.full((4, 2), group.rank + 1.0)
    shared.sum(values[1:3])
    assert values[:, 0].tolist() == [group.rank + 1.0, 6.0, 6.0, group.rank + 1.0]


class Model(torch.nn.Module):
    """Two parameters, of which the second may have no gradient, and statistics."""

    vertex_rows = None

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(2, 3))
        self.second = torch.nn.Parameter(torch.zeros(4))
        self.layers = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(2, affine=False)])
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.tensor(7))

    @property
    def shared_parameters(self) -> list[torch.nn.Parameter]:
        return list(self.parameters())


def check_synchronizer(group: Group, *, own_collective: bool) -> None:
    rank, size = group.rank, group.size
    model: Any = Model()
    names = ("graph", "sampler", "sampling", "seed", "batch_size", "loader")
    unused: dict[str, Any] = dict.fromkeys(names)
    parts = BackendInputs(model=model, objective=lambda rows, batch: rows.sum(), **unused)
    backend = CpuBackend(Cpu(), parts)
    synchronizer = Synchronizer(model, backend, group, own_collective=own_collective)
    # Counts that no float32 holds, and whose sum a single one would round.
    edges = [2**24 + 1 + rank, 2**35 + 12_345 + rank]
    for step in range(3):
        model.zero_grad()
        outcome = None
        if step != 1:  # a device without seeds has no gradients; here, none has any
            model.first.grad = torch.full((2, 3), rank + 1.0)
            outcome = BatchOutcome(
                loss=0.125 * (rank + 1),
                size=BatchSize(vertices=(2**24 + rank,), edges=(edges[step // 2],)),
                traffic=Traffic(rows=Access(link_bytes=2**40 + rank), lists=Access(misses=rank)),
            )
        if rank == 0 and step == 2:
            model.second.grad = torch.ones(4)
        times = StageTimes(sample=rank + 0.5, load=1.0, transfer=0.0, propagate=2.0, sync=0.25)
        counted = StageTimes(load=rank + 0.25) if step == 2 else None
        wants = step == 1 and rank == 0
        result = synchronizer.synchronize(outcome, times, counted, checkpoint=wants)
        assert result.checkpoint == (step == 1)  # of which every device learns
        ranks = range(size)
        works = step != 1
        assert result.loss == works * 0.125 * size * (size + 1) / 2
        assert result.num_edges == works * sum(edges[step // 2] - rank + each for each in ranks)
        assert result.num_vertices == works * sum(2**24 + other for other in ranks)
        assert [each.sample for each in result.stages] == [other + 0.5 for other in ranks]
        assert all(each.sync == 0.25 for each in result.stages)
        # Resource management looks at work that is counted, where it is.
        assert (result.counted is not None) == (step == 2)
        loads = [other + 0.25 if step == 2 else 1.0 for other in ranks]
        assert [each.load for each in result.managed] == loads
        moved = [(each.rows.link_bytes, each.lists.misses) for each in result.traffic]
        assert moved == [(works * (2**40 + other), works * other) for other in ranks]
        expected = works * size * (size + 1) / 2
        assert torch.equal(model.first.grad, torch.full((2, 3), expected))
        assert torch.equal(model.second.grad, torch.full((4,), float(step == 2)))

    check_statistics(rank, model, synchronizer)


def check_statistics(rank: int, model: Model, synchronizer: Synchronizer) -> None:
    """Uneven slices: the third device is idle, and what it has kept counts for nothing."""
    norm = model.norms[0]
    norm.running_mean[:] = torch.tensor([[1.0, 0.0], [5.0, 4.0], [100.0, -100.0]][rank])
    norm.running_var[:] = torch.tensor([[1.0, 2.0], [3.0, 2.0], [50.0, 0.0]][rank])
    model.mean = torch.tensor([[0.0, 0.0, 1.0], [1.0, 2.0, 1.0], [8.0, 8.0, 8.0]][rank])
    for _ in range(2):  # the second time they are the same everywhere
        synchronizer.combine_statistics([{0: 2, 1: 3}, {0: 6, 1: 1}, {}][rank])
        # (2 * 1 + 6 * 5) / 8 and (2 * 0 + 6 * 4) / 8.
        assert norm.running_mean.tolist() == [4.0, 3.0]
        # Within the slices (2 * 1 + 6 * 3) / 8 = 2.5 and 2, between them (2 * 9 + 6 * 1) / 8 = 3.
        assert norm.running_var.tolist() == [5.5, 5.0]
        # What is no layer's has as many rows as the last one: (3 * 0 + 1 * 1) / 4 and so on.
        assert model.mean.tolist() == [0.25, 0.5, 1.0]
    assert model.count.item() == 7


def check_columns(group: Group) -> None:
    rank, size = group.rank, group.size
    links = group.new_group()
    found = torch.zeros(size, 2, 3)
    links.all_gather_into(found, torch.full((2, 3), float(rank)))
    assert found[:, 0, 0].tolist() == list(range(size))
    parts = torch.arange(size * 4.0).view(size, 4) + 100 * rank
    given = torch.zeros_like(parts)
    links.all_to_all_into(given, parts)
    known = [(torch.arange(4.0) + 4 * rank + 100 * peer).tolist() for peer in range(size)]
    assert given.tolist() == known
    assert links.largest([rank, 5, size - rank]) == [size - 1, 5, size]


def check_trades(group: Group) -> None:
    """Rank r gives k rows to rank k, which tell who gives them; rank 0 so gets nothing."""
    apart = group.new_group()
    rank, size = group.rank, group.size
    for _ in range(2):
        given = apart.trade([torch.full((peer, 2), float(rank)) for peer in range(size)])
        assert [each.tolist() for each in given] == [[[peer, peer]] * rank for peer in range(size)]
        # Others may sum meanwhile: these connections are their own.
        values = torch.ones(3)
        group.sum(values)
        assert values.tolist() == [size] * 3


def check_rows(group: Group) -> None:
    """Rank r has gradients r + 1 of vertices 0 and r + 1; the last one had no seeds."""
    rank, size = group.rank, group.size
    rows = LearnedEmbedding(torch.zeros(size + 1, 2), RowWiseAdagrad())
    for _ in range(2):
        if rank < size - 1:
            ids = np.array([rank + 1, 0], np.int32)
            rows.gradient = ids, RowSums.of(torch.full((2, 2), rank + 1.0))
        sum_embedding_gradients(rows, group)
        assert rows.gradient is not None
        vertices, sums = rows.gradient
        assert vertices.tolist() == list(range(size))
        ranks = [each + 1.0 for each in range(size - 1)]
        expected = [[each, each] for each in (sum(ranks), *ranks)]
        assert sums.total(torch.float32, num_threads=1).tolist() == expected
        rows.gradient = None
    sum_embedding_gradients(rows, group)
    assert rows.gradient is not None
    assert len(rows.gradient[0]) == 0
    rows.update(PlainAdam([rows.weight], lr=0.1))
    assert not rows.weight.any()


def check_refusals(group: Group) -> None:
    """All processes raise if one has other values, and nobody if those may differ."""
    values = {"seed": 1, "model": {"hidden": 8, "name": f"of {group.rank}"}, "threads": group.rank}
    check_equal_values(group, values, ignore=("model.name", "threads"))
    machine = socket.gethostname()
    line = (
        f"model.name=of 1 in process 1 on {machine}: expected of 0 as in process 0 on {machine}; "
        "start all processes of torchrun with the same values"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        check_equal_values(group, values, ignore=("threads",))


def run(rank: int, size: int, meeting: Path) -> None:
    with join(rank, size, meeting, backend="gloo") as group:
        assert group.sums is not None
        check_exchanges(group)
        check_exchanges(replace(group, sums=None))  # as on several machines
        check_sums(group)
        check_synchronizer(group, own_collective=False)
        check_synchronizer(group, own_collective=True)
        check_trades(group)
        check_columns(group)
        check_rows(group)
        check_refusals(group)
