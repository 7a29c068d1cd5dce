"""HitGNN's platform simulator (section VII-G): epochs on a processor with several FPGAs.

Each card trains a mini-batch of its part of the graph in each step (eq. 3 to 9). Its memory
holds as many feature rows as one part has; the others come from the host's memory, which feeds all
links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.core import ConfigError
from gnnscale.nn.cost import LayerCost
from gnnscale.planner.cost_model.equations import BatchSize, sync_seconds
from gnnscale.planner.cost_model.hitgnn import (
    FEATURE_BYTES,
    ComputeDesign,
    FpgaCard,
    LayerWorkload,
    gnn_seconds,
    limits,
    phases,
)
from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs.degrees import Degrees, expected_size, share_of_hottest

#: Table I: how the graph and its features are divided.
ALGORITHMS = ("distdgl", "pagraph", "p3")
#: Of K parts by METIS, as DGL has it, a part has K^-0.66 of the inputs of its mini-batches:
#: 65, 40, 25 and 16 % of 2, 4, 8 and 16 parts, the mean over the social graphs tolokers,
#: soc-Slashdot0902 and MUSAE GitHub, fan-outs 25 and 10 (``scripts/benchmarks/paper_tables
#: --locality``). Web graphs have better cuts: 96 % of 4 parts of cnr-2000.
LOCALITY = -0.66
#: A cache of a part p of the vertices hits p^0.43 of a mini-batch's inputs: the curve through
#: PaGraph's own half of them with a fifth of the vertices (section 1). GNNLab's has 75 % on
#: ogbn-papers100M there, and 19 % with a tenth on ogbn-products, for larger mini-batches.
CACHED = 0.43
#: Vertices of the smallest and the largest part differ from the mean by this part of it:
#: the limit that our partitioners, and METIS as DistDGL uses it, keep for each weight.
IMBALANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class SimulatedMachine:
    """A processor with FPGAs of one kind."""

    board: Board
    design: ComputeDesign  #: of a card
    num_cards: int
    host_bandwidth: float  #: bytes per second of the host's memory, for all links
    #: the same as data sheets have it, which bandwidth efficiency divides by (section VII-D)
    listed_bandwidth: float
    efficiency: Efficiency  #: parts of the board's rates that are reckoned with

    @property
    def link_bandwidth(self) -> float:
        """Bytes per second of one link while all are used: the host's memory feeds them."""
        own = self.efficiency.link * self.board.link_bandwidth
        return min(own, self.host_bandwidth / self.num_cards)

    @property
    def bandwidth(self) -> float:
        """Bytes per second of all memories, as listed."""
        return self.listed_bandwidth + self.num_cards * self.board.bandwidth

    @property
    def watts(self) -> float:
        """Of all cards; the host's are in no figure of the paper."""
        return self.num_cards * self.board.power_w


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    """A step of all cards (eq. 4)."""

    seconds: float
    local_share: float  #: β of eq. 7
    limits: dict[str, float]  #: seconds by what limits them

    @property
    def bottleneck(self) -> str:
        """What limits the step for the longest time."""
        return max(self.limits, key=lambda name: self.limits[name])


def layer_sizes(size: BatchSize, layers: Sequence[LayerCost]) -> tuple[LayerWorkload, ...]:
    """Return what the kernels multiply for a mini-batch, inputs first.

    Every row has an edge to itself. GraphSAGE's products read a row's own features beside the
    aggregated ones; a second product of a layer (GIN) has no edges.

    Raises:
        ConfigError: the kernels have no attention, and no messages that are made of rows.
    """
    if not layers:
        raise ConfigError(
            "model: its layers do not state their products; allowed are gcn, sage, gin"
        )
    found = []
    for number, layer in enumerate(layers):
        if layer.attention or layer.message_products or layer.messages_per_edge:
            raise ConfigError(
                f"model: layer {number} computes attention or messages with weights, and an fpga's "
                "kernels sum neighbours before a product: allowed are gcn, sage, gin"
            )
        rows = size.vertices[number + 1]
        (inputs, outputs), *others = layer.products
        found.append(
            LayerWorkload(
                sources=size.vertices[number],
                rows=rows,
                edges=size.edges[number] + rows,
                width_in=layer.width_in,
                width_out=outputs,
                slots=inputs // layer.width_in,
            )
        )
        found += [
            LayerWorkload(sources=0, rows=rows, edges=0, width_in=inputs, width_out=outputs)
            for inputs, outputs in others
        ]
    return tuple(found)


def local_share(
    algorithm: str,
    degrees: Degrees | None,
    fanouts: Sequence[int],
    num_seeds: float,
    num_cards: int,
) -> float:
    """Return β of eq. 7: the part of a mini-batch's inputs that are in its card's memory.

    DistDGL's card has the rows of its part. PaGraph's has as many rows, those of the vertices with
    the most out-neighbours. P3's has some columns of all rows.

    Args:
        algorithm: one of ``ALGORITHMS``.
        degrees: of the graph; None if they are only known by their mean and skew, which say too
            little of the hottest vertices.
    """
    if algorithm == "p3" or num_cards == 1:
        return 1.0
    if algorithm == "distdgl":
        return float(num_cards**LOCALITY)
    if degrees is None:
        return float((1 / num_cards) ** CACHED)
    _, met = expected_size(degrees, fanouts, num_seeds)
    return share_of_hottest(degrees, met, 1 / num_cards)


def step(
    machine: SimulatedMachine,
    layers: Sequence[LayerWorkload],
    *,
    algorithm: str,
    local: float,
    direct: bool = True,
) -> SimulatedStep:
    """Return a step in which every card trains a mini-batch of ``layers``.

    Args:
        local: β of eq. 7, of ``local_share``.
        direct: whether missing rows come from the host's memory (DC, section V-B). Otherwise they
            come from the card that has them, and cross two links one after the other.
    """
    part = machine.efficiency.accelerator
    link = machine.link_bandwidth
    card = FpgaCard(
        clock_hz=part * machine.board.clock_hz,
        bandwidth=part * machine.board.bandwidth,
        link_bandwidth=link if direct else link / 2,
        local_share=local,
    )
    passes = phases(card, layers)
    found = limits(passes, machine.design)
    seconds = gnn_seconds(passes, machine.design)
    if machine.num_cards > 1:
        num_bytes = FEATURE_BYTES * sum(layer.num_weights for layer in layers)
        found["sync"] = sync_seconds(num_bytes, link, 0.0)
    if algorithm == "p3" and machine.num_cards > 1:
        found["exchange"] = _broadcast_seconds(machine.num_cards, layers[0], link)
    return SimulatedStep(
        seconds=seconds + found.get("sync", 0.0) + found.get("exchange", 0.0),
        local_share=local,
        limits=found,
    )


def _broadcast_seconds(num_cards: int, first: LayerWorkload, link: float) -> float:
    """Return the seconds of P3's all-to-all broadcast after the first aggregation (Listing 3).

    A card has aggregated its columns for the mini-batches of all cards. It sends those of others to
    the host, which puts columns together, and then gets the others' of its mini-batch.
    """
    num_bytes = first.rows * first.slots * first.width_in * FEATURE_BYTES
    return 2 * (num_cards - 1) / num_cards * num_bytes / link


def part_batches(num_batches: int, num_cards: int, imbalance: float = IMBALANCE) -> tuple[int, ...]:
    """Return the mini-batches of each part; parts are spread evenly about the mean."""
    spread = [2 * card / (num_cards - 1) - 1 for card in range(num_cards)] if num_cards > 1 else [0]
    wanted = [num_batches / num_cards * (1 + imbalance * each) for each in spread]
    counts = [math.floor(each) for each in wanted]
    for card in sorted(range(num_cards), key=lambda each: counts[each] - wanted[each]):
        counts[card] += sum(counts) < num_batches
    return tuple(counts)


def epoch_steps(counts: Sequence[int], *, balanced: bool) -> int:
    """Return the steps of an epoch in lengths of one mini-batch (Algorithm 3).

    Every step has as many mini-batches as there are cards. While each part has some, each card gets
    one of its part. Then those that are left fill the steps in turn: idle cards get them if the
    workload is balanced (WB); without, the card of their part trains them one after the other.
    """
    if balanced or len(counts) == 1:
        return math.ceil(sum(counts) / len(counts))
    steps = min(counts)
    left, taken = [count - steps for count in counts], 0
    while any(left):
        available = [card for card, count in enumerate(left) if count]
        load = [0] * len(left)
        for card in available:
            left[card] -= 1
            load[card] += 1
        for _ in range(len(left) - len(available)):
            having = [card for card in available if left[card]]
            if not having:
                break
            source = having[taken % len(having)]
            taken += 1
            left[source] -= 1
            load[source] += 1
        steps += max(load)
    return steps
