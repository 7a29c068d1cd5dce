"""A model whose first layer is split by columns of the features (P3, Gandhi and Iyer, OSDI 2021).

Device r has columns C_r of the features and of W¹. Of every device's mini-batch it multiplies its
columns with its weights. The owner of a mini-batch adds the partial products of all devices, and
sends them the gradient of the sum, from which each has the gradient of its weights (section 3.2,
push-pull parallelism). All other layers are trained data-parallel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from gnnscale.distributed.process_group import Group
from gnnscale.features import Aggregation
from gnnscale.nn import GNN, Inputs
from gnnscale.nn.conv.linear import Degrees, LinearAggregationLayer
from gnnscale.nn.cost import LayerCost
from gnnscale.sampling import Block

#: Partial products and their gradients are float32, in whatever type they are computed.
PARTIAL_BYTES = 4


class PartialSumExchange(Protocol):
    """Trades partial products and their gradients."""

    def sum_of_mine(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return the sum over all devices of their products for this device's mini-batch."""
        ...

    def gradients_of_all(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the gradients of all devices' sums; ``mine`` is ``[num_dst, f^1]`` float32."""
        ...

    def take_waited_s(self) -> float:
        """Return the seconds of waiting for other devices since the last call."""
        ...


class HostPartialSumExchange:
    """Trades partial products and their gradients, in the thread that trains.

    Sending overlaps with computing: what is done for one device is under way while that for the
    next is computed.
    """

    def __init__(self, group: Group) -> None:
        """Trade over ``group``, whose connections nothing else uses."""
        self.group = group
        self._waited_s = 0.0

    def __deepcopy__(self, memo: object) -> HostPartialSumExchange:
        """A copy of the model trades over the same connections, or by something else."""
        return self

    def take_waited_s(self) -> float:
        """Return the seconds of waiting for other devices since the last call."""
        seconds, self._waited_s = self._waited_s, 0.0
        return seconds

    def sum_of_mine(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return the sum over all devices of their products for this device's mini-batch.

        Args:
            parts: aggregated rows of each device's mini-batch over this device's columns.
            multiply: returns the product of such rows, ``[num_dst, f^1]`` float32.
        """
        group, rank = self.group, self.group.rank
        sent = []
        for peer in (each for each in self._peers() if len(parts[each])):
            product = multiply(parts[peer])
            sent.append((product, group.start_sending(product, peer)))
        mine = multiply(parts[rank])
        found = [mine if peer == rank else torch.empty_like(mine) for peer in range(group.size)]
        givers = self._peers() if len(mine) else []
        self._wait([group.start_receiving(found[peer], peer) for peer in givers])
        # In the order of ranks, so that it does not matter who comes first.
        total = found[0].clone()
        for each in found[1:]:
            total += each
        self._wait([work for _, work in sent])
        return total

    def gradients_of_all(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the gradients of all devices' sums; ``mine`` is ``[num_dst, f^1]`` float32."""
        group, rank = self.group, self.group.rank
        found = [
            mine if peer == rank else mine.new_empty(count, mine.shape[1])
            for peer, count in enumerate(rows)
        ]
        sent = [group.start_sending(mine, peer) for peer in self._peers() if len(mine)]
        givers = [peer for peer in self._peers() if rows[peer]]
        self._wait([group.start_receiving(found[peer], peer) for peer in givers])
        self._wait(sent)
        return found

    def _peers(self) -> list[int]:
        """The other ranks, the next one first: not all send to the same one at once."""
        size = self.group.size
        return [(self.group.rank + step) % size for step in range(1, size)]

    def _wait(self, works: Sequence[Any]) -> None:
        start = time.perf_counter()
        self.group.finish(works)
        self._waited_s += time.perf_counter() - start


class _SplitProduct(torch.autograd.Function):
    """The product of aggregated rows with weights that are spread over devices by columns."""

    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, parts: tuple[torch.Tensor, ...], trade: PartialSumExchange
    ) -> torch.Tensor:
        ctx.parts, ctx.trade = parts, trade
        columns = weight.to(parts[0].dtype).t()
        return trade.sum_of_mine(parts, lambda part: (part @ columns).float().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts: tuple[torch.Tensor, ...] = ctx.parts
        every = ctx.trade.gradients_of_all(grads[0].contiguous(), [len(part) for part in parts])
        total = every[0].new_zeros(every[0].shape[1], parts[0].shape[1])
        for grad, part in zip(every, parts, strict=True):
            total += (grad.to(part.dtype).t() @ part).float()
        return total, None, None


class SplitLayer(LinearAggregationLayer):
    """The first layer of a model, with the weights of this device's columns alone."""

    def __init__(self, layer: LinearAggregationLayer, columns: tuple[int, int], width: int) -> None:
        """Take ``columns`` of the features, ``(first, last + 1)``, out of ``layer``."""
        super().__init__()
        whole = layer.linear
        assert isinstance(whole, nn.Linear)
        weight = column_slice(whole.weight.detach(), columns, width)
        #: its weight is ``[f^1, columns]``; its bias is the whole layer's, which all devices have
        self.linear: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Linear, weight.shape[1], weight.shape[0]
        )
        self.linear.weight = nn.Parameter(weight)
        self.linear.bias = whole.bias
        self.uses_degrees = layer.uses_degrees
        # In a tuple: a layer that is an attribute would be a part of this one.
        self._whole = (layer,)
        self.rule = layer.rule  # type: ignore[misc]

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the whole layer's coefficients, which do not depend on columns."""
        return self._whole[0].aggregation(block, degrees)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the whole layer's: a part of the work for all mini-batches is as much."""
        return self._whole[0].cost(width_in, width_out)


class SplitGNN(GNN):
    """A model of which this device has some columns of the first layer's weights.

    All other parameters are those of the whole model, and not copies.
    """

    def __init__(self, whole: GNN, columns: tuple[int, int], trade: PartialSumExchange) -> None:
        """Split ``whole``: this device has ``columns`` of the features, ``(first, last + 1)``."""
        first = whole.layer(0)
        assert isinstance(first, LinearAggregationLayer)
        split = SplitLayer(first, columns, whole.widths[0])
        others = [whole.layer(index) for index in range(1, len(whole.layers))]
        norms = list(whole.norms)
        super().__init__([split, *others], norms, whole.dropout, whole.widths, **whole.shared_parts)
        self._split = (split,)
        self._trade = trade

    @property
    def own_weight(self) -> nn.Parameter:
        """W¹ of this device's columns, ``[f^1, columns]``."""
        weight = self._split[0].linear.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def trade_by(self, trade: PartialSumExchange) -> None:
        """Trade by something else: a device trades what is in its memory."""
        self._trade = trade

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """All parameters but W¹, of which every device has its columns."""
        return [each for each in self.parameters() if each is not self.own_weight]

    def take_waited_s(self) -> float:
        """Return the seconds since the last call in which propagation waited for other devices."""
        return self._trade.take_waited_s()

    def first(self, block: Block, inputs: Inputs) -> torch.Tensor:
        """Return the first layer's output rows ``[num_dst, f^1]`` of this device's mini-batch."""
        assert inputs.parts is not None
        summed: torch.Tensor = _SplitProduct.apply(  # type: ignore[no-untyped-call]
            self.own_weight, inputs.parts, self._trade
        )
        # Devices have room for more rows, which are traded with those that there are.
        summed = summed[: block.num_dst]
        bias = self._split[0].linear.bias
        return (summed if bias is None else summed + bias).to(inputs.x.dtype)


def column_slice(weight: torch.Tensor, columns: tuple[int, int], width: int) -> torch.Tensor:
    """Return the columns of W¹ that belong to columns of the features.

    Args:
        weight: ``[f^1, n · width]``; GraphSAGE reads a vertex's own row beside the aggregated one,
            and has n = 2.
        columns: ``(first, last + 1)`` of the features.

    Returns:
        ``[f^1, n · (last + 1 - first)]``, a copy.
    """
    first, end = columns
    groups = weight.reshape(len(weight), -1, width)
    return groups[:, :, first:end].reshape(len(weight), -1).clone()
