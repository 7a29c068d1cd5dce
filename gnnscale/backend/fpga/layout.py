"""Layout of a mini-batch for the kernels; see ``fpga/include/gnnscale_fpga/batch.hpp``.

Seeds are divided into groups whose output rows fit into the chip's memory. Blocks of a group have
the edges of the mini-batch that lead to its seeds. A block whose sums exceed the chip's memory is
divided into tiles of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnnscale import ops
from gnnscale.backend.base import DeviceMemoryError
from gnnscale.backend.fpga.lowering import LANES, Product, WeightLayout, coefficients, words
from gnnscale.core import Array, ConfigError, Float32Array, Int32Array, IntArray, UInt8Array
from gnnscale.graph import Graph
from gnnscale.nn import GNN, Inputs
from gnnscale.ops import ArrangedBlock, EdgeTiles
from gnnscale.sampling import MiniBatch

_WORD = 64
#: Bits of ``Stage.flags``.
_ACTIVATES, _DROPS, _CONCATENATES = 1, 2, 4
_PROBABILITIES = 65536
#: Banks of rows for each scatter-gather PE.
_BANKS_OF_PE = 2


@dataclass(frozen=True, kw_only=True)
class ChipLimits:
    """Sizes of the on-chip memories of a compute unit, and its limits on a model.

    They are those of ``fpga/include/gnnscale_fpga/design.hpp``.
    """

    n: int  #: scatter-gather PEs
    row_words: int = 98304  #: words of the memory of output rows and aggregated rows
    gather_rows: int = 16384  #: sums that all gather PEs hold
    max_words_out: int = 32  #: words of the widest output row
    max_stages: int = 16  #: maximum products of a model

    @property
    def banks(self) -> int:
        """Number of banks into which the on-chip memory of rows is divided."""
        return _BANKS_OF_PE * self.n

    def check(self, products: Sequence[Product]) -> None:
        """Raise ConfigError if a model has over ``max_stages`` products or too wide output rows."""
        if len(products) > self.max_stages:
            raise ConfigError(
                f"model.num_layers: expected at most {self.max_stages} products on an fpga, "
                f"got {len(products)}"
            )
        widest = max(product.width_out for product in products)
        if widest > self.max_words_out * LANES:
            raise ConfigError(
                f"model.hidden: expected at most {self.max_words_out * LANES} output features on "
                f"an fpga, got {widest}"
            )


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """Seeds of a mini-batch for one compute unit, with all that computes them.

    The arrays have the layout that the kernel reads.
    """

    batch: UInt8Array  #: bytes of groups, stages, tiles, labels and ids
    edges: UInt8Array  #: bytes of edges
    #: ``[num_words, 16]`` float32 input rows: sixteen columns of all rows, then the next sixteen
    features: Float32Array
    num_groups: int  #: groups of seeds
    num_seeds: int  #: seeds of the compute unit
    scratch_bytes: int  #: memory of aggregated rows that exceed the chip
    num_sources: int  #: input rows over all groups


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """Matrix product of a model for a group of seeds that is computed at a time on the chip.

    It has the product's output rows, as positions, and the arranged edges to them.
    """

    product: Product
    arranged: ArrangedBlock
    rows: Int32Array

    @property
    def padded_rows(self) -> int:
        return _padded(len(self.rows))

    def kept_parts(self, number: int) -> int:
        """Return how many words of an aggregated row are kept for backward propagation.

        A word has 16 columns. If own features and neighbors' sums are concatenated, the first stage
        (``number`` 0) keeps only the sums, since it reads its own rows from the input again.
        """
        slots = self.product.num_slots if number else 1
        return slots * words(self.product.width_in)


class _Buffer:
    """Concatenated arrays, each padded to words of 64 bytes."""

    def __init__(self, num_words: int = 0) -> None:
        self._parts: list[UInt8Array] = []
        self.num_words = num_words

    def add(self, array: Array) -> int:
        """Append ``array``, and return the index of its first word."""
        first = self.num_words
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        self._parts.append(raw)
        if len(raw) % _WORD:
            self._parts.append(np.zeros(_WORD - len(raw) % _WORD, np.uint8))
        self.num_words += -(-len(raw) // _WORD)
        return first

    def join(self, head: Sequence[Int32Array] = ()) -> UInt8Array:
        """Return the bytes of ``head`` and all added arrays, in this order, as one array.

        ``head`` fills the words that the buffer was created with.
        """
        return np.concatenate([*(array.view(np.uint8) for array in head), *self._parts])


def pack_batch(
    graph: Graph,
    model: GNN,
    products: Sequence[Product],
    weights: WeightLayout,
    limits: ChipLimits,
    batch: MiniBatch,
    inputs: Inputs,
    seeds: range,
    *,
    max_row_bytes: int,
    num_threads: int,
) -> PackedBatch:
    """Return the part of ``batch`` that trains ``seeds``, arranged for one compute unit.

    ``seeds`` are positions among the mini-batch's seeds. DeviceMemoryError: the part's input rows
    exceed ``max_row_bytes``, or the output rows of a single seed exceed the chip's memory.
    """
    cut = _groups(model, products, limits, batch, inputs, seeds)
    groups = _checked(cut, words(inputs.x.shape[1]) * _WORD, max_row_bytes, seeds)
    buffer, edges = _Buffer(len(groups)), _Buffer()
    heads, features = [], []
    num_words = scratch = 0
    for stages, part in groups:
        x = ops.gather_columns(inputs.x, _input_rows(stages), num_threads=num_threads)
        described, used = _describe(stages, weights, limits, batch, model, buffer, edges)
        head = [
            buffer.add(described),
            len(stages),
            num_words,
            buffer.add(_labels(graph, batch.seeds[part.start : part.stop])),
            *(len(part), graph.num_classes),
            # Logits follow the outcome.
            1 + (part.start - seeds.start) * words(graph.num_classes),
        ]
        heads.append(np.array([*head, *[0] * 9], np.int32))
        features.append(x.reshape(-1, LANES))
        num_words += len(features[-1])
        scratch = max(scratch, used)
    return PackedBatch(
        batch=buffer.join(heads),
        edges=edges.join(),
        features=features[0] if len(features) == 1 else np.concatenate(features),
        num_groups=len(groups),
        num_seeds=len(seeds),
        scratch_bytes=scratch * _WORD,
        num_sources=sum(len(_input_rows(stages)) for stages, _ in groups),
    )


def _groups(
    model: GNN,
    products: Sequence[Product],
    limits: ChipLimits,
    batch: MiniBatch,
    inputs: Inputs,
    seeds: range,
) -> Iterator[tuple[list[_Stage], range]]:
    """Halve ``seeds`` until the output rows of each resulting group of seeds fit on the chip.

    Yields each group's stages, one for each product, and its seeds, as positions in the
    mini-batch. DeviceMemoryError: the rows of a single seed do not fit.
    """
    if not seeds:
        return
    stages = _arrange(model, products, limits, batch, inputs, seeds)
    problem = _too_large(stages, limits)
    if problem is None:
        yield stages, seeds
    elif len(seeds) == 1:
        raise DeviceMemoryError(
            f"what leads to vertex {batch.seeds[seeds.start]} does not fit on the fpga's chip: "
            f"{problem}; lower sampler.fanouts or model.hidden"
        )
    else:
        middle = (seeds.start + seeds.stop) // 2
        for half in (range(seeds.start, middle), range(middle, seeds.stop)):
            yield from _groups(model, products, limits, batch, inputs, half)


def _checked(
    groups: Iterator[tuple[list[_Stage], range]], row_bytes: int, limit: int, seeds: range
) -> list[tuple[list[_Stage], range]]:
    """Return ``groups`` as a list; DeviceMemoryError: all their input rows exceed ``limit`` bytes.

    ``row_bytes`` are the bytes of an input row, ``seeds`` all seeds, for the message.
    """
    accepted: list[tuple[list[_Stage], range]] = []
    num_bytes = 0
    for stages, part in groups:
        num_bytes += len(_input_rows(stages)) * row_bytes
        if num_bytes > limit:
            raise DeviceMemoryError(
                f"the input rows of {part.stop - seeds.start} of {len(seeds)} seeds, in "
                f"{len(accepted) + 1} groups whose output rows fit on the fpga's chip, take "
                f"{num_bytes:,} bytes, and memory has room for {limit:,}; lower "
                "batch_size, sampler.fanouts or model.hidden"
            )
        accepted.append((stages, part))
    return accepted


def _input_rows(stages: Sequence[_Stage]) -> Int32Array:
    first = stages[0]
    return first.arranged.sources if first.product.aggregates else first.rows


def _arrange(
    model: GNN,
    products: Sequence[Product],
    limits: ChipLimits,
    batch: MiniBatch,
    inputs: Inputs,
    seeds: range,
) -> list[_Stage]:
    """Return a stage for each of ``products``, in order: its output rows for ``seeds``, and edges.

    ``seeds`` are positions of seeds in ``batch``; a later product's source rows are the output rows
    of the product before it.
    """
    rows: Int32Array = np.arange(seeds.start, seeds.stop, dtype=np.int32)
    stages: list[_Stage] = []
    for number in range(len(products) - 1, -1, -1):
        product = products[number]
        tile_rows = limits.gather_rows // product.num_slots
        back = limits.gather_rows if number else None
        if product.aggregates:
            block = batch.blocks[product.layer]
            aggregation = coefficients(model.layer(product.layer), block, inputs.degrees)
            arranged = ops.arrange_block(
                block.indptr,
                block.indices,
                block.num_src,
                destinations=rows,
                weights=aggregation.weights,
                dst_scale=aggregation.dst_scale,
                self_scale=aggregation.self_scale,
                self_term=aggregation.self_term,
                tile_rows=tile_rows,
                backward_tile_rows=back,
                num_banks=limits.n,
            )
        else:
            arranged = _each_by_itself(len(rows), tile_rows, back)
        stages.append(_Stage(product=product, arranged=arranged, rows=rows))
        if product.aggregates:
            rows = arranged.sources
    return stages[::-1]


def _each_by_itself(num_rows: int, tile: int, back: int | None) -> ArrangedBlock:
    """Return an arranged block with a self-edge for every row, and no other edges.

    ``tile`` is the maximum number of rows of a tile, ``back`` of a tile for backward propagation.
    None: no backward propagation.
    """
    return ops.arrange_block(
        np.zeros(num_rows + 1, np.int64),
        np.zeros(0, np.int32),
        num_rows,
        destinations=np.arange(num_rows, dtype=np.int32),
        self_term="add",
        tile_rows=tile,
        backward_tile_rows=back,
    )


def _too_large(stages: Sequence[_Stage], limits: ChipLimits) -> str | None:
    """Return why the output rows of a group of seeds exceed the chip's memory. None: they fit.

    ``stages`` compute the group, one stage for each product of the model.
    """
    needed = sum(_output_words(stage, limits) for stage in stages) * limits.banks
    if needed > limits.row_words:
        return f"output rows take {needed} words of {_WORD} bytes, of {limits.row_words}"
    return None


def _bank_rows(stage: _Stage, limits: ChipLimits) -> int:
    """Return the number of a stage's output rows in the first bank of the chip's memory of rows.

    The other banks have at most as many.
    """
    return -(-stage.padded_rows // limits.banks)


def _output_words(stage: _Stage, limits: ChipLimits) -> int:
    """Return the number of words of 16 floats that a stage's output rows take in each bank."""
    return _bank_rows(stage, limits) * words(stage.product.width_out)


def _describe(
    stages: Sequence[_Stage],
    weights: WeightLayout,
    limits: ChipLimits,
    batch: MiniBatch,
    model: GNN,
    buffer: _Buffer,
    edges: _Buffer,
) -> tuple[Int32Array, int]:
    """Add the arrays of one group of seeds to ``buffer``, and its edges to ``edges``.

    Returns ``[num_stages, 16]`` with a record of each of the group's ``stages``, and the words of
    memory outside the chip for aggregated rows that do not fit on it.
    """
    records = []
    # Output rows are on the chip; aggregated rows use the remaining memory.
    hidden, outside = 0, 0
    kept_words = sum(_output_words(stage, limits) for stage in stages)
    for number, stage in enumerate(stages):
        product, arranged = stage.product, stage.arranged
        vertices = batch.input_vertices[stage.rows].astype(np.int64)
        parts = stage.kept_parts(number)
        bank_rows = _bank_rows(stage, limits)
        on_chip = min(parts, (limits.row_words // limits.banks - kept_words) // bank_rows)
        forward = _tiles(arranged.forward, edges)
        backward = _tiles(arranged.backward, edges) if arranged.backward is not None else []
        records.append(
            [
                len(arranged.sources),
                len(stage.rows),
                words(product.width_in),
                words(product.width_out),
                weights.first_word(number),
                _ACTIVATES * product.activates
                + _DROPS * product.drops
                + _CONCATENATES * (product.num_slots > 1),
                (_drop(model.dropout) if product.drops else 0) + (product.layer << 16),
                buffer.add(vertices) if product.drops else 0,
                hidden,
                kept_words,
                on_chip,
                outside,
                buffer.add(np.array(forward, np.int32)),
                len(forward),
                buffer.add(np.array(backward, np.int32)) if backward else 0,
                len(backward),
            ]
        )
        hidden += _output_words(stage, limits)
        kept_words += on_chip * bank_rows
        outside += (parts - on_chip) * stage.padded_rows
    return np.array(records, np.int32), outside


def _tiles(tiles: EdgeTiles, edges: _Buffer) -> list[list[int]]:
    """Add the edges of ``tiles`` to ``edges``; return a record of 16 words for each tile of rows.

    A record has the tile's first row, number of rows, first word of edges, and number of words.
    """
    first_word = edges.add(tiles.edges)
    records, first_row = [], 0
    for word, num_words, num_rows in tiles.tiles.tolist():
        records.append([first_row, num_rows, first_word + word, num_words, *[0] * 12])
        first_row += num_rows
    return records


def _drop(p: float) -> int:
    """Return a dropout probability in units of 1/65536, rounded as by ``ops.relu_dropout``."""
    return min(round(p * _PROBABILITIES), _PROBABILITIES - 1)


def _labels(graph: Graph, seeds: IntArray) -> Array:
    """Return the labels of vertices ``seeds``, ``[n]`` int32 classes.

    In a multilabel task they are ``[n, words * 16]`` float32 zeros and ones, padded with zeros.
    """
    labels: Array = graph.labels[seeds]
    if not graph.multilabel:
        return labels.astype(np.int32)
    out = np.zeros((len(seeds), words(graph.num_classes) * LANES), np.float32)
    out[:, : graph.num_classes] = labels
    return out


def _padded(num_rows: int) -> int:
    return -(-num_rows // LANES) * LANES
