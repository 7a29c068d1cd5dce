"""Cost of computing a layer, in amounts of work: one model for host and accelerators.

A layer states amounts: rows read, multiply-accumulates, bytes streamed. A device states rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: S_feat: hidden features, activations and gradients are float32.
BYTES_PER_FEATURE = 4
#: Operations of an attention layer, relative to a layer of one aggregation and one product.
_ATTENTION_OPERATIONS = 4
#: Operations of a layer that computes messages first, relative to one aggregation and one product.
_MESSAGE_OPERATIONS = 2
#: Passes over every projected row for the scores of a head: two products, and their sums.
_SCORE_PASSES = 4
#: Passes over the row of an edge in attention: it is written, activated and multiplied.
_PAIR_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Bytes, multiply-accumulates and operations of a layer's forward or backward propagation."""

    read_bytes: float = 0.0  #: bytes of the rows that edges read, the numerator of eq. 11
    macs: float = 0.0  #: multiply-accumulates, the numerator of eq. 12
    #: bytes of the rows that products read; a processor mostly reads them while it multiplies
    operand_bytes: float = 0.0
    stream_bytes: float = 0.0  #: bytes read or written in order, outside of products
    #: bytes of rows per edge that accelerators read and write, and the host does not store
    edge_row_bytes: float = 0.0
    attention: float = 0.0  #: edges and vertices of attention, times heads
    operations: float = 0.0  #: launched operations, in units of a layer's operations

    def __add__(self, other: "LayerWork") -> "LayerWork":
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
    """Operations of layer l on each row and edge of its block.

    GraphSAGE with 100 input features multiplies ``h_v ‖ mean`` by one matrix, and GAT with 8 heads
    of 32 features attends after its product::

        LayerCost(width_in=100, width_out=256, products=((200, 256),))
        LayerCost(width_in=100, width_out=256, products=((100, 256),), attention=8)
    """

    width_in: int  #: f^{l-1}
    width_out: int  #: f^l
    #: ``(inputs, outputs)`` of each matrix that multiplies a row. GraphSAGE has 2 f^{l-1} inputs:
    #: the vertex's own row and the aggregated row.
    products: tuple[tuple[int, int], ...]
    #: heads of attention, computed after the products; 0: neighbors are aggregated before the
    #: products
    attention: int = 0
    #: ``(inputs, outputs)`` of each matrix that multiplies rows of destinations only
    own_products: tuple[tuple[int, int], ...] = ()
    #: features of the row that attention stores for each edge; 0: a number per edge and head
    pair_width: int = 0
    #: features of a message that is computed from a row and aggregated instead; 0: rows are
    #: aggregated
    message_width: int = 0
    #: ``(inputs, outputs)`` of each matrix that computes messages
    message_products: tuple[tuple[int, int], ...] = ()
    #: whether messages are computed for each edge; otherwise for each source
    messages_per_edge: bool = False
    #: whether the host stores a row per edge (message or pair), as accelerators do
    host_makes_edge_rows: bool = True

    #: whether rows are changed before they are aggregated, as by input dropout
    changes_inputs: bool = False

    @property
    def aggregates_on_load(self) -> bool:
        """Whether rows can be aggregated on load: no attention, messages or changed inputs."""
        return not self.attention and not self.message_width and not self.changes_inputs

    @property
    def loaded_width(self) -> int:
        """Features of a row aggregated on load, a concatenated self term included."""
        return self.products[0][0]

    def forward(
        self, *, edges: float, targets: float, sources: float, aggregated: bool
    ) -> LayerWork:
        """Return the work of forward propagation over a block of ``edges``.

        ``targets`` and ``sources`` are its numbers of destinations and sources; ``aggregated`` says
        whether rows were aggregated while they were loaded.
        """
        passes = [1] * len(self.products)
        work = self._work(edges, targets, sources, reads=0 if aggregated else 1, passes=passes)
        return work + self._message_work(edges, sources, passes=[1] * len(self.message_products))

    def backward(self, *, edges: float, targets: float, sources: float, first: bool) -> LayerWork:
        """Return the work of backward propagation over a block of ``edges``.

        ``targets`` and ``sources`` are its numbers of destinations and sources. Each product has
        two products in its gradient: for its weights and for its input. The ``first`` layer needs
        no gradient of its input features.
        """
        passes = [2 - (first and number == 0) for number in range(len(self.products))]
        reads = 2 if self.attention else 1 - first
        if self.message_width:
            # One pass from destinations to edges, and one from edges to sources.
            passes = [2] * len(self.products)
            reads = 2 if not first else int(bool(self.message_products))
        work = self._work(edges, targets, sources, reads=reads, passes=passes)
        passes = [2 - (first and not number) for number in range(len(self.message_products))]
        return work + self._message_work(edges, sources, passes=passes)

    def _work(
        self, edges: float, targets: float, sources: float, *, reads: int, passes: Sequence[int]
    ) -> LayerWork:
        """Return the work of aggregation, or attention, and of the products of rows with matrices.

        A pass over the edges, of ``reads``, reads a row per edge and target. ``products[i]`` is
        computed ``passes[i]`` times, each of ``own_products`` ``max(passes)`` times.
        """
        rows = sources if self.attention else targets
        width = self.products[-1][1] if self.attention else self.message_width or self.width_in
        products = list(zip(passes, self.products, strict=True))
        scores = _SCORE_PASSES * width if self.attention else 0
        operands, results = _product_values(products)
        dst_macs = sum(max(passes) * inputs * outputs for inputs, outputs in self.own_products)
        pairs = _PAIR_PASSES * (edges + targets) * self.pair_width
        # A row per edge takes one more read of its source's row.
        return self._edge_rows(pairs) + LayerWork(
            read_bytes=reads * (edges + targets) * (width + self.pair_width) * BYTES_PER_FEATURE,
            macs=rows * sum(count * inputs * outputs for count, (inputs, outputs) in products)
            + targets * dst_macs,
            operand_bytes=rows * operands * BYTES_PER_FEATURE,
            stream_bytes=rows * (results + scores) * BYTES_PER_FEATURE,
            attention=(edges + targets + sources) * self.attention / 2,
            operations=(_ATTENTION_OPERATIONS if self.attention else 1) / 2,
        )

    def _edge_rows(self, num_values: float) -> LayerWork:
        """Return the work of writing and reading ``num_values`` floats in rows of edges.

        Their bytes are ``stream_bytes`` if the host, too, stores a row per edge; otherwise
        ``edge_row_bytes``, which only accelerators read and write.
        """
        num_bytes = num_values * BYTES_PER_FEATURE
        if self.host_makes_edge_rows:
            return LayerWork(stream_bytes=num_bytes)
        return LayerWork(edge_row_bytes=num_bytes)

    def _message_work(self, edges: float, sources: float, *, passes: Sequence[int]) -> LayerWork:
        """Return the work of message product i ``passes[i]`` times, and of messages on edges."""
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
    """Return the floats per row read and written by products: ``(passes, (inputs, outputs))``."""
    read = sum(inputs + (count - 1) * outputs for count, (inputs, outputs) in products if count)
    written = sum(outputs + (count - 1) * inputs for count, (inputs, outputs) in products if count)
    return read, written


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Cost of a step of a user's module, linear in the vertices and edges of a mini-batch.

    It is counted while the module runs on tiny mini-batches; see ``count_cost``. Each tuple has the
    amount per vertex of V^0 .. V^L, followed by the amount per edge of E^1 .. E^L.
    """

    widths: tuple[int, int]  #: features of an input row, and of an output row
    macs: tuple[float, ...]  #: multiply-accumulates, forward and backward
    stream_bytes: tuple[float, ...]  #: bytes that operations write and later operations read
    #: bytes of rows that forward propagation saves for backward propagation
    kept_bytes: tuple[float, ...]
    #: seconds of a step measured on the host, divided by the seconds that the host's rates predict
    #: for these amounts; 1: not measured
    host_factor: float = 1.0

    def work(self, vertices: Sequence[float], edges: Sequence[float]) -> LayerWork:
        """Return the work of a step with ``vertices`` in V^0 .. V^L and ``edges`` in E^1 .. E^L."""
        return LayerWork(
            macs=_product(self.macs, vertices, edges),
            stream_bytes=_product(self.stream_bytes, vertices, edges),
            operations=len(edges),
        )

    def activation_bytes(self, vertices: Sequence[float], edges: Sequence[float]) -> float:
        """Return the bytes of rows saved for backward propagation, and of their gradients.

        A mini-batch has ``vertices`` in V^0 .. V^L and ``edges`` in E^1 .. E^L.
        """
        return 2 * _product(self.kept_bytes, vertices, edges)


def _product(amounts: Sequence[float], vertices: Sequence[float], edges: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(amounts, (*vertices, *edges), strict=True))
