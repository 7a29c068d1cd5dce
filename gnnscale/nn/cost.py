"""What computing a layer takes: the one cost model of host and accelerators.

A layer states amounts: rows read, multiply-accumulates, bytes streamed. A device states rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: S_feat: hidden features, activations and gradients are float32.
BYTES_PER_FEATURE = 4
#: An attention layer runs about so many times the operations of another one.
_ATTENTION_OPERATIONS = 4
#: A layer with separate messages runs about so many times the operations of another one.
_MESSAGE_OPERATIONS = 2
#: Passes over every projected row for the scores of a head: two products, and their sums.
_SCORE_PASSES = 4
#: Passes over the row of an edge in attention: it is made, activated and multiplied.
_PAIR_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Amounts of work of one layer and one mini-batch, in one direction or in both."""

    read_bytes: float = 0.0  #: bytes of the rows that edges read, the numerator of eq. 11.
    macs: float = 0.0  #: multiply-accumulates, the numerator of eq. 12.
    #: bytes of the rows that products read, which a processor mostly does while it multiplies
    operand_bytes: float = 0.0
    stream_bytes: float = 0.0  #: bytes of results, and of rows beside products, in order
    #: bytes of rows of edges that accelerators read and write, and the host does not make
    edge_row_bytes: float = 0.0
    attention: float = 0.0  #: edges and vertices of attention, times heads
    operations: float = 0.0  #: how many operations are launched, in layers

    def __add__(self, other: LayerWork) -> LayerWork:
        return LayerWork(
            read_bytes=self.read_bytes + other.read_bytes,
            macs=self.macs + other.macs,
            operand_bytes=self.operand_bytes + other.operand_bytes,
            stream_bytes=self.stream_bytes + other.stream_bytes,
            edge_row_bytes=self.edge_row_bytes + other.edge_row_bytes,
            attention=self.attention + other.attention,
            operations=self.operations + other.operations,
        )


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """What layer l does to each row and edge of its block."""

    width_in: int  #: f^{l-1}
    width_out: int  #: f^l
    #: ``(inputs, outputs)`` of each matrix that a row is multiplied with. GraphSAGE's has 2 f^{l-1}
    #: inputs, since it reads a vertex's own row beside the aggregated one.
    products: tuple[tuple[int, int], ...]
    #: heads of attention, which comes after the products; 0 if neighbours are aggregated before
    #: them
    attention: int = 0
    #: ``(inputs, outputs)`` of each matrix that rows of destinations alone are multiplied with
    own_products: tuple[tuple[int, int], ...] = ()
    #: features of the row that attention makes of both ends of an edge; 0 if it makes a number
    pair_width: int = 0
    #: features of the messages that are made of rows, and gathered in their place; 0 if rows are
    #: aggregated as they are
    message_width: int = 0
    #: ``(inputs, outputs)`` of each matrix that messages are made with
    message_products: tuple[tuple[int, int], ...] = ()
    #: whether each edge has its own message, and not each source
    messages_per_edge: bool = False
    #: whether the host makes the rows of edges, messages or pairs, that accelerators make
    host_makes_edge_rows: bool = True

    #: whether rows are changed before they are aggregated, as input dropout does
    changes_inputs: bool = False

    @property
    def aggregates_on_load(self) -> bool:
        """Whether rows may be aggregated while they are loaded; attention and messages may not."""
        return not self.attention and not self.message_width and not self.changes_inputs

    @property
    def loaded_width(self) -> int:
        """Features of a row that was aggregated on load."""
        return self.products[0][0]

    def forward(
        self, *, edges: float, targets: float, sources: float, aggregated: bool
    ) -> LayerWork:
        """Return the work of forward propagation.

        Args:
            aggregated: whether the rows were aggregated while they were loaded.
        """
        passes = [1] * len(self.products)
        work = self._work(edges, targets, sources, reads=0 if aggregated else 1, passes=passes)
        return work + self._message_work(edges, sources, passes=[1] * len(self.message_products))

    def backward(self, *, edges: float, targets: float, sources: float, first: bool) -> LayerWork:
        """Return the work of backward propagation.

        Every product takes two: the gradient of its weights, and that of its input, which the
        features of the ``first`` layer do not need.
        """
        passes = [2 - (first and number == 0) for number in range(len(self.products))]
        reads = 2 if self.attention else 1 - first
        if self.message_width:
            # To the edges of each destination, and from these to the sources.
            passes = [2] * len(self.products)
            reads = 2 if not first else int(bool(self.message_products))
        work = self._work(edges, targets, sources, reads=reads, passes=passes)
        again = [2 - (first and not number) for number in range(len(self.message_products))]
        return work + self._message_work(edges, sources, passes=again)

    def _work(
        self, edges: float, targets: float, sources: float, *, reads: int, passes: Sequence[int]
    ) -> LayerWork:
        """Work of one direction: ``reads`` passes over the edges, ``passes`` of each product."""
        rows = sources if self.attention else targets
        width = self.products[-1][1] if self.attention else self.message_width or self.width_in
        products = list(zip(passes, self.products, strict=True))
        scores = _SCORE_PASSES * width if self.attention else 0
        operands, results = _product_values(products)
        own = sum(max(passes) * inputs * outputs for inputs, outputs in self.own_products)
        pairs = _PAIR_PASSES * (edges + targets) * self.pair_width
        # Pairs read the rows of sources once more.
        return self._edge_rows(pairs) + LayerWork(
            read_bytes=reads * (edges + targets) * (width + self.pair_width) * BYTES_PER_FEATURE,
            macs=rows * sum(count * inputs * outputs for count, (inputs, outputs) in products)
            + targets * own,
            operand_bytes=rows * operands * BYTES_PER_FEATURE,
            stream_bytes=rows * (results + scores) * BYTES_PER_FEATURE,
            attention=(edges + targets + sources) * self.attention / 2,
            operations=(_ATTENTION_OPERATIONS if self.attention else 1) / 2,
        )

    def _edge_rows(self, num_values: float) -> LayerWork:
        """Work of rows of edges, of so many values written and read."""
        num_bytes = num_values * BYTES_PER_FEATURE
        if self.host_makes_edge_rows:
            return LayerWork(stream_bytes=num_bytes)
        return LayerWork(edge_row_bytes=num_bytes)

    def _message_work(self, edges: float, sources: float, *, passes: Sequence[int]) -> LayerWork:
        """Work of one direction for messages: made of rows, written and read once an edge.

        So are the rows at both ends of an edge, if its message is made of them.
        """
        if not self.message_width:
            return LayerWork()
        rows = edges if self.messages_per_edge else sources
        products = list(zip(passes, self.message_products, strict=True))
        operands, results = _product_values(products)
        carried = self.message_width + (2 * self.width_in if self.messages_per_edge else 0)
        return self._edge_rows(2 * edges * carried) + LayerWork(
            macs=rows * sum(count * inputs * outputs for count, (inputs, outputs) in products),
            operand_bytes=rows * operands * BYTES_PER_FEATURE,
            stream_bytes=rows * results * BYTES_PER_FEATURE,
            operations=(_MESSAGE_OPERATIONS - 1) / 2,
        )


def _product_values(products: Sequence[tuple[int, tuple[int, int]]]) -> tuple[int, int]:
    """Return the values of a row that products read, and those that they write.

    Args:
        products: passes, and ``(inputs, outputs)`` of each matrix. The first pass reads inputs: it
            makes outputs, or the gradient of the weights, after that of the activation was
            written. A second one makes the gradient of inputs.
    """
    read = sum(inputs + (count - 1) * outputs for count, (inputs, outputs) in products if count)
    written = sum(outputs + (count - 1) * inputs for count, (inputs, outputs) in products if count)
    return read, written


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What a step of a whole model takes, in proportion to the vertices and edges of a mini-batch.

    It is counted by trial, of a model whose layers do not state their cost. Each tuple has what a
    vertex of V^0 .. V^L adds, and then what an edge of E^1 .. E^L adds.
    """

    widths: tuple[int, int]  #: features of an input row, and of an output row
    macs: tuple[float, ...]  #: multiply-accumulates, forward and backward
    stream_bytes: tuple[float, ...]  #: bytes that operations write, and others read
    #: bytes of rows that forward propagation keeps for backward propagation
    kept_bytes: tuple[float, ...]
    #: seconds of a step that was measured on the host, over those that its rates predict of these
    #: amounts; 1 if none was
    host_factor: float = 1.0

    def work(self, vertices: Sequence[float], edges: Sequence[float]) -> LayerWork:
        """Return the work of a step, forward and backward."""
        return LayerWork(
            macs=_product(self.macs, vertices, edges),
            stream_bytes=_product(self.stream_bytes, vertices, edges),
            operations=len(edges),
        )

    def activation_bytes(self, vertices: Sequence[float], edges: Sequence[float]) -> float:
        """Return the bytes of what is kept, and of its gradients."""
        return 2 * _product(self.kept_bytes, vertices, edges)


def _product(each: Sequence[float], vertices: Sequence[float], edges: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(each, (*vertices, *edges), strict=True))
