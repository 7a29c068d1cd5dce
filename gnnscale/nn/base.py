"""Interface between models and training: inputs of a step, ``TrainableModel``, and objectives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale.core import Access, Float32Array, IntArray, Traffic
from gnnscale.features import FeatureStore
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn import cost, losses
from gnnscale.nn.conv.linear import Degrees, GraphLayer
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.sampling import Block, MiniBatch, TypedMiniBatch


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Feature rows and edge features of one mini-batch, which a model computes outputs from."""

    #: the input rows ``[num_input_vertices, f]``; if ``aggregated``, the first layer's ``load``
    #: result, with rows for the first block's destinations only
    x: Tensor
    aggregated: bool  #: whether the first layer's aggregation is done already
    #: ``[num_input_vertices]`` float32 in-degrees in the full graph, if the model uses them
    degrees: Float32Array | None = None
    traffic: Traffic = field(default_factory=Traffic)  #: bytes read for ``x``
    #: for P3, the first layer's ``load`` results for every device's mini-batch (``x`` included),
    #: over this device's feature columns; None: the first layer is not split
    parts: tuple[Tensor, ...] | None = None
    #: for each block, with types for each edge type of each block, ``[num_edges,
    #: num_edge_features]`` float32; empty: the model reads none
    edge_attr: tuple[Float32Array, ...] = ()
    #: for a graph with types, the input rows by vertex type, ``[num_input_vertices_t, width_t]``,
    #: or if ``aggregated`` what the first layer multiplies, ``[num_dst_t, w_t]``; ``x`` is empty
    rows: tuple[Tensor, ...] = ()
    type_reads: tuple[Access, ...] = ()  #: for a graph with types, the reads of each type's rows
    #: by vertex type, or for all vertices, ``[num_input_vertices_t]`` float32 days from the time of
    #: an input vertex to its cut-off; None: the type has no times; empty: the model reads no ages
    ages: tuple[Tensor | None, ...] = ()

    @classmethod
    def of_types(
        cls, rows: Sequence[Tensor], traffic: Sequence[Traffic], *, aggregated: bool
    ) -> "Inputs":
        """Return the input of a graph with types: ``rows`` by type, and the traffic of each."""
        return cls(
            x=torch.empty(0, 0),
            aggregated=aggregated,
            rows=tuple(rows),
            traffic=sum(traffic, Traffic()),
            type_reads=tuple(part.rows for part in traffic),
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of the feature rows (``parts`` with P3, otherwise ``x``, ``rows``) and of edges."""
        parts = self.parts or (self.x, *self.rows)
        ages = sum(days.nbytes for days in self.ages if days is not None)
        return sum(rows.nbytes for rows in parts) + self.edge_bytes + ages

    @property
    def edge_bytes(self) -> int:
        """Bytes of the edge features."""
        return sum(rows.nbytes for rows in self.edge_attr)

    def with_edges(self, batch: MiniBatch) -> MiniBatch:
        """Return ``batch`` with the loaded edge features in its blocks; unchanged without any."""
        if not self.edge_attr:
            return batch
        if isinstance(batch, TypedMiniBatch):
            return batch.with_edge_attr(self.edge_attr)
        pairs = zip(batch.blocks, self.edge_attr, strict=True)
        return replace(batch, blocks=tuple(replace(block, edge_attr=rows) for block, rows in pairs))


class TrainableModel(nn.Module):
    """Model that training can run: it loads its input rows, and computes logits from them.

    ``forward(batch, inputs)`` returns the seeds' logits ``[num_seeds, num_classes]`` float32::

        inputs = model.load(store, batch, degrees, aggregates=True, dtype=torch.float32,
                            num_threads=8)
        logits = model(batch, inputs)

    A ``GNN``, built of ``GraphLayer``, states the cost of each layer; ``counted`` has the cost of a
    user's module, counted in trial runs. Exact inference needs a model that ``infers_by_layer``.
    """

    #: Whether ``Inputs.degrees`` is needed for batches of a neighbor sampler.
    uses_degrees: bool = False
    #: Whether ``Inputs.edge_attr`` is needed.
    uses_edge_features: bool = False
    #: Whether edge weights may change the output.
    uses_edge_weights: bool = True
    #: The layers, input layer first, if the model ``infers_by_layer``.
    layers: Sequence[nn.Module] | nn.ModuleList
    #: f^0 .. f^L, features of each layer's rows, inputs first; empty without ``layers``.
    widths: tuple[int, ...] = ()
    #: Measured cost of a step, for a model whose layers do not state their cost.
    counted: cost.CostModel | None = None
    #: Module applied to each input row; None: the first layer reads input rows.
    encoder: nn.Module | None

    def __init__(self) -> None:
        """Create a model without an encoder, whose input rows come from a store."""
        super().__init__()
        self.encoder = None
        #: Learned input rows; None: the input rows come from a store.
        self.vertex_rows: LearnedEmbedding | None = None

    @property
    def uses_ages(self) -> bool:
        """Whether ``Inputs.ages`` are needed for mini-batches with cut-offs; here False."""
        return False

    @property
    def infers_by_layer(self) -> bool:
        """Whether each layer can be computed for all vertices before the next one; here False."""
        return False

    @property
    def layer_costs(self) -> tuple[cost.LayerCost, ...]:
        """Cost of each layer, input layer first; here empty: ``counted`` has the model's cost."""
        return ()

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that each device has a copy of: here all that require a gradient."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def layer(self, index: int) -> GraphLayer:
        """Return layer ``index``; NotImplementedError unless the model ``infers_by_layer``."""
        if not self.infers_by_layer:
            raise NotImplementedError
        layer = self.layers[index]
        assert isinstance(layer, GraphLayer)
        return layer

    def reads(self, index: int) -> tuple[int, ...]:
        """Return the numbers of the rows that layer ``index`` reads besides its input; here none.

        Number 0 stands for the rows that the first layer reads, n for the output of layer n - 1.
        Only the rows of the layer's destinations are read.
        """
        return ()

    def infer(
        self,
        index: int,
        x: Tensor,
        block: Block,
        layer: GraphLayer | None = None,
        dst_rows: Sequence[Tensor] = (),
    ) -> Tensor:
        """Return the rows that layer ``index + 1`` reads, or the logits after the last layer.

        Args:
            x: the result of the layer's ``load``.
            block: the edges to the layer's destinations, with all neighbors.
            layer: layer that loaded ``x`` in place of layer ``index``; None: layer ``index`` did.
            dst_rows: ``[num_dst, f]`` each, the destinations' rows with the numbers that ``reads``
                returns; not used here.
        """
        return (layer or self.layer(index)).update(x, block)

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
        """Read the rows of the input vertices of ``batch`` from ``store``; here not aggregated.

        Rows of a graph with types are read type by type.

        Args:
            degrees: ``[num_input_vertices]`` float32 in-degrees, if the model uses them.
            aggregates: whether overriding methods may aggregate while reading, if the first layer
                allows it. The model computes the same output either way.
            dtype: float32 or bfloat16.
        """
        if isinstance(batch, TypedMiniBatch):
            typed_store: Any = store
            rows, traffic = typed_store.gather_types(batch, dtype=dtype, num_threads=num_threads)
            return Inputs.of_types(rows, traffic, aggregated=False)
        x, traffic = store.gather(batch.input_vertices, dtype=dtype, num_threads=num_threads)
        return Inputs(x=x, aggregated=False, degrees=degrees, traffic=traffic)

    def pop_waited_s(self) -> float:
        """Return and reset the seconds that propagation has waited for other devices; here 0."""
        return 0.0


#: Function from a model's output rows for a mini-batch, ``[num_seeds, width]`` float32, to the mean
#: loss. The loss of a mini-batch without seeds is 0, with a gradient of zeros.
Objective: TypeAlias = Callable[[Tensor, MiniBatch], Tensor]


class VertexObjective:
    """Loss of predicting the labels of a mini-batch's seeds."""

    def __init__(self, graph: SplitLabels, loss: losses.Loss) -> None:
        """Compare outputs with the labels of ``graph`` by ``loss``."""
        self._graph = graph
        self._loss = loss

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the seeds; 0 without seeds."""
        return self.of_seeds(outputs, batch.seeds)

    def of_seeds(self, outputs: Tensor, seeds: IntArray) -> Tensor:
        """Return the mean loss of ``seeds`` ``[n]`` with ``outputs`` ``[n, width]``; 0 if n = 0."""
        return self._loss(outputs, _targets(self._graph, seeds)) if len(seeds) else outputs.sum()

    def on(self, device: torch.device) -> Objective:
        """Copy all labels to ``device``; return the loss as a function of batches there."""
        labels = torch.tensor(np.asarray(self._graph.labels), device=device)

        def objective(outputs: Tensor, batch: MiniBatch) -> Tensor:
            if not batch.num_seeds:
                return outputs.sum()
            seeds: Any = batch.seeds
            return self._loss(outputs, losses.as_targets(labels.index_select(0, seeds)))

        return objective


def vertex_objective(graph: Graph, loss: losses.LossConfig | None = None) -> VertexObjective:
    """Return the loss of predicting the labels of a mini-batch's seeds.

    ``loss`` None: the loss for the graph's kind of labels. ConfigError: ``loss`` does not fit the
    labels.
    """
    return VertexObjective(graph, (loss or losses.AutoLoss()).build(graph))


@dataclass(frozen=True, kw_only=True)
class TypeObjective:
    """Part of the loss of several vertex types that is of one type."""

    vertex_type: int  #: position of the type in the schema
    objective: VertexObjective  #: loss of the type's seeds
    width: int  #: number of outputs, the first columns of a row
    num_seeds: int  #: training vertices of the type


class TypesObjective:
    """Loss of predicting the labels of seeds of several vertex types.

    The loss of an epoch is the sum over types of the mean over the type's training vertices. That
    of ``n`` seeds is ``sum_i w_i l_i / n``, where ``w`` of a type is the number of all training
    vertices over that of the type: it does not depend on the split of a mini-batch.
    """

    def __init__(self, types: Sequence[TypeObjective]) -> None:
        """Add the losses of ``types``."""
        self._types = tuple(types)
        self._num_seeds = sum(part.num_seeds for part in types)

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the loss of the seeds, whose outputs ``[n, width]`` are type after type."""
        assert isinstance(batch, TypedMiniBatch)
        ends = np.cumsum([0, *batch.seed_sizes]).tolist()
        loss = outputs.new_zeros(()) if batch.num_seeds else outputs.sum()
        for part in self._types:
            first, end = ends[part.vertex_type : part.vertex_type + 2]
            if first < end:
                seeds = batch.seeds_of(part.vertex_type)
                mean = part.objective.of_seeds(outputs[first:end, : part.width], seeds)
                share = (end - first) / batch.num_seeds
                loss = loss + mean * (share * self._num_seeds / part.num_seeds)
        return loss


class EdgeObjective:
    """Loss of predicting the labels of a mini-batch's edges."""

    def __init__(self, labels: SplitLabels, loss: losses.Loss) -> None:
        """Compare outputs with ``labels`` by ``loss``."""
        self._labels = labels
        self._loss = loss

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the edges; 0 without edges."""
        rows = None if batch.links is None else batch.links.rows
        assert rows is not None
        return self._loss(outputs, _targets(self._labels, rows)) if len(rows) else outputs.sum()


def edge_objective(labels: SplitLabels, loss: losses.LossConfig) -> EdgeObjective:
    """Return the loss of predicting the labels of a mini-batch's edges."""
    return EdgeObjective(labels, loss.build(labels))


class RowObjective:
    """Loss of predicting the labels of a mini-batch's task rows."""

    def __init__(self, labels: SplitLabels, loss: losses.Loss) -> None:
        """Compare outputs with the ``labels`` of all rows by ``loss``."""
        self._labels = labels
        self._loss = loss

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the rows, several of which may share an output; 0 without."""
        rows = batch.rows
        assert rows is not None
        if not len(rows.numbers):
            return outputs.sum()
        predicted = outputs.index_select(0, torch.from_numpy(rows.positions))
        return self._loss(predicted, _targets(self._labels, rows.numbers))


def row_objective(labels: SplitLabels, loss: losses.LossConfig) -> RowObjective:
    """Return the loss of predicting the ``labels`` of a mini-batch's task rows."""
    return RowObjective(labels, loss.build(labels))


def objective_on(objective: Objective, device: torch.device) -> Objective:
    """Return a ``VertexObjective`` with its labels on ``device``, any other objective unchanged."""
    return objective.on(device) if isinstance(objective, VertexObjective) else objective


def seed_loss(graph: Graph, outputs: Tensor, seeds: IntArray) -> Tensor:
    """Return the mean loss of ``seeds``, all labeled, by the kind of labels; 0 without seeds."""
    if not len(seeds):
        return outputs.sum()
    return losses.AutoLoss().build(graph)(outputs, _targets(graph, seeds))


def _targets(graph: SplitLabels, seeds: IntArray) -> Tensor:
    """Return the labels of vertices (or edges) ``seeds`` as a ``losses.Loss`` takes them."""
    return losses.as_targets(torch.from_numpy(graph.labels[seeds]))
