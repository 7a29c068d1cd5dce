"""Gradients of learned rows, of which each device has those that its mini-batch reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gnnscale.artifact.graph_store import vertex_dtype
from gnnscale.core import Array
from gnnscale.model.vertex_rows import VertexRows
from gnnscale.optimizer.rows import RowSums
from gnnscale.runtime.sync.group import Group


def share_row_gradients(rows: VertexRows, group: Group) -> None:
    """Give ``rows`` the gradients of all devices; every process calls this once a step.

    Each sends its vertices and their gradients, ``[n, dim]`` float32, to all others. Processes that
    update by them keep equal tables, bit for bit: sums are in the order of ranks.

    Args:
        rows: learned rows, with the gradient of this device, or none if it had no seeds.
    """
    dtype = vertex_dtype(len(rows.weight))
    if rows.gradient is None:
        ids = np.empty(0, dtype)
        gradients = rows.weight.new_empty(0, rows.weight.shape[1])
    else:
        ids, sums = rows.gradient
        gradients = sums.total(torch.float32, num_threads=torch.get_num_threads())
    mine = torch.from_numpy(np.ascontiguousarray(ids, dtype)), gradients
    rows.gradient = sums_of_equal(*_gathered(mine, group))


def sums_of_equal(vertices: Tensor, gradients: Tensor) -> tuple[Array, RowSums]:
    """Return the distinct ones of ``vertices``, ascending, and the sums of their gradients.

    Args:
        vertices: ``[n]`` ids.
        gradients: ``[n, dim]`` float32; those of a vertex are summed in this order.
    """
    ids = vertices.numpy()
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    is_first = np.ones(len(ids), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(is_first)
    sums = RowSums(
        rows=gradients,
        indptr=np.append(first, len(ids)),
        indices=order.astype(np.int32),
        self_rows=gradients,
        num_self=0,
    )
    return ordered[first], sums


def _gathered(parts: Sequence[Tensor], group: Group) -> list[Tensor]:
    """Return the rows of all processes, in the order of ranks, for each of ``parts``.

    Args:
        parts: have the same number of rows, which may differ between processes.
    """
    counts = torch.empty(group.size, 1, dtype=torch.int64)
    group.gather_into(counts, torch.tensor([len(parts[0])]))
    lengths = counts.flatten().tolist()
    whole = [part.new_empty(sum(lengths), *part.shape[1:]) for part in parts]
    works = []
    for part, every in zip(parts, whole, strict=True):
        slices = torch.split(every, lengths)
        slices[group.rank].copy_(part)
        for peer in (rank for rank in range(group.size) if rank != group.rank):
            if lengths[peer]:
                works.append(group.start_receiving(slices[peer], peer))
            if len(part):
                works.append(group.start_sending(part, peer))
    group.finish(works)
    return whole
