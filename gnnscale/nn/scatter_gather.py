"""Custom layers by scatter, gather and update functions (HitGNN, section IV-C, Table II)."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale.core import ConfigError, Int32Array, brief
from gnnscale.nn import options
from gnnscale.nn.conv.linear import Degrees, GraphLayer, warn_unweighted
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock, MessageSums
from gnnscale.nn.segment_ops import REDUCTIONS, Segments, cut_block, message_sums, take
from gnnscale.sampling import Block

#: Edges whose messages are in memory at a time when no gradient needs them.
_SLICE_EDGES = 1 << 16


class ScatterGatherUpdate(nn.Module):
    """Base of a user's layer, defined by three functions of float32 rows.

    A subclass is constructed with the widths of a layer, ``(num_in, num_out)``, and has:

    - ``scatter(source)`` or ``scatter(source, destination)``: the messages ``[n, ...]`` along n
      edges, from the rows ``[n, num_in]`` at their ends. With ``source`` only, a vertex's message
      is computed once for all its edges.
    - ``gather``: one of ``REDUCTIONS``; or a method ``gather(messages, segments)`` that returns a
      row for each destination. ``Segments`` reduces the messages ``[num_edges, ...]``.
    - ``update(own, gathered)``: the output rows ``[num_dst, num_out]``, from the destinations'
      input rows ``[num_dst, num_in]`` and the rows that ``gather`` returned.

    Each row must be computed independently of other rows and of torch's random numbers, because the
    split of the mini-batch among devices decides which rows a call gets. The model applies ReLU and
    dropout between layers.

    An FPGA computes the functions of ``kernel_header``, the path of a C++ header; see
    ``docs/fpga.md``.
    """

    kernel_header: ClassVar[str | Path | None] = None
    scatter: Callable[..., Tensor]
    gather: str | Callable[..., Tensor]
    update: Callable[..., Tensor]


class CustomLayer(GraphLayer):
    """A layer that computes a ``ScatterGatherUpdate``."""

    uses_edge_weights: bool = False

    def __init__(self, functions: ScatterGatherUpdate, num_in: int, num_out: int) -> None:
        """Build a layer of ``functions`` from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.functions = functions
        self.width_in, self.width_out = num_in, num_out
        #: Whether a message is computed from the rows at both ends of its edge.
        self.scatters_per_edge = _num_parameters(functions.scatter) == 2
        # Sampled sums are scaled by degrees, and a gather method may sum.
        self.uses_degrees = functions.gather not in ("mean", "max")

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the destinations' output rows from source rows ``x``.

        ConfigError: a user's function returns a wrong shape.
        """
        if block.edge_weights is not None:
            warn_unweighted(type(self.functions).__name__)
        rows = x.float()
        messages = None if self.scatters_per_edge else self.functions.scatter(rows)
        uncut = torch.is_grad_enabled() or isinstance(block, DeviceBlock)
        size = block.num_edges if uncut else _SLICE_EDGES
        parts = [
            self._gather(rows, messages, part, first, degrees)
            for first, part in cut_block(block, size)
        ]
        gathered = torch.cat(parts) if len(parts) > 1 else parts[0]
        out = self.functions.update(rows[: block.num_dst], gathered)
        if out.shape != (block.num_dst, self.width_out):
            raise ConfigError(
                f"{type(self.functions).__name__}.update: expected [destinations, num_out] = "
                f"[{block.num_dst}, {self.width_out}], got {list(out.shape)}"
            )
        # A copy: the activation overwrites it, and the user's gradients may need the result.
        return out.to(x.dtype, memory_format=torch.contiguous_format, copy=True)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost by the ``nn.Linear`` calls of its functions for a single edge."""
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
        self, rows: Tensor, messages: Tensor | None, block: Block, first: int, degrees: Degrees
    ) -> Tensor:
        """Return the gathered row of each destination of ``block``, a part of the layer's block.

        ``rows`` are all input rows, the part's destinations from ``first`` on. ``messages`` has one
        for each source; None: ``scatter`` computes them here, for each edge.
        """
        if messages is None:
            dst = _destinations(block, first)
            on_edges = self.functions.scatter(take(rows, _sources(block)), take(rows, dst))
        else:
            on_edges = take(messages, _sources(block))
        sums = message_sums(block, None if degrees is None else degrees[first:])
        return self._reduce(on_edges, sums)

    def _reduce(self, messages: Tensor, segments: MessageSums) -> Tensor:
        gather = self.functions.gather
        if isinstance(gather, str):
            reduced: Tensor = getattr(segments, gather)(messages)
            return reduced
        gathered = gather(messages, segments)
        if len(gathered) != segments.num_dst:
            raise ConfigError(
                f"{type(self.functions).__name__}.gather: expected a row for each of "
                f"{segments.num_dst} destinations, got {len(gathered)} rows"
            )
        return gathered


@dataclass(frozen=True, kw_only=True)
class Custom(options.LayeredModel):
    """A model of custom layers.

    Attributes:
        functions: the class of its layers. Worker processes import it by name.
    """

    only_in_programs: ClassVar[bool] = True

    functions: type[ScatterGatherUpdate]

    def __post_init__(self) -> None:
        super().__post_init__()
        functions = self.functions
        if not (isinstance(functions, type) and issubclass(functions, ScatterGatherUpdate)):
            raise ConfigError(f"{brief(functions)}: expected a subclass of ScatterGatherUpdate")
        for method in ("scatter", "gather", "update"):
            if not hasattr(functions, method):
                raise ConfigError(f"{functions.__name__}.{method}: required")
        if not callable(functions.gather) and functions.gather not in REDUCTIONS:
            raise ConfigError(
                f"{functions.__name__}.gather={brief(functions.gather)}: expected one of "
                f"{', '.join(REDUCTIONS)}, or a method"
            )
        for method, counts, arguments in (
            ("scatter", (1, 2), "source, or source and destination"),
            ("update", (2,), "own, gathered"),
        ):
            if _num_parameters(getattr(functions, method)) - 1 not in counts:
                raise ConfigError(f"{functions.__name__}.{method}: expected arguments {arguments}")

    @property
    def name(self) -> str:
        """Name of the layer's class, as reports show it."""
        return self.functions.__name__

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a layer of ``functions`` from ``num_in`` to ``num_out`` features."""
        return CustomLayer(self.functions(num_in, num_out), num_in, num_out)


def _sources(block: Block) -> Int32Array:
    """Return each edge's source, a row number among the block's sources: ``[num_edges]`` int32."""
    return block.sources() if isinstance(block, DeviceBlock) else block.indices  # type: ignore[return-value]


def _destinations(block: Block, first: int) -> Int32Array:
    """Return the row number of each edge's destination, ``[num_edges]``.

    The block's first destination has row ``first`` or, in a block on a device, row 0.
    """
    if isinstance(block, DeviceBlock):
        return block.destinations()  # type: ignore[return-value]
    dst = np.arange(first, first + block.num_dst, dtype=np.int32)
    return np.repeat(dst, np.diff(block.indptr))


def _num_parameters(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


@contextmanager
def _products(module: nn.Module) -> Iterator[list[tuple[int, int]]]:
    """Record ``(inputs, outputs)`` of ``module``'s calls of ``nn.Linear`` within a ``with`` block.

    The list that is yielded gets the pairs.
    """
    products: list[tuple[int, int]] = []

    def record(linear: nn.Linear, *_: Any) -> None:
        products.append((linear.in_features, linear.out_features))

    linears = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(record) for layer in linears]
    try:
        yield products
    finally:
        for hook in hooks:
            hook.remove()
