"""Custom layers: scatter, gather and update (HitGNN, section IV-C, Table II)."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gnnscale.core import ConfigError, Int32Array, shown
from gnnscale.nn import functional, options
from gnnscale.nn.conv.linear import Degrees, GraphLayer, say_unweighted
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock, MessageSums
from gnnscale.nn.segment_ops import REDUCTIONS, Segments, cut_block, message_sums, take
from gnnscale.sampling import Block

#: Edges whose messages are held at once when no gradient needs them.
_SLICE_EDGES = 1 << 16


class ScatterGatherUpdate(nn.Module):
    """What a layer computes, in three functions of a user's. All rows are float32.

    A subclass is called with the widths of a layer, ``(num_in, num_out)``, and has:

    - ``scatter(source)`` or ``scatter(source, destination)``: the messages ``[n, ...]`` along n
      edges, from the rows ``[n, num_in]`` at their ends. If the source alone decides, the
      message of a vertex is made once, however many edges carry it.
    - ``gather``: one of ``REDUCTIONS``; or a method ``gather(messages, segments)`` that makes a row
      for each destination of the messages ``[num_edges, ...]``, which ``Segments`` divides.
    - ``update(own, gathered)``: the new rows ``[num_dst, num_out]``, from the destinations' own
      rows ``[num_dst, num_in]`` and what they gathered.

    A row must depend neither on the others of a call, since the split of the mini-batch among
    devices says which come together, nor on torch's random numbers. ReLU and dropout between layers
    are the model's.

    An FPGA computes ``kernel_header``, the path of a C++ header with the same functions; see
    ``docs/fpga.md``.
    """

    kernel_header: ClassVar[str | Path | None] = None
    scatter: Callable[..., torch.Tensor]
    gather: str | Callable[..., torch.Tensor]
    update: Callable[..., torch.Tensor]


class CustomLayer(GraphLayer):
    """A layer that computes a ``ScatterGatherUpdate``."""

    uses_edge_weights: bool = False

    def __init__(self, functions: ScatterGatherUpdate, num_in: int, num_out: int) -> None:
        """Build the layer around ``functions``, from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.functions = functions
        self.width_in, self.width_out = num_in, num_out
        #: Whether a message is made of the rows at both ends of its edge.
        self.scatters_per_edge = _num_parameters(functions.scatter) == 2
        # What a sampled sum is multiplied with depends on degrees, and a method may sum.
        self.uses_degrees = functions.gather not in ("mean", "max")

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: functional.Activation | None
    ) -> torch.Tensor:
        """Return ``h``, activated."""
        return h if act is None else functional.relu_dropout(h, act)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Scatter, gather and update.

        Raises:
            ConfigError: a function of the user's returns rows of another shape.
        """
        if block.edge_weights is not None:
            say_unweighted(type(self.functions).__name__)
        rows = x.float()
        # Made once for all slices.
        messages = None if self.scatters_per_edge else self.functions.scatter(rows)
        whole = torch.is_grad_enabled() or isinstance(block, DeviceBlock)
        size = block.num_edges if whole else _SLICE_EDGES
        parts = [
            self._gather(rows, messages, part, first, degrees)
            for first, part in cut_block(block, size)
        ]
        gathered = torch.cat(parts) if len(parts) > 1 else parts[0]
        out = self.functions.update(rows[: block.num_dst], gathered)
        if out.shape != (block.num_dst, self.width_out):
            raise ConfigError(
                f"{type(self.functions).__name__}.update: returns {list(out.shape)}, must be "
                f"[destinations, num_out] = [{block.num_dst}, {self.width_out}]"
            )
        # The activation overwrites these rows, which may be needed for gradients of the user's.
        return out.to(x.dtype, memory_format=torch.contiguous_format, copy=True)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the products that each function multiplies with, by trying them on one edge."""
        edge = Block(indptr=np.array([0, 1]), indices=np.zeros(1, np.int32), num_src=1)
        row, functions = torch.zeros(1, width_in), self.functions
        was_training = self.training
        self.eval()
        with torch.no_grad():
            with _products(functions) as scattering:
                message = functions.scatter(*[row] * (2 if self.scatters_per_edge else 1))
            with _products(functions) as updating:
                functions.update(row, self._reduce(message, Segments(edge, None)))
        self.train(was_training)
        return LayerCost(
            width_in=width_in,
            width_out=width_out,
            products=tuple(updating),
            message_width=message.numel(),
            message_products=tuple(scattering),
            messages_per_edge=self.scatters_per_edge,
        )

    def _gather(
        self,
        rows: torch.Tensor,
        messages: torch.Tensor | None,
        block: Block,
        first: int,
        degrees: Degrees,
    ) -> torch.Tensor:
        """Gather at the destinations of ``block``, whose first is row ``first``."""
        if messages is None:
            own = _destinations(block, first)
            on_edges = self.functions.scatter(take(rows, _sources(block)), take(rows, own))
        else:
            on_edges = take(messages, _sources(block))
        sums = message_sums(block, None if degrees is None else degrees[first:])
        return self._reduce(on_edges, sums)

    def _reduce(self, messages: torch.Tensor, segments: MessageSums) -> torch.Tensor:
        gather = self.functions.gather
        if isinstance(gather, str):
            reduced: torch.Tensor = getattr(segments, gather)(messages)
            return reduced
        gathered = gather(messages, segments)
        if len(gathered) != segments.num_dst:
            raise ConfigError(
                f"{type(self.functions).__name__}.gather: returns {len(gathered)} rows, must be "
                f"one for each of {segments.num_dst} destinations"
            )
        return gathered


@dataclass(frozen=True, kw_only=True)
class Custom(options.LayeredModel):
    """A model of custom layers.

    Attributes:
        functions: the class of its layers. Workers import it by name.
    """

    only_in_programs: ClassVar[bool] = True

    functions: type[ScatterGatherUpdate]

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.functions
        if not (isinstance(given, type) and issubclass(given, ScatterGatherUpdate)):
            raise ConfigError(f"{shown(given)}: no subclass of ScatterGatherUpdate")
        for each in ("scatter", "gather", "update"):
            if not hasattr(given, each):
                raise ConfigError(f"{given.__name__}.{each}: required, and not there")
        if not callable(given.gather) and given.gather not in REDUCTIONS:
            raise ConfigError(
                f"{given.__name__}.gather={shown(given.gather)}: allowed are "
                f"{', '.join(REDUCTIONS)}, or a method"
            )
        for each, counts in (("scatter", (1, 2)), ("update", (2,))):
            if _num_parameters(getattr(given, each)) - 1 not in counts:
                rows = "source, or source and destination" if each == "scatter" else "own, gathered"
                raise ConfigError(f"{given.__name__}.{each}: its arguments must be {rows}")

    @property
    def name(self) -> str:
        """What reports call the architecture."""
        return self.functions.__name__

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        return CustomLayer(self.functions(num_in, num_out), num_in, num_out)


def _sources(block: Block) -> Int32Array:
    """Return the source of each edge."""
    return block.sources() if isinstance(block, DeviceBlock) else block.indices  # type: ignore[return-value]


def _destinations(block: Block, first: int) -> Int32Array:
    """Return the destination of each edge, of which that of the first list is ``first``."""
    if isinstance(block, DeviceBlock):
        return block.destinations()  # type: ignore[return-value]
    own = np.arange(first, first + block.num_dst, dtype=np.int32)
    return np.repeat(own, np.diff(block.indptr))


def _num_parameters(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


@contextmanager
def _products(module: nn.Module) -> Iterator[list[tuple[int, int]]]:
    """Note the matrices of ``module`` that rows are multiplied with in here."""
    found: list[tuple[int, int]] = []

    def note(linear: nn.Linear, *_: Any) -> None:
        found.append((linear.in_features, linear.out_features))

    linears = [each for each in module.modules() if isinstance(each, nn.Linear)]
    hooks = [each.register_forward_hook(note) for each in linears]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
