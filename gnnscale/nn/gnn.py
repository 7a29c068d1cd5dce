"""The stack of layers that every architecture shares, and what connects them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from gnnscale.core import ConfigError
from gnnscale.features import FeatureStore
from gnnscale.nn import adapters as whole_graph
from gnnscale.nn import base as trainable
from gnnscale.nn import functional
from gnnscale.nn.conv.linear import Degrees, GraphLayer, linear
from gnnscale.nn.cost import LayerCost
from gnnscale.sampling import Block, MiniBatch

_NORMS: dict[str, Any] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True, kw_only=True)
class Connections:
    """What connects layers, besides one's output being the input of the next."""

    activates: bool = True  #: whether norm, ReLU and dropout come between layers
    #: whether the rows that a layer reads of its destinations are added to its output, from hidden
    #: layer to hidden layer
    residual: bool = False
    #: how the outputs of all layers are combined for the last product, one of ``JUMPING``
    jumping: str = "none"
    #: alpha of ``z = (1 - alpha) A z + alpha h`` of the rows h that the first layer reads;
    #: 0 for layers that do not read them again
    teleport: float = 0.0

    @property
    def reads_again(self) -> bool:
        """Whether rows are read by more than the next layer."""
        return self.residual or self.jumping != "none" or self.teleport > 0


class Perceptron(nn.Module):
    """``W_2 relu(W_1 x + b_1) + b_2``, with dropout of the hidden features."""

    def __init__(self, num_in: int, num_hidden: int, num_out: int) -> None:
        """Build the perceptron."""
        super().__init__()
        self.first = nn.Linear(num_in, num_hidden)
        self.second = nn.Linear(num_hidden, num_out)
        for each in (self.first, self.second):
            nn.init.xavier_uniform_(each.weight)
            nn.init.zeros_(each.bias)

    def forward(self, x: torch.Tensor, act: functional.Activation | None = None) -> torch.Tensor:
        """Return ``[n, num_out]`` of ``x`` ``[n, num_in]``.

        Args:
            act: activation of the hidden features, None for ReLU alone.
        """
        hidden = linear(self.first, x)
        return linear(
            self.second, hidden.relu() if act is None else functional.relu_dropout(hidden, act)
        )


class GNN(trainable.TrainableModel):
    """Layers with ReLU, dropout and optional normalisation in between.

    With an ``encoder``, the first layer reads what it makes of the input rows. With jumping
    connections, ``output`` multiplies what the outputs of all layers are combined to.
    """

    def __init__(
        self,
        layers: Sequence[GraphLayer],
        norms: Sequence[nn.Module],
        dropout: float,
        widths: Sequence[int],
        *,
        connections: Connections | None = None,
        encoder: nn.Module | None = None,
        output: nn.Linear | None = None,
        input_dropout: float = 0.0,
    ) -> None:
        """Stack ``layers``.

        Args:
            input_dropout: probability of dropping an input feature.
            norms: of each layer's output that is activated.
            widths: f^0 .. f^L, features of the inputs, of each hidden layer, and of the logits.
        """
        super().__init__()
        #: f^0 .. f^L, features of each layer's rows, inputs first.
        self.widths = tuple(widths)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norms)
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.connections = connections or Connections()
        self.encoder = encoder
        self.output = output

    @property
    def shared_parts(self) -> dict[str, Any]:
        """What a model of the same layers is built with besides them."""
        return {
            "connections": self.connections,
            "encoder": self.encoder,
            "output": self.output,
            "input_dropout": self.input_dropout,
        }

    def layer(self, index: int) -> GraphLayer:
        """Return layer ``index``, inputs first."""
        layer = self.layers[index]
        assert isinstance(layer, GraphLayer)
        return layer

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer aggregates input rows as they are, which loading may do.

        An encoder and input dropout change rows first, in every step.
        """
        changed = self.encoder is not None or self.input_dropout > 0
        return self.layer(0).aggregates_on_load and not changed

    @property
    def infers_by_layer(self) -> bool:
        """Every layer can be computed for all vertices before the next one."""
        return True

    @property
    def layer_costs(self) -> tuple[LayerCost, ...]:
        """What each layer states of its cost, inputs first."""
        widths = zip(self.widths, self.widths[1:], strict=False)
        costs = [self.layer(index).cost(*each) for index, each in enumerate(widths)]
        if self.encoder is not None:
            linears = [each for each in self.encoder.children() if isinstance(each, nn.Linear)]
            made = tuple((each.in_features, each.out_features) for each in linears)
            costs[0] = replace(
                costs[0],
                message_width=made[-1][1],
                message_products=made,
                host_makes_edge_rows=False,
            )
        if self.input_dropout > 0:
            costs[0] = replace(costs[0], changes_inputs=True)
        if self.output is not None:
            last = (self.output.in_features, self.output.out_features)
            costs[-1] = replace(costs[-1], products=(*costs[-1].products, last))
        return tuple(costs)

    @property
    def uses_degrees(self) -> bool:  # type: ignore[override]
        """Whether ``Inputs.degrees`` is needed for batches of a neighbour sampler."""
        return any(self.layer(index).uses_degrees for index in range(len(self.layers)))

    @property
    def uses_edge_features(self) -> bool:  # type: ignore[override]
        """Whether ``Inputs.edge_attr`` is needed."""
        return any(self.layer(index).uses_edge_features for index in range(len(self.layers)))

    @property
    def uses_edge_weights(self) -> bool:  # type: ignore[override]
        """Whether weights of edges change what it computes."""
        return any(self.layer(index).uses_edge_weights for index in range(len(self.layers)))

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> trainable.Inputs:
        """Read the first layer's input from ``store``.

        Args:
            degrees: ``[num_input_vertices]`` float32 in-degrees, if the model uses them.
            aggregates: whether to aggregate while reading, if the first layer allows it. The
                values are the same.
        """
        layer, vertices = self.layer(0), batch.input_vertices
        aggregated = aggregates and self.aggregates_on_load
        if aggregated:
            x, traffic = layer.load(
                store, vertices, batch.blocks[0], degrees, dtype=dtype, num_threads=num_threads
            )
        else:
            x, traffic = store.gather(vertices, dtype=dtype, num_threads=num_threads)
        return trainable.Inputs(x=x, aggregated=aggregated, degrees=degrees, traffic=traffic)

    def forward(
        self,
        batch: MiniBatch | torch.Tensor,
        inputs: trainable.Inputs | torch.Tensor,
        edge_weight: torch.Tensor | None = None,
        edge_attr: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32.

        ``model(x, edge_index)`` takes a whole graph in plain tensors, of which all vertices are
        seeds: ``x`` ``[n, num_features]``, ``edge_index`` ``[2, num_edges]``, ``edge_weight``
        ``[num_edges]``, and ``edge_attr`` ``[num_edges, num_edge_features]``.

        Raises:
            ConfigError: plain tensors have other shapes, or an edge has no such vertex; or features
                of edges are missing, or not read.
        """
        if isinstance(batch, torch.Tensor):
            if not isinstance(inputs, torch.Tensor) or batch.shape[1:] != self.widths[:1]:
                raise ConfigError(
                    f"x: has shape {list(batch.shape)}, must be [vertices, {self.widths[0]}], and "
                    "edge_index a tensor"
                )
            self._check_edges(edge_attr)
            batch, inputs = whole_graph.whole_batch(
                batch, inputs, edge_weight, edge_attr, num_layers=len(self.layers)
            )
        assert isinstance(inputs, trainable.Inputs)
        batch = inputs.with_edges(batch)
        h = self._encoded(batch, inputs)
        # Rows that are read by more than the next layer are not activated by that one.
        seen, reads_again = [h], self.connections.reads_again
        for index, block in enumerate(batch.blocks):
            if index == 0:
                out = self.first(block, replace(inputs, x=h))
            else:
                layer, degrees = self.layer(index), inputs.degrees
                act = None if reads_again else self._activation(batch, index - 1)
                out = layer.update(layer.prepare(h, block, degrees, act), block, degrees)
            own = [seen[number][: block.num_dst] for number in self.reads(index)]
            h = self.connect(index, out, own)
            if index + 1 == len(self.layers) and self.output is None:
                break
            h = self.normalise(index, h)
            if reads_again:
                act = self._activation(batch, index)
                h = h if act is None else functional.relu_dropout(h, act)
                seen.append(h)
        return h.float() if self.output is None else self.combine([*own, h])

    def _encoded(self, batch: MiniBatch, inputs: trainable.Inputs) -> torch.Tensor:
        """Return the rows that the first layer reads."""
        x = inputs.x
        if self.training and self.input_dropout > 0:
            x = functional.input_dropout(x, self.input_dropout, batch)
        if self.encoder is None:
            return x
        act = functional.input_activation(self.dropout if self.training else 0.0, batch)
        return self.encoder(x, act)  # type: ignore[no-any-return]

    def _activation(self, batch: MiniBatch, index: int) -> functional.Activation | None:
        """Return the activation of the output of layer ``index``."""
        if not self.connections.activates:
            return None
        return functional.activation(self.dropout if self.training else 0.0, batch, index)

    def reads(self, index: int) -> tuple[int, ...]:
        """Return whose rows of its destinations layer ``index`` takes, besides its input.

        Number 0 stands for the rows that the first layer reads, n for the output of layer n - 1 as
        the next one sees it.
        """
        joins, last = self.connections, len(self.layers) - 1
        if joins.teleport:
            return (0,)
        if index == last and joins.jumping != "none":
            return tuple(range(1, last + 1))
        return (index,) if joins.residual and 0 < index < last else ()

    def connect(self, index: int, out: torch.Tensor, own: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the output rows of layer ``index`` with what a connection adds.

        Args:
            out: ``[num_dst, f]`` that its ``update`` returned.
            own: ``[num_dst, f]`` each, the rows of destinations that it ``reads``.
        """
        if self.connections.teleport:
            alpha = self.connections.teleport
            return (1 - alpha) * out + alpha * own[0]
        return out + own[-1] if self.connections.residual and own else out

    def combine(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return logits ``[n, num_classes]`` float32 of all layers' outputs ``[n, f]``."""
        assert self.output is not None
        if self.connections.jumping == "cat":
            joined = torch.cat(list(rows), dim=1)
        else:
            joined = torch.stack(list(rows)).max(0).values
        return linear(self.output, joined).float()

    def _check_edges(self, edge_attr: torch.Tensor | None) -> None:
        """Refuse features of edges that the layers do not read, or other ones."""
        wanted = max(getattr(layer, "edge_dim", 0) for layer in self.layers)
        found = 0 if edge_attr is None else edge_attr.shape[-1]
        if found != wanted:
            given = "not given" if edge_attr is None else f"has shape {list(edge_attr.shape)}"
            reads = f"[edges, {wanted}]" if wanted else "None, as the layers read none"
            raise ConfigError(f"edge_attr: {given}, must be {reads}")

    def first(self, block: Block, inputs: trainable.Inputs) -> torch.Tensor:
        """Return the first layer's output rows ``[num_dst, f^1]``."""
        layer, x = self.layer(0), inputs.x
        if not inputs.aggregated:
            x = layer.prepare(x, block, inputs.degrees, None)
        return layer.update(x, block, inputs.degrees)

    def normalise(self, index: int, h: torch.Tensor) -> torch.Tensor:
        """Apply the normalisation after layer ``index``.

        A batch normalisation takes mean and variance over the rows of a slice. One row has no
        variance: it is normalised with the running statistics, as in evaluation, and leaves them as
        they are (``allow_single_element`` of PyG's ``BatchNorm``). Gradients reach the row, weight
        and bias.
        """
        if not self.connections.activates:
            return h
        norm = self.norms[index]
        # A slice without seeds has no rows, of which there are no statistics.
        if isinstance(norm, nn.Identity) or not len(h):
            return h
        x = h.float()
        if len(h) == 1 and isinstance(norm, nn.BatchNorm1d):
            out = _by_running_statistics(norm, x)
        else:
            out = norm(x)
        return out.to(h.dtype)

    def infer(
        self,
        index: int,
        x: torch.Tensor,
        block: Block,
        layer: GraphLayer | None = None,
        own: Sequence[torch.Tensor] = (),
    ) -> torch.Tensor:
        """Return what layer ``index + 1``, or the user, sees of layer ``index`` on loaded ``x``.

        Args:
            x: what its ``load`` returned.
            layer: that ``x`` was loaded for, in place of layer ``index`` and with its output.
            own: the rows of destinations that it ``reads``.
        """
        h = self.connect(index, (layer or self.layer(index)).update(x, block), own)
        last = index + 1 == len(self.layers)
        if not self.connections.activates or (last and self.output is None):
            return h
        h = self.normalise(index, h).relu()
        return self.combine([*own, h]) if last else h


def _by_running_statistics(norm: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    """Normalise ``x`` ``[n, f]`` as in evaluation, whatever the mode of ``norm``."""
    return nn.functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
    )


def make_norm(kind: str, width: int) -> nn.Module:
    """Build the normalisation ``kind``, one of ``NORMS``, of ``width`` features."""
    norm: nn.Module = _NORMS[kind](width)
    return norm
