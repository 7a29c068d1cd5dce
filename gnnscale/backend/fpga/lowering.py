"""From a model to the stages of the kernels, and to its weights as the kernels read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from gnnscale.core import ConfigError, Float32Array
from gnnscale.nn import GNN, functional
from gnnscale.nn import segment_ops as segments
from gnnscale.nn.conv.linear import Degrees, GraphLayer, LinearAggregationLayer
from gnnscale.nn.gnn import Connections
from gnnscale.nn.scatter_gather import CustomLayer
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class EdgeCoefficients:
    """The weights of a block's edges, as ``ops.arrange_block`` takes them.

    Attributes:
        self_term: whether a row's own features are added to its sum, kept beside it, or neither.
        weights: ``[num_edges]`` float32, None for ones.
        dst_scale, self_scale: ``[num_dst]`` float32, None for ones.
    """

    self_term: Literal["add", "concat"] | None
    weights: Float32Array | None = None
    dst_scale: Float32Array | None = None
    self_scale: Float32Array | None = None


@dataclass(frozen=True, kw_only=True)
class Product:
    """A stage of the kernels."""

    layer: int  #: of the model, inputs first
    linear: nn.Linear  #: its matrix and bias
    #: whether rows are aggregated over the layer's block before; each row stands for itself
    #: otherwise
    aggregates: bool
    num_slots: int  #: sums of each row: 2 if its own features are kept beside its neighbours'
    width_in: int  #: features of a source row
    activates: bool  #: whether the activation comes after it
    drops: bool  #: whether dropout comes after that

    @property
    def width_out(self) -> int:
        """Features of an output row."""
        return self.linear.out_features


def lower(model: GNN, *, aggregated: bool) -> tuple[Product, ...]:
    """Return the stages that compute ``model``, inputs first.

    Args:
        aggregated: whether the host aggregates the first layer, if that layer lets it.

    Raises:
        ConfigError: the kernels cannot compute it.
    """
    if any(not isinstance(norm, nn.Identity) for norm in model.norms):
        raise ConfigError(
            "model.norm: must be none on an fpga, whose kernels know no normalisation"
        )
    if model.connections != Connections() or model.encoder is not None:
        raise ConfigError(
            "model: an fpga's kernels know ReLU between layers, and no residual or jumping "
            "connections, no SGC and no APPNP"
        )
    if model.input_dropout > 0:
        raise ConfigError(
            f"model.input_dropout={model.input_dropout}: expected 0 on an fpga, whose kernels drop "
            f"hidden features alone, got {model.input_dropout}; model.dropout drops these"
        )
    products: list[Product] = []
    last = len(model.layers) - 1
    aggregated = aggregated and model.layer(0).aggregates_on_load
    for index in range(len(model.layers)):
        linears = _linears(model.layer(index))
        for number, linear in enumerate(linears):
            ends = number + 1 == len(linears)
            gathers = number == 0 and not (aggregated and index == 0)
            width = model.widths[index] if gathers else linear.in_features
            products.append(
                Product(
                    layer=index,
                    linear=linear,
                    aggregates=gathers,
                    num_slots=linear.in_features // width,
                    width_in=width,
                    activates=not ends or index != last,
                    drops=ends and index != last and model.dropout > 0,
                )
            )
    return tuple(products)


def coefficients(layer: GraphLayer, block: Block, degrees: Degrees) -> EdgeCoefficients:
    """Return the weights of the edges of ``block`` in ``layer``.

    Args:
        degrees: ``[at least num_src]`` float32 in-degrees in the whole graph, if used.
    """
    if isinstance(layer, LinearAggregationLayer):
        found = layer.aggregation(block, degrees)
        return EdgeCoefficients(
            self_term=found.self_term,
            weights=found.weights,
            dst_scale=found.dst_scale,
            self_scale=found.self_scale,
        )
    assert isinstance(layer, CustomLayer)
    gather, weights, scale = layer.functions.gather, block.importance, None
    if gather == "sum" and degrees is not None:
        scale = functional.sum_scale(block, degrees)
    elif gather == "mean":
        counts = np.diff(block.indptr) if weights is None or degrees is None else degrees
        scale = np.float32(1) / np.maximum(counts[: block.num_dst], 1).astype(np.float32)
    linear = _linears(layer)[0]
    own = linear.in_features == 2 * layer.width_in
    return EdgeCoefficients(
        self_term="concat" if own else None,
        weights=None if gather == "max" else weights,
        dst_scale=scale,
    )


def kernel_header(model: GNN) -> Path | None:
    """Return the header of the functions of a user's layers; None for the library's own.

    Raises:
        ConfigError: custom layers have none, or more than one, or no such file.
    """
    layers = [model.layer(index) for index in range(len(model.layers))]
    custom = {type(each.functions) for each in layers if isinstance(each, CustomLayer)}
    if not custom:
        return None
    if len(custom) > 1 or not all(isinstance(each, CustomLayer) for each in layers):
        raise ConfigError("model: an fpga computes all layers with one header of functions")
    (functions,) = custom
    header = functions.kernel_header
    if header is None:
        raise ConfigError(
            f"{functions.__name__}.kernel_header=None: an fpga needs a C++ header with the same "
            "scatter, gather and update; docs/fpga.md says how"
        )
    if not Path(header).is_file():
        raise ConfigError(f"{functions.__name__}.kernel_header={header}: no such file")
    return Path(header).resolve()


def _linears(layer: GraphLayer) -> list[nn.Linear]:
    """Return a layer's products in their order."""
    linears = [each for each in layer.modules() if isinstance(each, nn.Linear)]
    if isinstance(layer, CustomLayer):
        name = type(layer.functions).__name__
        if layer.scatters_per_edge or not isinstance(layer.functions.gather, str):
            raise ConfigError(
                f"{name}: an fpga scatters along edges what the source's row says, and gathers by "
                f"{', '.join(segments.REDUCTIONS)}"
            )
        if not _is_one_product(layer, linears):
            raise ConfigError(
                f"{name}: an fpga computes layers whose update is one "
                "torch.nn.Linear of what was gathered, or of own and gathered rows"
            )
    elif not isinstance(layer, LinearAggregationLayer) or any(
        each.bias is None for each in linears
    ):
        raise ConfigError(
            f"model: {type(layer).__name__} does not run on an fpga; GCN, GraphSAGE, GIN and "
            "custom layers with a header do"
        )
    return linears


def _is_one_product(layer: CustomLayer, linears: Sequence[nn.Linear]) -> bool:
    """Return whether all weights of a user's layer are one matrix and its bias."""
    return (
        len(linears) == 1
        and linears[0].in_features in (layer.width_in, 2 * layer.width_in)
        and linears[0].out_features == layer.width_out
        and len(list(layer.parameters())) == len(list(linears[0].parameters()))
    )


#: Floats of a word of 512 bits.
LANES = 16


def words(width: int) -> int:
    """Return the words that ``width`` floats take."""
    return -(-width // LANES)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a product's weights lie.

    They are ``[num_slots, words_in * 16, words_out * 16]``, and then the bias.
    """

    product: Product
    first: int

    @property
    def shape(self) -> tuple[int, int, int]:
        product = self.product
        return (
            product.num_slots,
            words(product.width_in) * LANES,
            words(product.width_out) * LANES,
        )

    @property
    def num_floats(self) -> int:
        slots, rows, columns = self.shape
        return (slots * rows + 1) * columns


class WeightLayout:
    """The weights of all products, one after the other; gradients lie in the same way.

    The rows of a matrix are those of the source rows' columns, sixteen in a word, and zeros.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        """Lay out the weights of ``products``."""
        self._places: list[_Place] = []
        first = 0
        for product in products:
            place = _Place(product=product, first=first)
            self._places.append(place)
            first += place.num_floats
        self._num_floats = first
        self._packed = np.zeros(first, np.float32)

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return self._num_floats * self._packed.itemsize

    def first_word(self, number: int) -> int:
        """Return the word at which the weights of product ``number`` begin."""
        return self._places[number].first // LANES

    @torch.no_grad()
    def pack(self) -> Float32Array:
        """Return the present weights, ``[num_bytes / 4]``; the next call overwrites the array."""
        for place in self._places:
            weight, bias = self._views(self._packed, place)
            linear = place.product.linear
            weight[:] = _by_slot(linear.weight.numpy(), place.product)
            if linear.bias is not None:
                bias[:] = linear.bias.numpy()
        return self._packed

    def unpack(self, gradients: Float32Array) -> dict[torch.Tensor, torch.Tensor]:
        """Return the gradient of each parameter.

        Args:
            gradients: ``[num_bytes / 4]`` in the layout of ``pack``.
        """
        found: dict[torch.Tensor, torch.Tensor] = {}
        for place in self._places:
            weight, bias = self._views(gradients, place)
            linear, slots = place.product.linear, place.product.num_slots
            copied = np.array(weight.transpose(2, 0, 1), order="C")
            out = copied.reshape(linear.out_features, -1)
            assert out.shape[1] == slots * place.product.width_in
            found[linear.weight] = torch.from_numpy(out)
            if linear.bias is not None:
                found[linear.bias] = torch.from_numpy(bias.copy())
        return found

    @staticmethod
    def _views(packed: Float32Array, place: _Place) -> tuple[Float32Array, Float32Array]:
        """Return what is not padding: ``[num_slots, width_in, width_out]``, and ``[width_out]``."""
        slots, rows, columns = place.shape
        product, end = place.product, place.first + slots * rows * columns
        weight = packed[place.first : end].reshape(place.shape)
        return (
            weight[:, : product.width_in, : product.width_out],
            packed[end : end + product.width_out],
        )


def _by_slot(weight: Float32Array, product: Product) -> Float32Array:
    """Return ``[num_slots, width_in, width_out]`` of the matrix that torch holds transposed."""
    shape = (product.width_out, product.num_slots, product.width_in)
    by_slot: Float32Array = weight.reshape(shape).transpose(1, 2, 0)
    return by_slot
