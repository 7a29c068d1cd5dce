"""Lowering of a model to stages of the FPGA kernels, and the layout of its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from gnnscale.core import ConfigError, Float32Array
from gnnscale.nn import GNN, Connections, CustomLayer, functional, segment_ops
from gnnscale.nn.conv.linear import Degrees, GraphLayer, LinearAggregationLayer
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class EdgeCoefficients:
    """Weights of a block's edges, and of each destination's own features, in an aggregation.

    They are arguments of ``ops.arrange_block``.
    """

    #: whether a row's own features are added to its sum, concatenated, or absent (None)
    self_term: Literal["add", "concat"] | None
    weights: Float32Array | None = None  #: ``[num_edges]`` float32. None: ones
    dst_scale: Float32Array | None = None  #: ``[num_dst]`` float32. None: ones
    self_scale: Float32Array | None = None


@dataclass(frozen=True, kw_only=True)
class Product:
    """Stage of the kernels: a matrix product, with or without aggregation of its input rows.

    An activation, and dropout after the activation, may follow; neither follows the last stage.
    """

    layer: int  #: layer of the model, inputs first
    linear: nn.Linear  #: matrix and bias
    aggregates: bool  #: whether rows are first aggregated over the layer's block
    num_slots: int  #: 2 if own features and the neighbors' sum are concatenated, 1 otherwise
    width_in: int  #: features of a source row
    activates: bool  #: whether an activation follows
    drops: bool  #: whether dropout follows the activation

    @property
    def width_out(self) -> int:
        """Number of features of an output row."""
        return self.linear.out_features


def lower(model: GNN, *, aggregated: bool) -> tuple[Product, ...]:
    """Return the stages that compute ``model``, inputs first.

    ``aggregated``: the host aggregates the first layer's input if that layer permits; the first
    stage then has no aggregation. ConfigError: the kernels cannot compute a part of ``model``.
    """
    if any(not isinstance(norm, nn.Identity) for norm in model.norms):
        raise ConfigError(
            "model.norm: expected none on an fpga, whose kernels have no normalization"
        )
    if model.connections != Connections() or model.encoder is not None:
        raise ConfigError(
            "model: expected layers with ReLU on an fpga; its kernels have no residual or jumping "
            "connections, no SGC and no APPNP"
        )
    if model.input_dropout > 0:
        raise ConfigError(
            f"model.input_dropout={model.input_dropout}: expected 0 on an fpga; model.dropout "
            "drops hidden features"
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
    """Return the weights by which ``layer`` aggregates ``block``: of edges and own features.

    ``degrees`` are full-graph in-degrees of the block's sources. None: ``layer`` needs none.
    """
    if isinstance(layer, LinearAggregationLayer):
        aggregation = layer.aggregation(block, degrees)
        return EdgeCoefficients(
            self_term=aggregation.self_term,
            weights=aggregation.weights,
            dst_scale=aggregation.dst_scale,
            self_scale=aggregation.self_scale,
        )
    assert isinstance(layer, CustomLayer)
    gather, weights, scale = layer.functions.gather, block.importance, None
    if gather == "sum" and degrees is not None:
        scale = functional.sum_scale(block, degrees)
    elif gather == "mean":
        counts = np.diff(block.indptr) if weights is None or degrees is None else degrees
        scale = np.float32(1) / np.maximum(counts[: block.num_dst], 1).astype(np.float32)
    linear = _linears(layer)[0]
    has_self_product = linear.in_features == 2 * layer.width_in
    return EdgeCoefficients(
        self_term="concat" if has_self_product else None,
        weights=None if gather == "max" else weights,
        dst_scale=scale,
    )


def kernel_header(model: GNN) -> Path | None:
    """Return the C++ header of the model's user-defined layers. None: it has no such layers.

    ConfigError: the header is not set or missing, or not all layers are of one user-defined class.
    """
    layers = [model.layer(index) for index in range(len(model.layers))]
    custom = {type(layer.functions) for layer in layers if isinstance(layer, CustomLayer)}
    if not custom:
        return None
    if len(custom) > 1 or not all(isinstance(layer, CustomLayer) for layer in layers):
        raise ConfigError("model: expected one kernel_header for all layers on an fpga")
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
    """Return the linear modules of a layer in order.

    ConfigError: the kernels cannot compute the layer.
    """
    linears = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    if isinstance(layer, CustomLayer):
        name = type(layer.functions).__name__
        if layer.scatters_per_edge or not isinstance(layer.functions.gather, str):
            raise ConfigError(
                f"{name}: expected on an fpga a scatter of source rows, and gather one of "
                f"{', '.join(segment_ops.REDUCTIONS)}"
            )
        if not _is_one_product(layer, linears):
            raise ConfigError(
                f"{name}: expected on an fpga an update by one torch.nn.Linear of the gathered "
                "rows, or of own and gathered rows"
            )
    elif not isinstance(layer, LinearAggregationLayer) or any(
        linear.bias is None for linear in linears
    ):
        raise ConfigError(
            f"model: {type(layer).__name__} does not run on an fpga; GCN, GraphSAGE, GIN and "
            "custom layers with a header do"
        )
    return linears


def _is_one_product(layer: CustomLayer, linears: Sequence[nn.Linear]) -> bool:
    """Return whether a user-defined layer has one linear module and no other parameters.

    The module's widths must be those of a map from gathered rows, or own and gathered rows
    concatenated, to the layer's output.
    """
    return (
        len(linears) == 1
        and linears[0].in_features in (layer.width_in, 2 * layer.width_in)
        and linears[0].out_features == layer.width_out
        and len(list(layer.parameters())) == len(list(linears[0].parameters()))
    )


#: Floats in a word of 512 bits.
LANES = 16


def words(width: int) -> int:
    """Return the number of 512-bit words that ``width`` floats take."""
    return -(-width // LANES)


@dataclass(frozen=True, kw_only=True)
class _WeightEntry:
    """Position in a ``WeightLayout`` of a product's weights and, after them, its bias.

    Weights are ``[num_slots, words_in * 16, words_out * 16]``: widths in full words of 16 floats,
    and 2 slots if own features and neighbors' sums are concatenated, 1 otherwise.
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
    """Layout of all products' weights, or their gradients, in one float32 array.

    Zeros pad each row to full words of 512 bits.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self._entries: list[_WeightEntry] = []
        first = 0
        for product in products:
            entry = _WeightEntry(product=product, first=first)
            self._entries.append(entry)
            first += entry.num_floats
        self._num_floats = first
        self._packed = np.zeros(first, np.float32)

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights and biases, padding included."""
        return self._num_floats * self._packed.itemsize

    def first_word(self, number: int) -> int:
        """Return the offset of the weights of the product at index ``number``, in 512-bit words."""
        return self._entries[number].first // LANES

    @torch.no_grad()
    def pack(self) -> Float32Array:
        """Copy the model's current weights to the layout's array, and return the array.

        ``[num_bytes / 4]`` float32; the next call overwrites it.
        """
        for entry in self._entries:
            weight, bias = self._views(self._packed, entry)
            linear = entry.product.linear
            weight[:] = _by_slot(linear.weight.numpy(), entry.product)
            if linear.bias is not None:
                bias[:] = linear.bias.numpy()
        return self._packed

    def unpack(self, gradients: Float32Array) -> dict[torch.Tensor, torch.Tensor]:
        """Return a copy of each parameter's gradient, by parameter.

        ``gradients`` is an array in this layout, as ``pack`` returns one for the weights.
        """
        by_parameter: dict[torch.Tensor, torch.Tensor] = {}
        for entry in self._entries:
            weight, bias = self._views(gradients, entry)
            linear, slots = entry.product.linear, entry.product.num_slots
            copied = np.array(weight.transpose(2, 0, 1), order="C")
            out = copied.reshape(linear.out_features, -1)
            assert out.shape[1] == slots * entry.product.width_in
            by_parameter[linear.weight] = torch.from_numpy(out)
            if linear.bias is not None:
                by_parameter[linear.bias] = torch.from_numpy(bias.copy())
        return by_parameter

    @staticmethod
    def _views(packed: Float32Array, entry: _WeightEntry) -> tuple[Float32Array, Float32Array]:
        """Return the weights and the bias of ``entry`` as views of ``packed``, without the padding.

        Weights are ``[num_slots, width_in, width_out]``, the bias ``[width_out]``.
        """
        slots, rows, columns = entry.shape
        product, end = entry.product, entry.first + slots * rows * columns
        weight = packed[entry.first : end].reshape(entry.shape)
        return (
            weight[:, : product.width_in, : product.width_out],
            packed[end : end + product.width_out],
        )


def _by_slot(weight: Float32Array, product: Product) -> Float32Array:
    """Return a linear module's ``weight`` as a view ``[num_slots, width_in, width_out]``.

    There are 2 slots if own features and neighbors' sums are concatenated, 1 otherwise.
    """
    shape = (product.width_out, product.num_slots, product.width_in)
    by_slot: Float32Array = weight.reshape(shape).transpose(1, 2, 0)
    return by_slot
