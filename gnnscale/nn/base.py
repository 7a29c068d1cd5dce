"""What the runtime requires of any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale.core import Float32Array, IntArray, Traffic
from gnnscale.features import FeatureStore
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn import cost, losses
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.sampling import Block, MiniBatch

if TYPE_CHECKING:
    from gnnscale.nn.conv.linear import Degrees, GraphLayer


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the loader hands to the model for one mini-batch."""

    #: the input rows ``[num_input_vertices, f]``, or the first layer's ``load`` result
    x: torch.Tensor
    aggregated: bool  #: whether ``x`` is that result, so that only rows of destinations are left
    #: ``[num_input_vertices]`` float32 in-degrees in the whole graph, if needed
    degrees: Float32Array | None = None
    traffic: Traffic = field(default_factory=Traffic)  #: what reading ``x`` moved
    #: the first layer's ``load`` results of every device's mini-batch, ``x`` among them, over this
    #: device's columns of the features; None unless the layer is split (P3)
    parts: tuple[torch.Tensor, ...] | None = None
    #: for each block ``[num_edges, num_edge_features]`` float32 of its edges; empty if the model
    #: does not read them
    edge_attr: tuple[Float32Array, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(rows.nbytes for rows in self.parts or (self.x,)) + self.edge_bytes

    @property
    def edge_bytes(self) -> int:
        """Bytes of the features of edges."""
        return sum(rows.nbytes for rows in self.edge_attr)

    def with_edges(self, batch: MiniBatch) -> MiniBatch:
        """Return ``batch`` with ``edge_attr`` in its blocks."""
        if not self.edge_attr:
            return batch
        pairs = zip(batch.blocks, self.edge_attr, strict=True)
        return replace(batch, blocks=tuple(replace(each, edge_attr=rows) for each, rows in pairs))


class TrainableModel(nn.Module):
    """A model that the runtime can train: it loads its input, and makes logits of it.

    ``forward(batch, inputs)`` returns the seeds' logits ``[num_seeds, num_classes]`` float32. A
    model of ``GraphLayer`` (``GNN``) also states what each layer costs, and is evaluated layer by
    layer. Another has ``counted``, and is evaluated so if it ``infers_by_layer``.
    """

    #: Whether ``Inputs.degrees`` is needed for batches of a neighbour sampler.
    uses_degrees: bool = False
    #: Whether ``Inputs.edge_attr`` is needed.
    uses_edge_features: bool = False
    #: Whether weights of edges may change what it computes.
    uses_edge_weights: bool = True
    #: The layers, inputs first, if the model ``infers_by_layer``.
    layers: Sequence[nn.Module] | nn.ModuleList
    #: f^0 .. f^L, features of each layer's rows, inputs first; if there are ``layers``.
    widths: tuple[int, ...] = ()
    #: What a step takes by trial, of a model whose layers do not state their cost.
    counted: cost.CostModel | None = None
    #: Makes of input rows what the first layer reads, row by row; None if it reads input rows.
    encoder: nn.Module | None

    def __init__(self) -> None:
        """Begin a model without an encoder, of rows that a store has."""
        super().__init__()
        self.encoder = None
        #: The input rows if they are learned; None if a store has them.
        self.vertex_rows: LearnedEmbedding | None = None

    @property
    def infers_by_layer(self) -> bool:
        """Whether exact inference is possible: each layer for all vertices before the next one."""
        return False

    @property
    def layer_costs(self) -> tuple[cost.LayerCost, ...]:
        """What each layer states of its cost, inputs first; empty if ``counted`` states it."""
        return ()

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters with gradients that every device has, in the order of ``parameters``."""
        return [each for each in self.parameters() if each.requires_grad]

    def layer(self, index: int) -> GraphLayer:
        """Return layer ``index``, inputs first, of a model that ``infers_by_layer``."""
        raise NotImplementedError

    def reads(self, index: int) -> tuple[int, ...]:
        """Return whose rows of its destinations layer ``index`` takes, besides its input.

        Number 0 stands for the rows that the first layer reads, n for the output of layer n - 1.
        """
        return ()

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
            layer: that ``x`` was loaded for, in place of layer ``index`` and with its output.
            own: ``[num_dst, f]`` each, the rows of destinations that it ``reads``.
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
        """Read the first layer's input from ``store``: the rows of the input vertices.

        Args:
            degrees: ``[num_input_vertices]`` float32 in-degrees, if the model uses them.
            aggregates: whether to aggregate while reading, if the first layer allows it. The
                values are the same.
            dtype: float32 or bfloat16.
        """
        x, traffic = store.gather(batch.input_vertices, dtype=dtype, num_threads=num_threads)
        return Inputs(x=x, aggregated=False, degrees=degrees, traffic=traffic)

    def take_waited_s(self) -> float:
        """Return the seconds since the last call in which propagation waited for other devices.

        A model that is all here never does.
        """
        return 0.0


#: From a model's output rows for a mini-batch, ``[num_seeds, width]`` float32, to the mean loss.
#: That of a mini-batch without seeds is 0, with a gradient of zeros.
Objective: TypeAlias = Callable[[Tensor, MiniBatch], Tensor]


class VertexObjective:
    """The loss of predicting the labels of a mini-batch's seeds."""

    def __init__(self, graph: SplitLabels, measured: losses.Loss) -> None:
        """Compare outputs with the labels of ``graph`` by ``measured``."""
        self._graph = graph
        self._measured = measured

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the seeds."""
        if not batch.num_seeds:
            return outputs.sum()
        return self._measured(outputs, _targets(self._graph, batch.seeds))

    def on(self, device: torch.device) -> Objective:
        """Return the loss of mini-batches whose seeds are a tensor of ``device``, which has labels.

        It copies the labels of all vertices.
        """
        labels = torch.tensor(np.asarray(self._graph.labels), device=device)

        def objective(outputs: Tensor, batch: MiniBatch) -> Tensor:
            if not batch.num_seeds:
                return outputs.sum()
            seeds: Any = batch.seeds
            return self._measured(outputs, _as_targets(labels.index_select(0, seeds)))

        return objective


def vertex_objective(graph: Graph, loss: losses.LossConfig | None = None) -> VertexObjective:
    """Return the loss of predicting the labels of a mini-batch's seeds.

    Args:
        loss: what is minimised; None for what the labels ask for.

    Raises:
        ConfigError: the loss does not go with the labels.
    """
    return VertexObjective(graph, (loss or losses.AutoLoss()).build(graph))


class EdgeObjective:
    """The loss of predicting the labels of a mini-batch's edges."""

    def __init__(self, labels: SplitLabels, measured: losses.Loss) -> None:
        """Compare outputs with ``labels`` by ``measured``."""
        self._labels = labels
        self._measured = measured

    def __call__(self, outputs: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the edges; without edges 0."""
        rows = None if batch.links is None else batch.links.rows
        assert rows is not None
        return self._measured(outputs, _targets(self._labels, rows)) if len(rows) else outputs.sum()


def edge_objective(labels: SplitLabels, loss: losses.LossConfig) -> EdgeObjective:
    """Return the loss of predicting the labels of a mini-batch's edges.

    Raises:
        ConfigError: the loss does not go with the labels.
    """
    return EdgeObjective(labels, loss.build(labels))


def objective_on(objective: Objective, device: torch.device) -> Objective:
    """Return ``objective`` of mini-batches on ``device``; one that reads no labels is the same."""
    return objective.on(device) if isinstance(objective, VertexObjective) else objective


def seed_loss(graph: Graph, outputs: Tensor, seeds: IntArray) -> Tensor:
    """Return the mean loss of some vertices, as their labels ask for it; that of none is 0.

    Args:
        outputs: ``[num_seeds, width]`` float32.
        seeds: ``[num_seeds]`` global vertex ids, none without a label.
    """
    if not len(seeds):
        return outputs.sum()
    return losses.AutoLoss().build(graph)(outputs, _targets(graph, seeds))


def _targets(graph: SplitLabels, seeds: IntArray) -> Tensor:
    """Return the labels of ``seeds`` as a loss takes them."""
    return _as_targets(torch.from_numpy(graph.labels[seeds]))


def _as_targets(labels: Tensor) -> Tensor:
    """Return labels ``[n]`` or ``[n, k]`` as a loss takes them."""
    if labels.is_floating_point():
        return labels.to(torch.float32).reshape(len(labels), -1)
    return labels.to(torch.float32 if labels.ndim == 2 else torch.int64)
