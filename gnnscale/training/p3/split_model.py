"""Model whose first layer is split by feature columns (P3, Gandhi and Iyer, OSDI 2021).

Device r has the columns C_r of the features and of W¹, and multiplies them for every device's
mini-batch. The device that owns a mini-batch adds the partial products, and sends the gradient of
the sum to all devices, which compute the gradients of their weights (section 3.2, push-pull
parallelism). All other layers are trained data-parallel.
"""

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

#: Bytes of an element: partial products and their gradients are float32 in every compute type.
PARTIAL_BYTES = 4


class PartialSumExchange(Protocol):
    """Exchange of partial products and of their gradients between devices."""

    def reduce_products(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return the sum over all devices of the products for this device's mini-batch.

        ``parts[r]`` has the rows of rank r's mini-batch, aggregated over this device's columns;
        ``multiply`` returns its product with W¹, ``[num_dst, f^1]`` float32, which rank r receives.
        """

    def all_gather_gradients(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the gradients of all devices' sums, by rank r: ``[rows[r], f^1]`` each.

        ``mine`` is the ``[num_dst, f^1]`` float32 gradient of this device's sum.
        """

    def pop_waited_s(self) -> float:
        """Return the seconds of waiting for other devices since the last call."""


class HostPartialSumExchange:
    """Exchange in host memory, by the training thread; sending overlaps with multiplying."""

    def __init__(self, group: Group) -> None:
        """Exchange over ``group``, whose connections are used for nothing else."""
        self.group = group
        self._waited_s = 0.0

    def __deepcopy__(self, memo: object) -> "HostPartialSumExchange":
        """Return the exchange itself: a copy of the model uses the same connections."""
        return self

    def pop_waited_s(self) -> float:
        """Return the seconds of waiting for other devices since the last call."""
        seconds, self._waited_s = self._waited_s, 0.0
        return seconds

    def reduce_products(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Send each peer the product of its part; return the sum of products for this device."""
        group, rank = self.group, self.group.rank
        sent = []
        for peer in self._peers():
            if not len(parts[peer]):
                continue
            product = multiply(parts[peer])
            sent.append((product, group.start_sending(product, peer)))
        local = multiply(parts[rank])
        products = [local if i == rank else torch.empty_like(local) for i in range(group.size)]
        senders = self._peers() if len(local) else []
        self._wait([group.start_receiving(products[peer], peer) for peer in senders])
        # Summed in the order of ranks, so that the order of arrival does not change the bits.
        total = products[0].clone()
        for product in products[1:]:
            total += product
        self._wait([work for _, work in sent])
        return total

    def all_gather_gradients(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Send ``mine``; return all devices' gradients by rank r, with ``rows[r]`` rows each."""
        group, rank = self.group, self.group.rank
        gradients = [
            mine if peer == rank else mine.new_empty(count, mine.shape[1])
            for peer, count in enumerate(rows)
        ]
        sent = [group.start_sending(mine, peer) for peer in self._peers() if len(mine)]
        senders = [peer for peer in self._peers() if rows[peer]]
        self._wait([group.start_receiving(gradients[peer], peer) for peer in senders])
        self._wait(sent)
        return gradients

    def _peers(self) -> list[int]:
        """Return the other ranks, from the next one on, so that sends are spread over peers."""
        size = self.group.size
        return [(self.group.rank + step) % size for step in range(1, size)]

    def _wait(self, works: Sequence[Any]) -> None:
        start = time.perf_counter()
        self.group.finish(works)
        self._waited_s += time.perf_counter() - start


class _SplitProduct(torch.autograd.Function):
    """Product of aggregated rows with weights split over devices by columns."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        parts: tuple[torch.Tensor, ...],
        exchange: PartialSumExchange,
    ) -> torch.Tensor:
        ctx.parts, ctx.exchange = parts, exchange
        columns = weight.to(parts[0].dtype).t()
        return exchange.reduce_products(parts, lambda part: (part @ columns).float().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts: tuple[torch.Tensor, ...] = ctx.parts
        gradients = ctx.exchange.all_gather_gradients(
            grads[0].contiguous(), [len(part) for part in parts]
        )
        total = gradients[0].new_zeros(gradients[0].shape[1], parts[0].shape[1])
        for grad, part in zip(gradients, parts, strict=True):
            total += (grad.to(part.dtype).t() @ part).float()
        return total, None, None


class SplitLayer(LinearAggregationLayer):
    """First layer of a model, with the weights of this device's columns only."""

    def __init__(self, layer: LinearAggregationLayer, columns: tuple[int, int], width: int) -> None:
        """Copy the weights of feature columns ``(first, last + 1)`` from ``layer``.

        ``width`` is the number of all feature columns.
        """
        super().__init__()
        linear = layer.linear
        assert isinstance(linear, nn.Linear)
        weight = column_slice(linear.weight.detach(), columns, width)
        #: weight ``[f^1, columns]``; the bias is the parameter of ``layer``, which all devices have
        self.linear: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Linear, weight.shape[1], weight.shape[0]
        )
        self.linear.weight = nn.Parameter(weight)
        self.linear.bias = linear.bias
        self.uses_degrees = layer.uses_degrees
        # In a tuple, because torch registers a module attribute as a submodule.
        self._full_layer = (layer,)
        self.rule = layer.rule  # type: ignore[misc]

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the aggregation coefficients of the full layer, which do not depend on columns."""
        return self._full_layer[0].aggregation(block, degrees)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the full layer's cost: a device has fewer columns, but of all mini-batches."""
        return self._full_layer[0].cost(width_in, width_out)


class SplitGNN(GNN):
    """Model with this device's columns of the first layer's weights, and all other parameters."""

    def __init__(self, full: GNN, columns: tuple[int, int], exchange: PartialSumExchange) -> None:
        """Split ``full`` by the columns ``(first, last + 1)``, and sum products by ``exchange``."""
        first = full.layer(0)
        assert isinstance(first, LinearAggregationLayer)
        split = SplitLayer(first, columns, full.widths[0])
        later_layers = [full.layer(index) for index in range(1, len(full.layers))]
        norms = list(full.norms)
        super().__init__(
            [split, *later_layers], norms, full.dropout, full.widths, **full.shared_parts
        )
        self._split = (split,)
        self._exchange = exchange

    @property
    def own_weight(self) -> nn.Parameter:
        """W¹ of this device's columns, ``[f^1, columns]``."""
        weight = self._split[0].linear.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def exchange_by(self, trade: PartialSumExchange) -> None:
        """Replace the exchange of partial products by ``trade``, which works in device memory."""
        self._exchange = trade

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """All parameters except W¹, of which each device has different columns."""
        return [p for p in self.parameters() if p is not self.own_weight]

    def pop_waited_s(self) -> float:
        """Return the seconds that propagation waited for other devices since the last call."""
        return self._exchange.pop_waited_s()

    def first(self, block: Block, inputs: Inputs) -> torch.Tensor:
        """Return the first layer's output rows ``[num_dst, f^1]`` of this device's mini-batch."""
        assert inputs.parts is not None
        summed: torch.Tensor = _SplitProduct.apply(  # type: ignore[no-untyped-call]
            self.own_weight, inputs.parts, self._exchange
        )
        # Device buffers have capacity for more rows than the mini-batch; padding is exchanged too.
        summed = summed[: block.num_dst]
        bias = self._split[0].linear.bias
        return (summed if bias is None else summed + bias).to(inputs.x.dtype)


def column_slice(weight: torch.Tensor, columns: tuple[int, int], width: int) -> torch.Tensor:
    """Return a copy of the columns of W¹ that belong to columns ``(first, last + 1)`` of features.

    ``weight`` is ``[f^1, n · width]``. n = 2 for GraphSAGE, which reads a vertex's own row and the
    aggregated row; n = 1 otherwise.
    """
    first, end = columns
    groups = weight.reshape(len(weight), -1, width)
    return groups[:, :, first:end].reshape(len(weight), -1).clone()
