"""Scores of edges: a graph neural network whose output rows are compared pair by pair."""

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnscale.nn import base as trainable
from gnnscale.nn import segment_ops as segments
from gnnscale.nn.conv.linear import SAGELayer
from gnnscale.nn.gnn import GNN
from gnnscale.sampling import MiniBatch
from gnnscale.sampling.minibatch import Links


class DotProduct(nn.Module):
    """The score of an edge is the dot product of its ends' rows."""

    #: Floats that a pair takes while it is scored, beside its score.
    hidden_width = 0

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Return ``[...]`` scores of rows ``[..., f]``, which are broadcast."""
        return (source * destination).sum(-1)

    def every_pair(self, sources: Tensor, destinations: Tensor, out: Tensor) -> None:
        """Put the scores from each of rows ``[s, f]`` to each of rows ``[d, f]`` into ``out``."""
        torch.mm(sources, destinations.T, out=out)


class PairNetwork(nn.Module):
    """The score is that of a network with one hidden layer over the ends' elementwise product."""

    def __init__(self, width: int) -> None:
        """Build the network for rows of ``width`` features, which the hidden layer has as well."""
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Return ``[...]`` scores of rows ``[..., f]``, which are broadcast."""
        scores: Tensor = self.score(self.hidden(source * destination).relu())
        return scores.squeeze(-1)

    @property
    def hidden_width(self) -> int:
        """Floats that a pair takes while it is scored, beside its score."""
        return 3 * self.hidden.in_features

    def every_pair(self, sources: Tensor, destinations: Tensor, out: Tensor) -> None:
        """Put the scores from each of rows ``[s, f]`` to each of rows ``[d, f]`` into ``out``."""
        out.copy_(self(sources[:, None], destinations[None]))


#: What makes a score of two rows.
Decoder: TypeAlias = DotProduct | PairNetwork


def make_decoder(kind: str, width: int) -> Decoder:
    """Build the decoder ``kind``, one of ``DECODERS``, of rows of ``width`` features."""
    return DotProduct() if kind == "dot" else PairNetwork(width)


def initialise_rows(gnn: GNN) -> None:
    """Draw the weights of GraphSAGE layers anew, so that rows are large enough to be compared.

    The gradient of a dot product is as small as the rows. Glorot's bound is that of a vertex's own
    row and of its neighbours' each, with the gain of ReLU: about twice that of both together.
    Biases are not 0, so that scores of all pairs can rise and fall together. Both are as in DGL's
    ``SAGEConv``. Weights come from torch's global generator.
    """
    gain = nn.init.calculate_gain("relu")
    for layer in gnn.layers:
        if isinstance(layer, SAGELayer):
            for half in layer.linear.weight.detach().chunk(2, dim=1):
                nn.init.xavier_uniform_(half, gain=gain)
            bound = (layer.linear.in_features // 2) ** -0.5
            nn.init.uniform_(layer.linear.bias, -bound, bound)


class PairGNN(GNN):
    """A graph neural network whose output rows are compared, edge by edge.

    Its forward returns what ``outputs`` makes of the edges in ``MiniBatch.links``; of a mini-batch
    without them, and of a whole graph in plain tensors, the output rows.
    """

    def __init__(self, gnn: GNN) -> None:
        """Take the layers of ``gnn``."""
        norms = list(gnn.norms)
        layers = [gnn.layer(index) for index in range(len(gnn.layers))]
        super().__init__(layers, norms, gnn.dropout, gnn.widths, **gnn.shared_parts)

    def forward(
        self,
        batch: MiniBatch | Tensor,
        inputs: trainable.Inputs | Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return outputs of edges, or rows, float32."""
        rows = super().forward(batch, inputs, edge_weight, edge_attr)
        links = None if isinstance(batch, Tensor) else batch.links
        return rows if links is None else self.outputs(rows, links)

    def outputs(self, rows: Tensor, links: Links) -> Tensor:
        """Return outputs of the edges ``links`` between vertices with output rows ``rows``."""
        raise NotImplementedError


class LinkGNN(PairGNN):
    """A graph neural network and the decoder of its output rows."""

    def __init__(self, gnn: GNN, decoder: Decoder) -> None:
        """Take the layers of ``gnn``, and ``decoder``."""
        super().__init__(gnn)
        self.decoder = decoder

    def outputs(self, rows: Tensor, links: Links) -> Tensor:
        """Return scores ``[n, 1 + k]`` of edges and their negatives."""
        sources = segments.take(rows, links.sources)
        destinations = segments.take(rows, links.destinations.reshape(-1))
        shape = (*links.destinations.shape, rows.shape[1])
        scores: Tensor = self.decoder(sources[:, None], destinations.view(shape))
        return scores


class EdgeNetwork(nn.Module):
    """Outputs of an edge: a network with one hidden layer over both ends' rows and its features."""

    def __init__(self, width: int, num_edge_features: int, num_outputs: int) -> None:
        """Build the network for rows of ``width`` features, which the hidden layer has as well."""
        super().__init__()
        self.width_in = 2 * width + num_edge_features  #: floats that an edge is predicted from
        self.hidden = nn.Linear(self.width_in, width)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, source: Tensor, destination: Tensor, features: Tensor | None) -> Tensor:
        """Return ``[n, num_outputs]`` of rows ``[n, width]`` and ``[n, num_edge_features]``."""
        given = [source, destination] if features is None else [source, destination, features]
        outputs: Tensor = self.output(self.hidden(torch.cat(given, dim=1)).relu())
        return outputs


class EdgeGNN(PairGNN):
    """A graph neural network, and the network that makes outputs of an edge of its ends' rows."""

    def __init__(self, gnn: GNN, network: EdgeNetwork) -> None:
        """Take the layers of ``gnn``, and ``network``."""
        super().__init__(gnn)
        self.network = network

    def outputs(self, rows: Tensor, links: Links) -> Tensor:
        """Return outputs ``[n, num_outputs]`` of edges with or without features."""
        sources = segments.take(rows, links.sources)
        destinations = segments.take(rows, links.destinations.reshape(-1))
        features = None if links.features is None else torch.from_numpy(links.features)
        outputs: Tensor = self.network(sources, destinations, features)
        return outputs


def link_objective(scores: Tensor, batch: MiniBatch) -> Tensor:
    """Return the mean binary cross-entropy of edges and negatives; that of none is 0.

    Args:
        scores: ``[n, 1 + k]`` of the edges themselves in the first column, of negatives in others.
    """
    if not len(scores):
        return scores.sum()
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return functional.binary_cross_entropy_with_logits(scores, targets)
