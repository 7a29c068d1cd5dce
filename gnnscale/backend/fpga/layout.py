"""A mini-batch as the kernels read it: see ``fpga/include/gnnscale_fpga/batch.hpp``.

Seeds are cut into groups whose output rows fit into the memory on the chip. The blocks of a group
are those edges of the mini-batch that lead to its seeds. If the sums of a block do not fit on
the chip at once, its rows are cut into tiles.
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
#: Of ``Stage.flags``.
_ACTIVATES, _DROPS, _CONCATENATES = 1, 2, 4
_PROBABILITIES = 65536
#: Banks of rows, for each scatter-gather PE.
_BANKS_OF_PE = 2


@dataclass(frozen=True, kw_only=True)
class ChipLimits:
    """The sizes of a compute unit, as ``fpga/include/gnnscale_fpga/design.hpp`` has them."""

    n: int  #: scatter-gather PEs
    row_words: int = 98304  #: of the memory of all layers' output rows, and of aggregated ones
    gather_rows: int = 16384  #: sums of all gather PEs
    max_words_out: int = 32  #: of the widest output row
    max_stages: int = 16  #: products of a model

    @property
    def banks(self) -> int:
        """Banks of the memory of rows."""
        return _BANKS_OF_PE * self.n

    def check(self, products: Sequence[Product]) -> None:
        """Check a model's products.

        Raises:
            ConfigError: there are too many, or one is too wide.
        """
        if len(products) > self.max_stages:
            raise ConfigError(
                f"model.num_layers: {len(products)} products, and an fpga's kernels take "
                f"{self.max_stages}"
            )
        widest = max(product.width_out for product in products)
        if widest > self.max_words_out * LANES:
            raise ConfigError(
                f"model.hidden: a layer has {widest} output features, and an fpga's kernels make "
                f"{self.max_words_out * LANES}"
            )


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """What one compute unit gets of a mini-batch."""

    batch: UInt8Array  #: bytes of groups, stages, tiles, labels and ids
    edges: UInt8Array  #: bytes of edges
    #: ``[num_words, 16]`` float32 input rows, sixteen columns of all rows at a time
    features: Float32Array
    num_groups: int  #: of seeds
    num_seeds: int  #: of the unit
    scratch_bytes: int  #: that it needs for aggregated rows that do not fit on the chip
    num_sources: int  #: input rows over all groups


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """A product's rows and edges in one group."""

    product: Product
    arranged: ArrangedBlock
    rows: Int32Array

    @property
    def padded_rows(self) -> int:
        return _padded(len(self.rows))

    def kept_parts(self, number: int) -> int:
        """Return the parts that are kept of the aggregated rows of stage ``number``.

        Own rows of the input are not: the kernels read them again.
        """
        slots = self.product.num_slots if number else 1
        return slots * words(self.product.width_in)


class _Buffer:
    """Arrays in a row, each beginning at a word."""

    def __init__(self, num_words: int = 0) -> None:
        self._parts: list[UInt8Array] = []
        self.num_words = num_words

    def add(self, array: Array) -> int:
        """Append ``array`` and return its first word."""
        first = self.num_words
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        self._parts.append(raw)
        if len(raw) % _WORD:
            self._parts.append(np.zeros(_WORD - len(raw) % _WORD, np.uint8))
        self.num_words += -(-len(raw) // _WORD)
        return first

    def join(self, head: Sequence[Int32Array] = ()) -> UInt8Array:
        """Return everything after ``head``."""
        return np.concatenate([*(each.view(np.uint8) for each in head), *self._parts])


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
    """Arrange what leads to some seeds of a mini-batch for one compute unit.

    Raises:
        DeviceMemoryError: one seed does not fit on the chip, or rows exceed ``max_row_bytes``.
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
            # Logits come after the outcome.
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
    """Cut seeds into groups that fit, halving those that do not."""
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
    """Return ``groups``, whose input rows together take at most ``limit`` bytes."""
    found: list[tuple[list[_Stage], range]] = []
    taken = 0
    for stages, part in groups:
        taken += len(_input_rows(stages)) * row_bytes
        if taken > limit:
            raise DeviceMemoryError(
                f"the input rows of {part.stop - seeds.start} of {len(seeds)} seeds, in "
                f"{len(found) + 1} groups whose output rows fit on the fpga's chip, take "
                f"{taken:,} bytes, and memory has room for {limit:,}; lower "
                "batch_size, sampler.fanouts or model.hidden"
            )
        found.append((stages, part))
    return found


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
    """Arrange the blocks that lead to some seeds, from the last to the first."""
    rows: Int32Array = np.arange(seeds.start, seeds.stop, dtype=np.int32)
    stages: list[_Stage] = []
    for number in range(len(products) - 1, -1, -1):
        product = products[number]
        tile_rows = limits.gather_rows // product.num_slots
        back = limits.gather_rows if number else None
        if product.aggregates:
            block = batch.blocks[product.layer]
            found = coefficients(model.layer(product.layer), block, inputs.degrees)
            arranged = ops.arrange_block(
                block.indptr,
                block.indices,
                block.num_src,
                destinations=rows,
                weights=found.weights,
                dst_scale=found.dst_scale,
                self_scale=found.self_scale,
                self_term=found.self_term,
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
    """Return edges from every row to itself."""
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
    """Return why the output rows of a group do not fit on the chip, None if they do."""
    needed = sum(_output_words(stage, limits) for stage in stages) * limits.banks
    if needed > limits.row_words:
        return f"output rows take {needed} words of {_WORD} bytes, of {limits.row_words}"
    return None


def _bank_rows(stage: _Stage, limits: ChipLimits) -> int:
    """Return the rows of a stage in the first bank; others have as many or one less."""
    return -(-stage.padded_rows // limits.banks)


def _output_words(stage: _Stage, limits: ChipLimits) -> int:
    """Return the words that a stage's output rows take in each bank."""
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
    """Return the records of a group's stages, and the words of scratch memory that they take."""
    records = []
    # Output rows must be on the chip; aggregated ones take what is left.
    hidden, outside = 0, 0
    kept = sum(_output_words(stage, limits) for stage in stages)
    for number, stage in enumerate(stages):
        product, arranged = stage.product, stage.arranged
        vertices = batch.input_vertices[stage.rows].astype(np.int64)
        parts = stage.kept_parts(number)
        bank_rows = _bank_rows(stage, limits)
        on_chip = min(parts, (limits.row_words // limits.banks - kept) // bank_rows)
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
                kept,
                on_chip,
                outside,
                buffer.add(np.array(forward, np.int32)),
                len(forward),
                buffer.add(np.array(backward, np.int32)) if backward else 0,
                len(backward),
            ]
        )
        hidden += _output_words(stage, limits)
        kept += on_chip * bank_rows
        outside += (parts - on_chip) * stage.padded_rows
    return np.array(records, np.int32), outside


def _tiles(made: EdgeTiles, edges: _Buffer) -> list[list[int]]:
    """Add the edges of a stage's tiles, and return the tiles' records."""
    first_word = edges.add(made.edges)
    records, first_row = [], 0
    for word, num_words, num_rows in made.tiles.tolist():
        records.append([first_row, num_rows, first_word + word, num_words, *[0] * 12])
        first_row += num_rows
    return records


def _drop(p: float) -> int:
    """Return a probability of dropping in 1/65536, as ``ops.relu_dropout`` rounds it."""
    return min(round(p * _PROBABILITIES), _PROBABILITIES - 1)


def _labels(graph: Graph, seeds: IntArray) -> Array:
    """Return the labels of seeds: a class each, or a row of words of 0 and 1 each."""
    labels: Array = graph.labels[seeds]
    if not graph.multilabel:
        return labels.astype(np.int32)
    out = np.zeros((len(seeds), words(graph.num_classes) * LANES), np.float32)
    out[:, : graph.num_classes] = labels
    return out


def _padded(num_rows: int) -> int:
    return -(-num_rows // LANES) * LANES
