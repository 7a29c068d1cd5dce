"""How weights of a model are named, and laid out, in another library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gnnscale.config import ConfigError
from gnnscale.errors import shown
from gnnscale.model import GNN
from gnnscale.model.options import LayeredModel

__all__ = ["Peer", "Weight", "per_head", "renamed", "transposed", "zero"]

#: Makes a peer's weight of a layer's own ones, by their names, and of its number of heads.
Weight = Callable[[Mapping[str, Tensor], int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another library.

    Attributes:
        name: its own.
        layers: for each architecture a peer's names of the weights of a layer, and how they are
            made of ours. Layer i is ``convs.i``.
        norm: for each architecture and kind of norm what stands before the weights of a norm;
            norm i is ``norms.i``.
        snippet: makes the program that builds the model and loads the file.
        note: for each architecture what has no counterpart, in one line.
    """

    name: str
    layers: Mapping[str, Mapping[str, Weight]]
    norm: Callable[[str, str], str]
    snippet: Callable[[LayeredModel, tuple[int, ...], Path], str]
    note: Mapping[str, str]

    def weights(self, config: LayeredModel, model: GNN) -> dict[str, Tensor]:
        """Return the weights of ``model`` under the peer's names.

        Raises:
            ConfigError: the architecture has no counterpart.
        """
        known = self.layers.get(config.name)
        if known is None:
            raise ConfigError(
                f"format={self.name}: layers of {shown(config.name)} have no counterpart there; "
                f"{', '.join(self.layers)} have, and format=safetensors writes any"
            )
        heads = getattr(config, "num_heads", 1)
        found = {
            f"convs.{index}.{name}": make(layer.state_dict(), heads)
            for index, layer in enumerate(model.layers)
            for name, make in known.items()
        }
        before = self.norm(config.name, config.norm)
        for index, norm in enumerate(model.norms):
            found |= {f"norms.{index}.{before}{k}": each for k, each in norm.state_dict().items()}
        return {name: each.contiguous().clone() for name, each in found.items()}


def renamed(name: str, columns: str = "all") -> Weight:
    """Take weight ``name``: all of it, or the ``first`` or ``second`` half of its columns."""

    def make(layer: Mapping[str, Tensor], _: int) -> Tensor:
        weight = layer[name]
        if columns == "all":
            return weight
        first, second = weight.chunk(2, dim=1)
        return first if columns == "first" else second

    return make


def transposed(name: str) -> Weight:
    """Take weight ``name`` as ``[num_in, num_out]``."""
    return lambda layer, _: layer[name].T


def per_head(name: str, *, repeats: bool = False) -> Weight:
    """Take ``[num_heads, width]`` as ``[1, num_heads, width]``.

    Args:
        name: of the weight.
        repeats: take a bias as one of all heads: where heads are averaged each has the same.
    """

    def make(layer: Mapping[str, Tensor], heads: int) -> Tensor:
        if not repeats:
            return layer[name][None]
        width = layer["attention_src"].shape[1]
        bias = layer[name]
        return bias if len(bias) == heads * width else bias.repeat(heads)

    return make


def zero(_: Mapping[str, Tensor], __: int) -> Tensor:
    """Make a single zero."""
    return torch.zeros(1)
