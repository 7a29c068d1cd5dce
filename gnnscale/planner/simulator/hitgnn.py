"""HitGNN's platform simulator (section VII-G): epochs on a processor with several FPGAs.

In each step every card trains a mini-batch of its partition (eq. 3 to 9). A card's memory holds as
many feature rows as a partition has. Further rows come from host memory, whose bandwidth all links
share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.core import ConfigError
from gnnscale.nn.cost import LayerCost
from gnnscale.planner.cost_model import BatchSize, hitgnn, sync_seconds
from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs import Degrees, expected_size, share_of_hottest

#: Algorithms of Table I, which divide the graph and its features.
ALGORITHMS = ("distdgl", "pagraph", "p3")
#: With K parts by METIS (in DGL), K^-0.66 of a mini-batch's inputs are local: 65, 40, 25 and 16 %
#: for 2, 4, 8 and 16 parts, the mean over tolokers, soc-Slashdot0902 and MUSAE GitHub with fan-outs
#: 25 and 10 (``scripts/benchmarks/paper_tables --locality``). Web graphs have better cuts: 96 % for
#: 4 parts of cnr-2000.
LOCALITY = -0.66
#: A cache of fraction p of the vertices has hit rate p^0.43, fitted to PaGraph's 50 % at p = 0.2
#: (section 1). GNNLab's hit rates, for larger mini-batches: 75 % on ogbn-papers100M at 0.2, 19 % on
#: ogbn-products at 0.1.
CACHED = 0.43
#: Relative difference of the smallest and largest partition from the mean: the balance limit of our
#: partitioners and of METIS in DistDGL.
IMBALANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class SimulatedMachine:
    """Processor with FPGA cards of one kind."""

    board: Board
    design: hitgnn.ComputeDesign  #: n and m of a card
    num_cards: int
    host_bandwidth: float  #: bytes per second of host memory, shared by all links
    #: bytes per second of host memory by the data sheet, for bandwidth efficiency (section VII-D)
    listed_bandwidth: float
    efficiency: Efficiency  #: reached fractions of the board's rates

    @property
    def link_bandwidth(self) -> float:
        """Bytes per second of one card's link while all cards use theirs and share host memory."""
        link = self.efficiency.link * self.board.link_bandwidth
        return min(link, self.host_bandwidth / self.num_cards)

    @property
    def bandwidth(self) -> float:
        """Summed bytes per second of host memory and all cards' memories by the data sheets."""
        return self.listed_bandwidth + self.num_cards * self.board.bandwidth

    @property
    def watts(self) -> float:
        """Power of all cards in watts; the paper does not count the host."""
        return self.num_cards * self.board.power_w


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    """Simulated time of a step in which every card trains a mini-batch, by task (eq. 4)."""

    seconds: float
    local_share: float  #: β of eq. 7
    limits: dict[str, float]  #: seconds by limiting task, such as ``memory`` or ``sync``

    @property
    def bottleneck(self) -> str:
        """Name of the task with the most seconds, such as ``memory`` or ``sync``."""
        return max(self.limits, key=lambda name: self.limits[name])


def layer_sizes(size: BatchSize, layers: Sequence[LayerCost]) -> tuple[hitgnn.LayerWorkload, ...]:
    """Return the kernels' work on a mini-batch: an entry per matrix product, input layer first.

    Every destination vertex has an edge to itself. GraphSAGE multiplies its own features next to
    the aggregated features. A layer's second product (GIN) has no edges. Raises ConfigError for
    layers of unknown cost, attention or weighted messages, which the kernels lack.
    """
    if not layers:
        raise ConfigError("model: expected gcn, sage or gin, got layers without a declared cost")
    workloads = []
    for number, layer in enumerate(layers):
        if layer.attention or layer.message_products or layer.messages_per_edge:
            raise ConfigError(
                f"model: expected gcn, sage or gin on an fpga, got attention or weighted "
                f"messages in layer {number}"
            )
        rows = size.vertices[number + 1]
        (inputs, outputs), *further = layer.products
        workloads.append(
            hitgnn.LayerWorkload(
                sources=size.vertices[number],
                rows=rows,
                edges=size.edges[number] + rows,
                width_in=layer.width_in,
                width_out=outputs,
                slots=inputs // layer.width_in,
            )
        )
        workloads += [
            hitgnn.LayerWorkload(sources=0, rows=rows, edges=0, width_in=inputs, width_out=outputs)
            for inputs, outputs in further
        ]
    return tuple(workloads)


def local_share(
    algorithm: str,
    degrees: Degrees | None,
    fanouts: Sequence[int],
    num_seeds: float,
    num_cards: int,
) -> float:
    """Return β of eq. 7: the fraction of a mini-batch's input rows in its card's memory.

    DistDGL stores the rows of the card's partition. PaGraph stores as many rows, of the vertices
    with the highest out-degree; without exact ``degrees`` (None), a fitted curve gives β. P3
    stores some columns of all rows, so that β is 1; with a single card, β is 1, too.
    """
    if algorithm == "p3" or num_cards == 1:
        return 1.0
    if algorithm == "distdgl":
        return float(num_cards**LOCALITY)
    if degrees is None:
        return float((1 / num_cards) ** CACHED)
    _, probabilities = expected_size(degrees, fanouts, num_seeds)
    return share_of_hottest(degrees, probabilities, 1 / num_cards)


def step(
    machine: SimulatedMachine,
    layers: Sequence[hitgnn.LayerWorkload],
    *,
    algorithm: str,
    local: float,
    direct: bool = True,
) -> SimulatedStep:
    """Return the time of a step in which every card trains a mini-batch with the work ``layers``.

    ``local`` is β of eq. 7, the share of rows in the card's memory. ``direct``: whether missing
    rows come from host memory (DC, section V-B). Otherwise they come from another card, over two
    links one after the other.
    """
    part = machine.efficiency.accelerator
    link = machine.link_bandwidth
    card = hitgnn.FpgaCard(
        clock_hz=part * machine.board.clock_hz,
        bandwidth=part * machine.board.bandwidth,
        link_bandwidth=link if direct else link / 2,
        local_share=local,
    )
    passes = hitgnn.phases(card, layers)
    seconds_by_limit = hitgnn.limits(passes, machine.design)
    seconds = hitgnn.gnn_seconds(passes, machine.design)
    if machine.num_cards > 1:
        num_bytes = hitgnn.FEATURE_BYTES * sum(layer.num_weights for layer in layers)
        seconds_by_limit["sync"] = sync_seconds(num_bytes, link, 0.0)
    if algorithm == "p3" and machine.num_cards > 1:
        # P3's all-to-all broadcast after the first aggregation (Listing 3).
        first, peers = layers[0], machine.num_cards - 1
        sent = first.rows * first.slots * first.width_in * hitgnn.FEATURE_BYTES
        seconds_by_limit["exchange"] = 2 * peers / machine.num_cards * sent / link
    return SimulatedStep(
        seconds=seconds + seconds_by_limit.get("sync", 0.0) + seconds_by_limit.get("exchange", 0.0),
        local_share=local,
        limits=seconds_by_limit,
    )


def part_batches(num_batches: int, num_cards: int, imbalance: float = IMBALANCE) -> tuple[int, ...]:
    """Divide an epoch's ``num_batches`` among a partition per card; return the partitions' counts.

    The counts are spread evenly from ``1 - imbalance`` to ``1 + imbalance`` times their mean.
    """
    spread = [2 * card / (num_cards - 1) - 1 for card in range(num_cards)] if num_cards > 1 else [0]
    exact = [num_batches / num_cards * (1 + imbalance * offset) for offset in spread]
    counts = [math.floor(count) for count in exact]
    for card in sorted(range(num_cards), key=lambda i: counts[i] - exact[i]):
        counts[card] += sum(counts) < num_batches
    return tuple(counts)


def epoch_steps(counts: Sequence[int], *, balanced: bool) -> int:
    """Return an epoch's length in steps; ``counts``: each partition's mini-batches (Algorithm 3).

    A step has a mini-batch per card. While every partition has mini-batches, each card trains one
    of its own partition. The surplus mini-batches then fill further steps. If ``balanced`` (WB),
    idle cards train them. Otherwise, the card of their partition trains them one after the other,
    and a step counts as often as the card with the most mini-batches trains.
    """
    if balanced or len(counts) == 1:
        return math.ceil(sum(counts) / len(counts))
    steps = min(counts)
    remaining, num_moved = [count - steps for count in counts], 0
    while any(remaining):
        available = [card for card, count in enumerate(remaining) if count]
        load = [0] * len(remaining)
        for card in available:
            remaining[card] -= 1
            load[card] += 1
        for _ in range(len(remaining) - len(available)):
            having = [card for card in available if remaining[card]]
            if not having:
                break
            source = having[num_moved % len(having)]
            num_moved += 1
            remaining[source] -= 1
            load[source] += 1
        steps += max(load)
    return steps
