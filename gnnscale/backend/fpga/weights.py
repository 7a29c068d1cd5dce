"""The model's weights as the kernels read them, and its gradients as they write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.fpga.lowering import Product

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
    def pack(self) -> NDArray[np.float32]:
        """Return the present weights, ``[num_bytes / 4]``; the next call overwrites the array."""
        for place in self._places:
            weight, bias = self._views(self._packed, place)
            linear = place.product.linear
            weight[:] = _by_slot(linear.weight.numpy(), place.product)
            if linear.bias is not None:
                bias[:] = linear.bias.numpy()
        return self._packed

    def unpack(self, gradients: NDArray[np.float32]) -> dict[torch.Tensor, torch.Tensor]:
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
    def _views(
        packed: NDArray[np.float32], place: _Place
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what is not padding: ``[num_slots, width_in, width_out]``, and ``[width_out]``."""
        slots, rows, columns = place.shape
        product, end = place.product, place.first + slots * rows * columns
        weight = packed[place.first : end].reshape(place.shape)
        return (
            weight[:, : product.width_in, : product.width_out],
            packed[end : end + product.width_out],
        )


def _by_slot(weight: NDArray[np.float32], product: Product) -> NDArray[np.float32]:
    """Return ``[num_slots, width_in, width_out]`` of the matrix that torch holds transposed."""
    shape = (product.width_out, product.num_slots, product.width_in)
    by_slot: NDArray[np.float32] = weight.reshape(shape).transpose(1, 2, 0)
    return by_slot
