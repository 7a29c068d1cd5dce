"""An exchange of feature rows that are divided among machines, by all processes at once.

It is three collectives: how many rows each process wants of each other one, which, and the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.artifact.divided import DividedRows
from gnnscale.core import Array, IntArray
from gnnscale.runtime.sync.group import Group

#: In place of a number of rows: rank 0 reads no more.
NO_MORE = -1


def owners_of(parts: Sequence[int], rank: int) -> IntArray:
    """Return ``[num_parts]``, the rank of which ``rank`` gets the rows of each part.

    It is that of the same number on the machine that has the part, if that has so many processes.

    Args:
        parts: the part whose rows each rank has. Processes of one part are those of one machine;
            their numbers rise with their ranks.
    """
    of_part: dict[int, list[int]] = {}
    for each, part in enumerate(parts):
        of_part.setdefault(part, []).append(each)
    number = of_part[parts[rank]].index(rank)
    return np.array([ranks[number % len(ranks)] for _, ranks in sorted(of_part.items())])


@dataclass(frozen=True, kw_only=True)
class WantedRows:
    """Rows that this process wants of the others."""

    vertices: torch.Tensor  #: ``[n]`` in the order of the ranks that have them
    counts: torch.Tensor  #: ``[size]`` int32, how many of each rank
    order: IntArray  #: ``[n]`` the position of each in what was asked for


@dataclass(frozen=True, kw_only=True)
class ArrivingRows:
    """Rows on their way to this process."""

    rows: torch.Tensor  #: ``[n, row_bytes]`` uint8, in the order of the ranks that have them
    sent: torch.Tensor  #: ``[m, row_bytes]`` uint8, kept until they have left
    work: Any  #: that of torch which brings both about


class RowExchange:
    """Exchanges over connections that nothing else uses, one after the other."""

    def __init__(
        self, group: Group, rows_group: Group, divided: DividedRows, places: IntArray
    ) -> None:
        """Exchange the rows of ``divided``.

        Args:
            group: all processes; over these connections they say what they want.
            rows_group: the same; over these connections rows go.
            places: ``[num_vertices]`` the row of each vertex, -1 for those of other machines.
        """
        self._group, self._rows_group = group, rows_group
        self._divided, self._places = divided, places
        self._row_bytes = int(divided.rows.shape[1]) * divided.itemsize

    def begin(self, wanted: WantedRows) -> ArrivingRows | None:
        """Say what is wanted, and begin to send what others want.

        Returns:
            None if rank 0 reads no more.

        Raises:
            RuntimeError: another process is gone.
            ValueError: it wants what this process has not.
        """
        asked = torch.empty_like(wanted.counts)
        self._group.start_swapping(asked, wanted.counts).wait()
        if int(asked.min()) == NO_MORE:
            return None
        counts, others = wanted.counts.tolist(), asked.tolist()
        if sum(others) > len(self._divided) * len(others) or min(others) < 0:
            raise ValueError(f"another process asks for {max(others)} rows")
        vertices = torch.empty(sum(others), dtype=wanted.vertices.dtype)
        self._group.start_swapping(vertices, wanted.vertices, (others, counts)).wait()
        sent = self._rows_of(vertices.numpy())
        rows = torch.empty(sum(counts), self._row_bytes, dtype=torch.uint8)
        work = self._rows_group.start_swapping(rows, sent, (counts, others))
        return ArrivingRows(rows=rows, sent=sent, work=work)

    def _rows_of(self, vertices: Array) -> torch.Tensor:
        """Return ``[n, row_bytes]`` uint8, the rows of ``vertices``, which this machine has."""
        outside = (vertices < 0) | (vertices >= len(self._divided))
        places = self._places[np.where(outside, 0, vertices)]
        outside |= places < 0
        if outside.any():
            vertex = int(vertices[outside.argmax()])
            part = self._divided.part
            raise ValueError(f"another process asks for vertex {vertex}, which part {part} has not")
        found = torch.empty(len(vertices), self._row_bytes, dtype=torch.uint8)
        copy_rows(self._divided.rows, places, found.numpy(), np.arange(len(places)))
        return found


def copy_rows(rows: Array, places: IntArray, target: Array, slots: IntArray) -> None:
    """Copy row ``places[i]`` of ``rows`` to row ``slots[i]`` of ``target``, byte by byte.

    Python's lock is free meanwhile.
    """
    if not len(places):
        return
    source, into = (
        (each.view(np.uint8).reshape(len(each), -1), "uint8") for each in (rows, target)
    )
    ops.copy_rows(source, places, into, slots, num_threads=1)
