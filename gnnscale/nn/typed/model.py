"""Stack of layers over graphs with types, with an encoder for each vertex type."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.features import FeatureStore
from gnnscale.features.typed import TypedStore
from gnnscale.nn.base import Inputs, TrainableModel
from gnnscale.nn.conv.linear import Degrees, linear
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.functional import Activation, relu_dropout
from gnnscale.nn.gnn import make_norm, normalize
from gnnscale.nn.typed.encoders import initialize_encoders, make_encoder
from gnnscale.nn.typed.layer import TypedLayer
from gnnscale.nn.typed.relational import RelationalLayer
from gnnscale.sampling import MiniBatch, TypedBlock, TypedMiniBatch


class TypedGNN(TrainableModel):
    """Encoders of each vertex type, then layers with norm, ReLU and dropout in between.

    Types are numbers, their positions in the schema. Nothing comes between the encoders and the
    first layer: with linear ones, a layer of means aggregates rows first, and multiplies them once.
    A model whose layers have their own activation (``activates_inputs``) has ReLU after the
    encoders instead.
    """

    layers: nn.ModuleList

    def __init__(
        self,
        layers: Sequence[TypedLayer],
        input_widths: Sequence[int],
        *,
        outputs: Sequence[nn.Linear] = (),
        norm: str = "none",
        dropout: float = 0.0,
        residual: bool = False,
        activates_inputs: bool = False,
        encoder: str = "linear",
    ) -> None:
        """Stack ``layers``, input layer first.

        Args:
            layers: layers between hidden rows; without ``outputs``, the last returns the logits.
            input_widths: number of features of each vertex type, above 0.
            outputs: last product of each vertex type; empty: the last layer returns the logits.
            norm: normalization of each output that is activated, one of ``NORMS``.
            dropout: probability of dropping a hidden feature.
            residual: whether a layer's input rows are added to its output before norm and
                activation; the last layer without ``outputs`` adds none.
            activates_inputs: whether ReLU follows the encoders, and no layer.
            encoder: one of ``ENCODERS``.
        """
        super().__init__()
        hidden, num_types = layers[0].width_in, layers[0].num_types
        num_outputs = outputs[0].out_features if outputs else layers[-1].width_out
        self.widths = (hidden, *(layer.width_out for layer in layers[:-1]), num_outputs)
        self.input_widths = tuple(input_widths)
        self.layers = nn.ModuleList(layers)
        self.encoders = nn.ModuleList(
            make_encoder(encoder, width, hidden) for width in input_widths
        )
        #: Encoders of relative time by vertex type, identities of types without times; empty: none
        self.time_encoders = nn.ModuleList()
        self.outputs = nn.ModuleList(outputs)
        #: by activated layer and vertex type
        self.norms = nn.ModuleList(
            nn.ModuleList(make_norm(norm, layer.width_out) for _ in range(num_types))
            for layer in layers[: None if outputs else -1]
        )
        self.dropout, self.residual = dropout, residual
        self.activates_inputs = activates_inputs
        self.uses_edge_weights = any(layer.uses_edge_weights for layer in layers)
        self.uses_edge_features = any(layer.uses_edge_features for layer in layers)
        initialize_encoders(self.encoders)

    @property
    def uses_ages(self) -> bool:
        """Whether the days from a vertex's time to its cut-off are an input."""
        return len(self.time_encoders) > 0

    @property
    def infers_by_layer(self) -> bool:
        """True: see ``infer_layer``."""
        return True

    @property
    def layer_costs(self) -> tuple[LayerCost, ...]:
        """Cost of each layer, input layer first; the encoders, of mean width, are in the first."""
        costs = [layer.cost for layer in self._typed_layers]
        width = max(1, round(sum(self.input_widths) / len(self.input_widths)))
        hidden = self.widths[0]
        second = () if self._has_linear_encoders else ((hidden, hidden),)
        costs[0] = replace(
            costs[0],
            changes_inputs=self.uses_ages,
            width_in=width,
            message_width=hidden,
            message_products=((width, hidden), *second),
            host_makes_edge_rows=False,
        )
        return tuple(costs)

    @property
    def _typed_layers(self) -> Sequence[TypedLayer]:
        layers: Any = self.layers
        return layers  # type: ignore[no-any-return]

    def forward(self, batch: MiniBatch, inputs: Inputs) -> Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32, type after type.

        ``inputs`` is what ``load`` returns. A batch of a graph without types has one type of
        vertices and edges, and ``inputs.x`` are the rows.
        """
        batch = inputs.with_edges(batch)
        typed = batch if isinstance(batch, TypedMiniBatch) else as_typed(batch)
        rows: Sequence[Tensor] = ()
        for index, block in enumerate(typed.blocks):
            if index == 0:
                out, rows = self._first(inputs, block)
            else:
                out = self.layers[index](rows, block)
            rows = self._connect(index, rows, out)
            if index < len(self.norms):
                rows = self._activate(typed, index, rows)
        return torch.cat(self._logits(rows))

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
        """Read the input rows, or with ``aggregates`` the own rows and means that a layer reads.

        A first layer of means then reads a row for each edge, and no matrix of input rows is made.
        Learned rows, which need a gradient, are not aggregated.
        """
        if (
            aggregates
            and isinstance(batch, TypedMiniBatch)
            and isinstance(store, TypedStore)
            and self.vertex_rows is None
            and not (self.uses_ages and batch.cutoffs is not None)
            and (layer := self._means_layer(batch.blocks[0])) is not None
        ):
            rows, traffic = store.source_rows(batch, num_threads=num_threads)
            columns = layer.columns(rows, batch.blocks[0], num_threads=num_threads)
            return Inputs.of_types(columns, traffic, aggregated=True)
        return super().load(
            store, batch, degrees, aggregates=False, dtype=dtype, num_threads=num_threads
        )

    def encode(self, vertex_type: int, rows: Tensor, ages: Tensor | None = None) -> Tensor:
        """Return the rows that the first layer reads, ``[n, hidden]``, of feature rows ``rows``.

        Encoded ``ages`` ``[n]`` in days are added, if any.
        """
        encoder = self.encoders[vertex_type]
        encoded: Tensor = linear(encoder, rows) if isinstance(encoder, nn.Linear) else encoder(rows)
        if ages is not None:
            encoded = encoded + self.time_encoders[vertex_type](ages)
        return encoded.relu() if self.activates_inputs else encoded

    def infer_layer(self, index: int, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the activated output of layer ``index`` by vertex type; of the last, the logits.

        Args:
            rows: by vertex type ``[block.src_sizes[t], hidden]``: of layer 0, encoded rows.
            block: the edges to the layer's destinations, with all neighbors. Types may lack
                destinations.
        """
        out = self._connect(index, rows, self.layers[index](rows, block))
        if index < len(self.norms) and not self.activates_inputs:
            out = [part.relu() for part in out]
        return self._logits(out) if index + 1 == len(self.layers) else out

    def _first(self, inputs: Inputs, block: TypedBlock) -> tuple[list[Tensor], Sequence[Tensor]]:
        """Return the first layer's output, and the rows that a residual adds, if there is one."""
        rows: Sequence[Tensor] = inputs.rows or (inputs.x,)
        layer = None if inputs.ages else self._means_layer(block)
        learned_widths = {part.shape[1] for part in rows if part.requires_grad}
        if layer is None or len(learned_widths) > 1:
            ages = inputs.ages or (None,) * len(rows)
            pairs = zip(rows, ages, strict=True)
            encoded = [self.encode(number, *pair) for number, pair in enumerate(pairs)]
            return self.layers[0](encoded, block), encoded
        encoders: Any = self.encoders
        multiply = layer.forward_columns if inputs.aggregated else layer.forward_encoded
        out = multiply(rows, block, encoders)
        if not self.residual:
            return out, ()
        sizes = zip(rows, block.dst_sizes, self.input_widths, strict=True)
        dst_rows = [part[:size, :width] for part, size, width in sizes]
        return out, [self.encode(number, part) for number, part in enumerate(dst_rows)]

    def _means_layer(self, block: TypedBlock) -> RelationalLayer | None:
        """Return the first layer if it takes fewer products of means than of encoded rows."""
        layer = self.layers[0]
        if not (isinstance(layer, RelationalLayer) and self._has_linear_encoders):
            return None
        return layer if layer.encodes_means(self.input_widths, block) else None

    @property
    def _has_linear_encoders(self) -> bool:
        return all(isinstance(encoder, nn.Linear) for encoder in self.encoders)

    def _connect(self, index: int, rows: Sequence[Tensor], out: list[Tensor]) -> list[Tensor]:
        """Return output ``out`` of layer ``index`` with the residual added, and normalized."""
        if index >= len(self.norms):
            return out
        if self.residual:
            out = [part + x[: len(part)] for part, x in zip(out, rows, strict=True)]
        norms: Any = self.norms[index]
        return [normalize(norm, part) for norm, part in zip(norms, out, strict=True)]

    def _activate(self, batch: TypedMiniBatch, index: int, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return rows of layer ``index`` after ReLU, unless inputs have had it, and dropout.

        ReLU overwrites them.
        """
        activations = [
            Activation(
                p=self.dropout if self.training else 0.0,
                seed=batch.seed,
                step=batch.step,
                layer=index,
                vertices=batch.vertices(vertex_type, len(part)),
            )
            for vertex_type, part in enumerate(rows)
        ]
        apply = _drop if self.activates_inputs else relu_dropout
        return [apply(part, act) for part, act in zip(rows, activations, strict=True)]

    def _logits(self, rows: Sequence[Tensor]) -> list[Tensor]:
        if not self.outputs:
            return list(rows)
        pairs = zip(self.outputs, rows, strict=True)
        return [linear(layer, part) for layer, part in pairs]  # type: ignore[arg-type]


def _drop(x: Tensor, activation: Activation) -> Tensor:
    """Return ``x`` ``[n, f]`` with features dropped, and the others scaled."""
    factors = torch.ones_like(x, requires_grad=False)
    activation.apply_(factors)  # ReLU leaves ones unchanged
    return x * factors


def as_typed(batch: MiniBatch) -> TypedMiniBatch:
    """Return a mini-batch of a graph without types, as one with one type of vertices and edges."""
    blocks = tuple(
        TypedBlock(relations=(block,), src_sizes=(block.num_src,), dst_sizes=(block.num_dst,))
        for block in batch.blocks
    )
    return TypedMiniBatch(
        seed=batch.seed,
        step=batch.step,
        num_seeds=batch.num_seeds,
        input_vertices=batch.input_vertices,
        type_sizes=(len(batch.input_vertices),),
        seed_sizes=(batch.num_seeds,),
        blocks=blocks,
        ends=((0, 0),),
        links=batch.links,
        rows=batch.rows,
        cutoffs=batch.cutoffs,
    )
