"""Models of edges: a graph neural network, and a decoder of the output rows of both ends."""

from copy import copy
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnscale.nn.base import TrainableModel
from gnnscale.nn.conv.linear import SAGELayer
from gnnscale.nn.gnn import GNN
from gnnscale.nn.segment_ops import take
from gnnscale.nn.typed.model import TypedGNN
from gnnscale.nn.typed.relational import RSAGELayer
from gnnscale.sampling import Links, MiniBatch


class DotProduct(nn.Module):
    """Decoder whose score of an edge is the dot product of its ends' rows."""

    #: Temporary floats per pair while it is scored, without the score.
    hidden_width = 0

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Return scores ``[...]`` of rows ``[..., f]``, which are broadcast."""
        return (source * destination).sum(-1)

    def score_all_pairs(self, sources: Tensor, destinations: Tensor, out: Tensor) -> None:
        """Write the scores ``[s, d]`` of all pairs of rows ``[s, f]`` and ``[d, f]`` to ``out``."""
        torch.mm(sources, destinations.T, out=out)


class PairNetwork(nn.Module):
    """Decoder with one hidden layer over the elementwise product of the ends' rows."""

    def __init__(self, width: int) -> None:
        """Build the network for rows, and a hidden layer, of ``width`` features."""
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Return scores ``[...]`` of rows ``[..., f]``, which are broadcast."""
        scores: Tensor = self.score(self.hidden(source * destination).relu())
        return scores.squeeze(-1)

    @property
    def hidden_width(self) -> int:
        """Temporary floats per pair while it is scored, in addition to the score."""
        return 3 * self.hidden.in_features

    def score_all_pairs(self, sources: Tensor, destinations: Tensor, out: Tensor) -> None:
        """Write the scores ``[s, d]`` of all pairs of rows ``[s, f]`` and ``[d, f]`` to ``out``."""
        out.copy_(self(sources[:, None], destinations[None]))


#: Module that scores two rows.
Decoder: TypeAlias = DotProduct | PairNetwork


def make_decoder(kind: str, width: int) -> Decoder:
    """Build the decoder ``kind``, one of ``DECODERS``, for rows of ``width`` features."""
    return DotProduct() if kind == "dot" else PairNetwork(width)


def initialize_rows(gnn: TrainableModel) -> None:
    """Initialize anew the GraphSAGE weights of ``gnn``, as a dot product of output rows needs.

    The gradient of a dot product is as small as the rows. The weights of own and of aggregated rows
    (of each edge type) are therefore initialized separately by Glorot's rule with the gain of ReLU.
    Biases are not 0, so that the scores of all pairs can rise and fall together, as in DGL's
    ``SAGEConv``.
    """
    for layer in gnn.layers:
        if isinstance(layer, SAGELayer):
            _initialize(layer.linear, num_parts=2)
        elif isinstance(layer, RSAGELayer):
            for product, edge_types in zip(layer.linears, layer.incoming, strict=True):
                assert isinstance(product, nn.Linear)
                _initialize(product, num_parts=1 + len(edge_types))


def _initialize(product: nn.Linear, *, num_parts: int) -> None:
    """Initialize the weights of ``num_parts`` rows that stand side by side, and the bias."""
    # Sums of more rows are not larger than those of two.
    gain = nn.init.calculate_gain("relu") * (2 / num_parts) ** 0.5
    for part in product.weight.detach().chunk(num_parts, dim=1):
        nn.init.xavier_uniform_(part, gain=gain)
    bound = (product.in_features // num_parts) ** -0.5
    nn.init.uniform_(product.bias, -bound, bound)


class PairModel(TrainableModel):
    """Base of models with outputs for edges, beside the class of the model that computes rows.

    ``forward`` returns ``decode`` of the edges in ``MiniBatch.links``. For a mini-batch without
    links, or a full graph in plain tensors, it returns the output rows of vertices.
    """

    def __init__(self, gnn: TrainableModel) -> None:
        """Take over layers and options of ``gnn``, a model of the class beside this one."""
        # As ``copy.copy``, but with dictionaries of its own: the decoder is no module of ``gnn``.
        parts = vars(gnn).items()
        vars(self).update({name: copy(x) if isinstance(x, dict) else x for name, x in parts})

    def forward(self, batch: Any, inputs: Any, *args: Any, **options: Any) -> Tensor:
        """Return float32 outputs of the edges ``batch.links``; without links, rows of vertices.

        Arguments are those of the model beside this class.
        """
        rows: Tensor = super().forward(batch, inputs, *args, **options)
        links = None if isinstance(batch, Tensor) else batch.links
        return rows if links is None else self.decode(rows, links)

    def decode(self, rows: Tensor, links: Links) -> Tensor:
        """Return outputs of the edges ``links`` between ``rows``; subclasses define it."""
        raise NotImplementedError


class LinkModel(PairModel):
    """Model with a decoder that scores pairs of its output rows."""

    def __init__(self, gnn: TrainableModel, decoder: Decoder) -> None:
        """Use the layers of ``gnn``, and ``decoder``."""
        super().__init__(gnn)
        self.decoder = decoder

    def decode(self, rows: Tensor, links: Links) -> Tensor:
        """Return scores ``[n, 1 + k]``: of an edge, then of its k negatives."""
        sources = take(rows, links.sources)
        destinations = take(rows, links.destinations.reshape(-1))
        shape = (*links.destinations.shape, rows.shape[1])
        return self.decoder(sources[:, None], destinations.view(shape))  # type: ignore[no-any-return]


class LinkGNN(LinkModel, GNN):
    """Graph neural network with a decoder that scores edges."""


class TypedLinkGNN(LinkModel, TypedGNN):
    """Graph neural network over graphs with types, with a decoder that scores edges."""


def with_decoder(gnn: TrainableModel, decoder: Decoder) -> LinkModel:
    """Return the model of the layers of ``gnn``, whose output rows ``decoder`` compares."""
    kind = TypedLinkGNN if isinstance(gnn, TypedGNN) else LinkGNN
    return kind(gnn, decoder)


class EdgeNetwork(nn.Module):
    """Network with one hidden layer over the concatenated rows of both ends and edge features."""

    def __init__(self, width: int, num_edge_features: int, num_outputs: int) -> None:
        """Build the network for rows, and a hidden layer, of ``width`` features."""
        super().__init__()
        self.width_in = 2 * width + num_edge_features  #: floats of an edge's input row
        self.hidden = nn.Linear(self.width_in, width)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, source: Tensor, destination: Tensor, features: Tensor | None) -> Tensor:
        """Return outputs ``[n, num_outputs]`` of n edges.

        ``source`` and ``destination`` are ``[n, width]``, ``features`` ``[n, num_edge_features]``
        or None.
        """
        inputs = [source, destination] if features is None else [source, destination, features]
        outputs: Tensor = self.output(self.hidden(torch.cat(inputs, dim=1)).relu())
        return outputs


class EdgeModel(PairModel):
    """Model with an ``EdgeNetwork`` over the rows of an edge's ends."""

    def __init__(self, gnn: TrainableModel, network: EdgeNetwork) -> None:
        """Use the layers of ``gnn``, and ``network``."""
        super().__init__(gnn)
        self.network = network

    def decode(self, rows: Tensor, links: Links) -> Tensor:
        """Return outputs ``[n, num_outputs]`` of edges, from both ends' rows and edge features."""
        sources = take(rows, links.sources)
        destinations = take(rows, links.destinations.reshape(-1))
        features = None if links.features is None else torch.from_numpy(links.features)
        outputs: Tensor = self.network(sources, destinations, features)
        return outputs


class EdgeGNN(EdgeModel, GNN):
    """Graph neural network with a network that predicts labels of edges."""


class TypedEdgeGNN(EdgeModel, TypedGNN):
    """Graph neural network over graphs with types, with a network for labels of edges."""


def with_network(gnn: TrainableModel, network: EdgeNetwork) -> EdgeModel:
    """Return the model of the layers of ``gnn``, from whose output rows ``network`` predicts."""
    kind = TypedEdgeGNN if isinstance(gnn, TypedGNN) else EdgeGNN
    return kind(gnn, network)


def link_objective(scores: Tensor, batch: MiniBatch) -> Tensor:
    """Return the mean binary cross-entropy of edges and negatives; 0 without edges.

    ``scores`` ``[n, 1 + k]`` has the edge in the first column, its k negatives in the other
    columns.
    """
    if not len(scores):
        return scores.sum()
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return functional.binary_cross_entropy_with_logits(scores, targets)


def ranking_objective(scores: Tensor, batch: MiniBatch) -> Tensor:
    """Return the mean of ``-log sigmoid(edge - negative)`` of all negatives; 0 without edges.

    This is Bayesian personalized ranking (Rendle et al., 2009). ``scores`` are as in
    ``link_objective``.
    """
    if not len(scores):
        return scores.sum()
    return functional.softplus(scores[:, 1:] - scores[:, :1]).mean()


def softmax_objective(scores: Tensor, batch: MiniBatch) -> Tensor:
    """Return the mean cross-entropy of the edge among itself and its negatives; 0 without edges.

    Hard negatives count most: the gradient weighs a negative by its softmax. ``scores`` are as in
    ``link_objective``.
    """
    if not len(scores):
        return scores.sum()
    return (scores.logsumexp(1) - scores[:, 0]).mean()


#: Objective of link prediction by name of the loss, ``LINK_LOSSES``.
LINK_OBJECTIVES = {"bce": link_objective, "bpr": ranking_objective, "softmax": softmax_objective}
