"""The stack of layers that every architecture shares, and the connections between its layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core import ConfigError
from gnnscale.features import FeatureStore
from gnnscale.nn import functional
from gnnscale.nn.adapters import whole_batch
from gnnscale.nn.base import Inputs, TrainableModel
from gnnscale.nn.conv.linear import Degrees, GraphLayer, linear
from gnnscale.nn.cost import LayerCost
from gnnscale.sampling import Block, MiniBatch

_NORMS: dict[str, Any] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True, kw_only=True)
class Connections:
    """Residual connections, jumping knowledge or teleport between layers, and activation.

    Rows are numbered by layer: 0 for the rows that the first layer reads, n for the output of
    layer n - 1 after its activation.
    """

    activates: bool = True  #: whether norm, ReLU and dropout come between layers
    #: whether the input rows of a hidden layer's destinations are added to its output
    residual: bool = False
    #: how the outputs of all layers are combined for the last product, one of ``JUMPING``
    jumping: str = "none"
    #: alpha of ``z = (1 - alpha) A z + alpha h``, with the rows h that the first layer reads;
    #: 0: no teleport
    teleport: float = 0.0

    @property
    def reads_again(self) -> bool:
        """Whether some rows are read by later layers too, not only by the next layer."""
        return self.residual or self.jumping != "none" or self.teleport > 0

    def reads(self, index: int, last: int) -> tuple[int, ...]:
        """Return the numbers of the rows that layer ``index`` adds or joins, besides its input.

        Number 0 is the first layer's input, n the output of layer n - 1; layer ``last`` is the
        last.
        """
        if self.teleport:
            return (0,)
        if index == last and self.jumping != "none":
            return tuple(range(1, last + 1))
        return (index,) if self.residual and 0 < index < last else ()

    def add(self, out: Tensor, dst_rows: Sequence[Tensor]) -> Tensor:
        """Return a layer's output ``out`` with a residual or teleport added, if any.

        The residual is the last of ``dst_rows``, the teleport mixes in the first.
        """
        if self.teleport:
            return (1 - self.teleport) * out + self.teleport * dst_rows[0]
        return out + dst_rows[-1] if self.residual and dst_rows else out

    def join(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the concatenation or, by ``jumping``, the maximum of the layers' outputs."""
        if self.jumping == "cat":
            return torch.cat(list(rows), dim=1)
        return torch.stack(list(rows)).max(0).values


class Perceptron(nn.Module):
    """``W_2 relu(W_1 x + b_1) + b_2``, with dropout of the hidden features."""

    def __init__(self, num_in: int, num_hidden: int, num_out: int) -> None:
        """Build the perceptron, with weights by Glorot's rule and biases of 0."""
        super().__init__()
        self.first = nn.Linear(num_in, num_hidden)
        self.second = nn.Linear(num_hidden, num_out)
        for layer in (self.first, self.second):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, act: functional.Activation | None = None) -> Tensor:
        """Return ``[n, num_out]`` of ``x`` ``[n, num_in]``; ``act`` None: ReLU without dropout."""
        hidden = linear(self.first, x)
        return linear(
            self.second, hidden.relu() if act is None else functional.relu_dropout(hidden, act)
        )


class GNN(TrainableModel):
    """Layers, with norm, ReLU and dropout in between unless ``connections`` leave those out.

    With an ``encoder``, the first layer reads ``encoder(input rows)``. With jumping knowledge,
    ``output`` multiplies the combined outputs of all layers.
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
        """Stack ``layers``, input layer first.

        Args:
            norms: normalization of each output that is activated.
            dropout: probability of dropping a hidden feature.
            widths: f^0 .. f^L: features of the inputs, of each hidden layer, and of the logits.
            encoder: module applied to input rows; None: the first layer reads input rows.
            output: last product, with jumping knowledge; None: the last layer returns the logits.
            input_dropout: probability of dropping an input feature.
        """
        super().__init__()
        self.widths = tuple(widths)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norms)
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.connections = connections or Connections()
        self.encoder = encoder
        #: Encoder of relative time, which is added to input rows. None: input rows are unchanged
        self.time_encoder: nn.Module | None = None
        self.output = output
        self.uses_degrees = any(layer.uses_degrees for layer in layers)
        self.uses_edge_features = any(layer.uses_edge_features for layer in layers)
        self.uses_edge_weights = any(layer.uses_edge_weights for layer in layers)

    @property
    def uses_ages(self) -> bool:
        """Whether the days from a vertex's time to its cut-off are an input."""
        return self.time_encoder is not None

    @property
    def shared_parts(self) -> dict[str, Any]:
        """Arguments to build another ``GNN`` with this model's encoder, output and options."""
        return {
            "connections": self.connections,
            "encoder": self.encoder,
            "output": self.output,
            "input_dropout": self.input_dropout,
        }

    @property
    def aggregates_on_load(self) -> bool:
        """Whether ``load`` can aggregate: a linear first layer that reads input rows as they are.

        An encoder, input dropout and relative time change these rows.
        """
        changed = self.encoder is not None or self.input_dropout > 0 or self.uses_ages
        return self.layer(0).aggregates_on_load and not changed

    @property
    def infers_by_layer(self) -> bool:
        """Whether each layer can be computed for all vertices before the next one: yes."""
        return True

    @property
    def layer_costs(self) -> tuple[LayerCost, ...]:
        """Cost of each layer, input layer first."""
        return _layer_costs(self)

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> Inputs:
        """Read the first layer's input, aggregated if ``aggregates`` and the layer allow it."""
        if not (aggregates and self.aggregates_on_load):
            return super().load(
                store, batch, degrees, aggregates=False, dtype=dtype, num_threads=num_threads
            )
        block, vertices = batch.blocks[0], batch.input_vertices
        x, traffic = self.layer(0).load(
            store, vertices, block, degrees, dtype=dtype, num_threads=num_threads
        )
        return Inputs(x=x, aggregated=True, degrees=degrees, traffic=traffic)

    def forward(
        self,
        batch: MiniBatch | Tensor,
        inputs: Inputs | Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32.

        ``model(x, edge_index)`` takes a full graph as plain tensors, and all vertices are seeds:
        ``x`` ``[n, num_features]``, ``edge_index`` ``[2, num_edges]``, ``edge_weight``
        ``[num_edges]``, and ``edge_attr`` ``[num_edges, num_edge_features]``.

        Raises:
            ConfigError: plain tensors have other shapes, an edge names no vertex of ``x``, or edge
                features are missing or not read.
        """
        if isinstance(batch, Tensor):
            batch, inputs = _full_graph_batch(self, batch, inputs, edge_weight, edge_attr)
        assert isinstance(inputs, Inputs)
        batch = inputs.with_edges(batch)
        h = _encode(self, batch, inputs)
        # If later layers read a layer's output again, it is activated here, not by the next layer.
        rows, reads_again = [h], self.connections.reads_again
        for index, block in enumerate(batch.blocks):
            if index == 0:
                out = self.first(block, replace(inputs, x=h))
            else:
                layer, degrees = self.layer(index), inputs.degrees
                act = None if reads_again else self._activation(batch, index - 1)
                out = layer.update(layer.prepare(h, block, degrees, act), block, degrees)
            dst_rows = [rows[number][: block.num_dst] for number in self.reads(index)]
            h = self.connections.add(out, dst_rows)
            if index + 1 == len(self.layers) and self.output is None:
                break
            h = self.normalise(index, h)
            if reads_again:
                act = self._activation(batch, index)
                h = h if act is None else functional.relu_dropout(h, act)
                rows.append(h)
        return h.float() if self.output is None else self._logits([*dst_rows, h])

    def _activation(self, batch: MiniBatch, index: int) -> functional.Activation | None:
        """Return ReLU and dropout of layer ``index``'s output; None: layers are not activated."""
        if not self.connections.activates:
            return None
        return functional.activation(self.dropout if self.training else 0.0, batch, index)

    def reads(self, index: int) -> tuple[int, ...]:
        """Return the numbers of earlier rows that layer ``index`` adds or joins to its output.

        Number 0 is the first layer's input, n the activated output of layer n - 1. The result is
        empty without residual connections, jumping knowledge and teleport.
        """
        return self.connections.reads(index, len(self.layers) - 1)

    def first(self, block: Block, inputs: Inputs) -> Tensor:
        """Return the first layer's output ``[num_dst, f^1]``, before norm and activation."""
        layer, x = self.layer(0), inputs.x
        if not inputs.aggregated:
            x = layer.prepare(x, block, inputs.degrees, None)
        return layer.update(x, block, inputs.degrees)

    def _logits(self, rows: Sequence[Tensor]) -> Tensor:
        assert self.output is not None
        return linear(self.output, self.connections.join(rows)).float()

    def normalise(self, index: int, h: Tensor) -> Tensor:
        """Return output ``h`` of layer ``index``, normalized if ``connections.activates``."""
        return normalize(self.norms[index], h) if self.connections.activates else h

    def infer(
        self,
        index: int,
        x: Tensor,
        block: Block,
        layer: GraphLayer | None = None,
        dst_rows: Sequence[Tensor] = (),
    ) -> Tensor:
        """Return the activated output of layer ``index``, or the logits after the last layer.

        Args:
            x: the result of the layer's ``load``, over ``block`` with all neighbors.
            layer: layer that loaded ``x`` in place of layer ``index``; None: layer ``index`` did.
            dst_rows: destinations' rows with the numbers that ``reads`` returns.
        """
        h = self.connections.add((layer or self.layer(index)).update(x, block), dst_rows)
        last = index + 1 == len(self.layers)
        if not self.connections.activates or (last and self.output is None):
            return h
        h = self.normalise(index, h).relu()
        return self._logits([*dst_rows, h]) if last else h


def _encode(model: GNN, batch: MiniBatch, inputs: Inputs) -> Tensor:
    """Return the rows that the first layer reads: ``inputs.x``, changed and then encoded.

    In training they have dropout; encoded ages, if any, are added.
    """
    x = inputs.x
    if model.training and model.input_dropout > 0:
        x = functional.input_dropout(x, model.input_dropout, batch)
    if model.time_encoder is not None and inputs.ages:
        x = x + model.time_encoder(inputs.ages[0]).to(x.dtype)
    if model.encoder is None:
        return x
    act = functional.input_activation(model.dropout if model.training else 0.0, batch)
    return model.encoder(x, act)  # type: ignore[no-any-return]


def _full_graph_batch(
    model: GNN, x: Tensor, edge_index: Any, edge_weight: Tensor | None, edge_attr: Tensor | None
) -> tuple[MiniBatch, Inputs]:
    """Return the arguments of ``GNN.forward`` for a full graph in plain tensors, checked."""
    if not isinstance(edge_index, Tensor) or x.shape[1:] != model.widths[:1]:
        raise ConfigError(
            f"x: expected shape [vertices, {model.widths[0]}], got {list(x.shape)}; "
            "edge_index is a tensor"
        )
    _check_edges(edge_attr, max(getattr(layer, "edge_dim", 0) for layer in model.layers))
    return whole_batch(x, edge_index, edge_weight, edge_attr, num_layers=len(model.layers))


def _layer_costs(model: GNN) -> tuple[LayerCost, ...]:
    """Return each layer's cost, with encoder and input dropout in the first, output in the last."""
    pairs = zip(model.widths, model.widths[1:], strict=False)
    costs = [model.layer(index).cost(*widths) for index, widths in enumerate(pairs)]
    if model.encoder is not None:
        costs[0] = _with_encoder(costs[0], model.encoder)
    if model.input_dropout > 0 or model.uses_ages:
        costs[0] = replace(costs[0], changes_inputs=True)
    if model.output is not None:
        product = (model.output.in_features, model.output.out_features)
        costs[-1] = replace(costs[-1], products=(*costs[-1].products, product))
    return tuple(costs)


def _with_encoder(cost: LayerCost, encoder: nn.Module) -> LayerCost:
    """Return the first layer's cost when it reads the rows that ``encoder`` computes."""
    linears = [module for module in encoder.children() if isinstance(module, nn.Linear)]
    products = tuple((module.in_features, module.out_features) for module in linears)
    return replace(
        cost, message_width=products[-1][1], message_products=products, host_makes_edge_rows=False
    )


def _check_edges(edge_attr: Tensor | None, width: int) -> None:
    """Raise ConfigError unless ``edge_attr`` has ``width`` columns; 0: it must be None."""
    if (0 if edge_attr is None else edge_attr.shape[-1]) != width:
        actual = "None" if edge_attr is None else f"shape {list(edge_attr.shape)}"
        expected = f"shape [edges, {width}]" if width else "None, as the layers read none"
        raise ConfigError(f"edge_attr: expected {expected}, got {actual}")


def normalize(norm: nn.Module, h: Tensor) -> Tensor:
    """Return rows ``h`` ``[n, f]`` normalized by ``norm``, in the type of ``h``.

    Batch normalization computes mean and variance over ``h``, a device's share of a mini-batch. A
    single row has no variance: it is normalized with the running statistics, which it does not
    update (``allow_single_element`` of PyG's ``BatchNorm``).
    """
    # A slice without seeds has no rows to normalize.
    if isinstance(norm, nn.Identity) or not len(h):
        return h
    x = h.float()
    if len(h) == 1 and isinstance(norm, nn.BatchNorm1d):
        out = nn.functional.batch_norm(
            x,
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            training=False,
            eps=norm.eps,
        )
    else:
        out = norm(x)
    return out.to(h.dtype)


def make_norm(kind: str, width: int) -> nn.Module:
    """Build the normalization ``kind``, one of ``NORMS``, for ``width`` features."""
    norm: nn.Module = _NORMS[kind](width)
    return norm
