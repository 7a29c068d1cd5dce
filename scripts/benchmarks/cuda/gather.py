"""The card's ceilings, and rows gathered over the link and in device memory."""

import importlib.util
from typing import Any

import numpy as np
import torch

from benchmarks.cuda.bench import Bench
from gnnscale import ops
from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.nn.device_block import Rule

#: Bytes that widths are off by (PyTorch-Direct, figure 8).
_OFF = tuple(range(4, 29, 4))
#: Edges of a destination whose rows are averaged.
_NEIGHBORS = 10


def run(bench: Bench) -> None:
    ceilings(bench)
    over_the_link(bench)
    off_widths(bench)
    mean_in_device_memory(bench)


def ceilings(bench: Bench) -> None:
    device = bench.engine.device
    elements = 1 << (14 if bench.on_host else 27)
    pinned = bench.engine.pinned(elements, torch.float32)
    there, other = (torch.zeros(elements, device=device) for _ in range(2))
    num_bytes = 4 * elements
    seconds = bench.seconds(lambda: there.copy_(pinned, non_blocking=True))
    bench.note("ceiling.pinned_copy", num_bytes / seconds, "B/s")
    seconds = bench.seconds(lambda: other.copy_(there))
    bench.note("ceiling.device_copy", 2 * num_bytes / seconds, "B/s")
    side = 64 if bench.on_host else 8192
    left, right = (torch.rand(side, side, device=device) for _ in range(2))
    allowed = torch.backends.cuda.matmul.allow_tf32
    for name, tf32 in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        seconds = bench.seconds(lambda: left @ right, rounds=3)
        bench.note(f"ceiling.{name}", side**3 / seconds, "MAC/s")
    torch.backends.cuda.matmul.allow_tf32 = allowed


def _gather(bench: Bench, width: int, *, shifts: bool = True, limit: int | None = None) -> Any:
    """Return a gather of random rows in registered host memory, its bytes, and what it needs."""
    sizes = bench.sizes
    rows = np.random.default_rng(width).standard_normal((sizes.rows, width), np.float32)
    table = bench.engine.reached(rows, torch.float32)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, sizes.rows, (sizes.ids,), generator=generator).to(bench.engine.device)
    count = torch.tensor([sizes.ids], device=bench.engine.device)
    how: Any = {"max_ids": sizes.ids, "shifts": shifts, "max_multiprocessors": limit}
    made = RowGather(table, bench.engine.kernels, **how)
    return lambda: made.gather(ids, count), 4 * width * sizes.ids, rows, ids


def over_the_link(bench: Bench) -> None:
    width = bench.sizes.features
    gather, num_bytes, rows, ids = _gather(bench, width)
    seconds = bench.seconds(gather)
    copied = bench.value("ceiling.pinned_copy")
    assert copied is not None
    bench.note("gather.link", num_bytes / seconds, "B/s")
    bench.note("gather.of_pinned_copy", num_bytes / seconds / copied)
    out = bench.engine.pinned(num_bytes // 4, torch.float32).view(-1, width)
    there, host_ids = torch.empty_like(out, device=bench.engine.device), ids.cpu().numpy()

    def on_cpu() -> None:
        ops.gather((rows, "float32"), host_ids, out=out, num_threads=bench.cores)
        there.copy_(out, non_blocking=True)

    bench.note("gather.of_cpu_and_copy", bench.seconds(on_cpu) / seconds)
    for part in (4, 16, 64):
        limited, *_ = _gather(bench, width, limit=part)
        bench.note(f"gather.multiprocessors_{part}", num_bytes / bench.seconds(limited) / copied)
    if importlib.util.find_spec("pylibwholegraph") is None or bench.on_host:
        bench.missing("gather.of_wholegraph", "pylibwholegraph is not installed")
    else:
        _beside_wholegraph(bench, rows, ids, seconds)


def _beside_wholegraph(bench: Bench, rows: Any, ids: torch.Tensor, seconds: float) -> None:
    """Gather the same rows of a WholeGraph tensor in host memory."""
    import pylibwholegraph.torch as wholegraph

    wholegraph.init(0, 1, 0, 1)
    group = wholegraph.get_global_communicator()
    place = (group, "continuous", "cpu", list(rows.shape), torch.float32, None)
    kept = wholegraph.create_wholememory_tensor(*place)
    local, _ = kept.get_local_tensor(host_view=True)
    local.copy_(torch.from_numpy(rows))
    wide = ids.long()
    bench.note("gather.of_wholegraph", bench.seconds(lambda: kept.gather(wide)) / seconds)


def off_widths(bench: Bench) -> None:
    """Rows whose bytes are no multiple of 128, of the rate of those that are one."""
    base = 32 if bench.on_host else 512  # floats: rows of 2,048 bytes
    gather, num_bytes, *_ = _gather(bench, base)
    aligned = num_bytes / bench.seconds(gather)
    for shifts in (True, False):
        rates = []
        for off in _OFF:
            gather, num_bytes, *_ = _gather(bench, base + off // 4, shifts=shifts)
            rates.append(num_bytes / bench.seconds(gather) / aligned)
        bench.note("gather.of_aligned" if shifts else "gather.unshifted_of_aligned", min(rates))


def mean_in_device_memory(bench: Bench) -> None:
    """Fused gather-mean, by the bytes of rows that it reads and writes."""
    sizes, device = bench.sizes, bench.engine.device
    num_dst = sizes.ids // _NEIGHBORS
    num_edges = num_dst * _NEIGHBORS
    generator = torch.Generator().manual_seed(2)
    table = torch.rand(sizes.rows, sizes.features, generator=generator).to(device)
    vertices = torch.randperm(sizes.rows, generator=generator)[: num_dst + num_edges]
    num_src = len(vertices)
    indices = torch.randint(0, num_src, (num_edges,), generator=generator, dtype=torch.int32)
    block = CudaBlock(
        indptr=torch.arange(0, num_edges + 1, _NEIGHBORS, device=device),
        indices=indices.to(device),
        num_src=num_src,
        kernels=bench.engine.kernels,
        vertices=vertices.to(device),
        num_vertices=torch.tensor([num_dst, num_src], device=device),
        num_used=torch.tensor([num_edges], device=device),
        step=torch.zeros(1, dtype=torch.int64, device=device),
    )
    seconds = bench.seconds(lambda: aggregation.load_aggregated(block, table, Rule.MEAN, None))
    moved = (num_edges + num_dst + 2 * num_dst) * 4 * sizes.features
    copied = bench.value("ceiling.device_copy")
    assert copied is not None
    bench.note("gather.mean", moved / seconds, "B/s")
    bench.note("gather.mean_of_copy", moved / seconds / copied)
