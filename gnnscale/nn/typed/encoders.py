"""Encoders: from the features of a vertex type to the hidden rows that the first layer reads."""

from torch import Tensor, nn

from gnnscale.nn.conv.linear import linear
from gnnscale.nn.gnn import make_norm, normalize


class NormalizedEncoder(nn.Sequential):
    """Encoder of two products: ``W' relu(N(W x + b)) + b'``, where N is layer normalization.

    Rows of features beyond those of training, such as later dates, stay bounded. RelBench's
    encoders (Robinson et al. 2024) are blocks of these steps.
    """

    def __init__(self, width: int, hidden: int) -> None:
        """Encode rows of ``width`` features as ``hidden`` ones."""
        norm = make_norm("layer", hidden)
        super().__init__(nn.Linear(width, hidden), norm, nn.ReLU(), nn.Linear(hidden, hidden))

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``[n, hidden]`` of ``rows`` ``[n, width]``."""
        first, norm, _, second = self
        hidden = normalize(norm, linear(first, rows)).relu()  # type: ignore[arg-type]
        return linear(second, hidden)  # type: ignore[arg-type]


def make_encoder(kind: str, width: int, hidden: int) -> nn.Module:
    """Build the encoder ``kind``, one of ``ENCODERS``, for rows of ``width`` features."""
    return nn.Linear(width, hidden) if kind == "linear" else NormalizedEncoder(width, hidden)


def initialize_encoders(encoders: nn.ModuleList) -> None:
    """Initialize the weights of ``encoders`` by Glorot's rule, and biases by 0."""
    for module in encoders.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
