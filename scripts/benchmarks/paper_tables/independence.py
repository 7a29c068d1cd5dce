"""How many figures of the tables are independent, and what the others follow from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.paper_tables import hitgnn, hyscale
from benchmarks.paper_tables.rows import Table
from benchmarks.paper_tables.simulations import one

#: Predicted figures of a table that no other figure of the page decides, and what decides the
#: others. A table that is not here is independent.
_INDEPENDENT: Mapping[str, tuple[int, str]] = {
    "HyScale-GNN, Table VII: epoch time times peak rates": (0, "Table VI times 9.6 TFLOPS"),
    "HyScale-GNN, figure 11: ablation": (2, "the model has one figure for hybrid and for DRM"),
    "HitGNN, Table V: designs of a U250": (
        6,
        "three ratios of the two NVTPS figures, for one published ratio",
    ),
    "HitGNN, Table VI: NVTPS of four FPGAs": (
        1,
        "vertices of an epoch over its time; predicted for ogbn-products alone",
    ),
    "HitGNN, Table VI: bandwidth efficiency of four FPGAs": (0, "NVTPS over 513 GB/s"),
    "HitGNN, Table VI: energy of four FPGAs": (0, "epoch time times 180 W"),
    "HitGNN, Table VII: workload balancing and data communication": (
        16,
        "WB + DC is DistDGL's NVTPS of Table VI",
    ),
    "HitGNN, Table VIII: one card and four": (
        2,
        "HitGNN's rows are those of Table VI; HP-GNN's other figures follow from its epoch",
    ),
    "HitGNN, figure 7: epochs of ogbn-products with DistDGL": (0, "epochs of Table VI"),
}


@dataclass(frozen=True)
class Count:
    """Figures of a table."""

    table: str
    figures: int  #: with a published and a predicted value
    independent: int
    rest: str  #: what the other figures follow from; empty without such figures


def counts(tables: Sequence[Table]) -> list[Count]:
    """Return the figures of each table that has any, and of all tables together."""
    found = []
    for table in tables:
        figures = sum(row.error is not None for row in table.rows)
        if figures:
            independent, rest = _INDEPENDENT.get(table.name, (figures, ""))
            found.append(Count(table.name, figures, independent, rest))
    sums = (sum(getattr(each, name) for each in found) for name in ("figures", "independent"))
    return [*found, Count("all", *sums, rest="")]


def epoch_vertices(rows: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, list[float]]:
    """Return epoch seconds times million NVTPS of each system and model, by graph."""
    found: dict[str, list[float]] = {graph: [] for graph in hitgnn.GRAPHS}
    for seconds, rates, *_ in rows.values():
        for (graph, _), epoch_s, nvtps in zip(hitgnn.pairs(), seconds, rates, strict=True):
            found[graph].append(epoch_s * nvtps)
    return found


def watts() -> float:
    """Return the mean power that Table VI's energy of four FPGAs has, over its epoch times."""
    return fmean(
        1000 * energy / seconds
        for epochs, _, _, energies in hitgnn.TABLE_VI.values()
        for energy, seconds in zip(energies, epochs, strict=True)
    )


def notes() -> list[str]:
    """Return what the figures do not show, a sentence or more each."""
    return [_of_sizes(), _of_efficiency(), _of_energy(), _of_cells(), *_LEFT_OUT]


def _of_sizes() -> str:
    cards, gpus = epoch_vertices(hitgnn.TABLE_VI), epoch_vertices(hitgnn.GPU_ROWS)
    every = {graph: (*cards[graph], *gpus[graph]) for graph in hitgnn.GRAPHS}
    means = {graph: fmean(found) for graph, found in every.items()}
    spread = max(abs(each / means[graph] - 1) for graph in every for each in every[graph])
    products = hitgnn.simulated("distdgl", "products", "gcn")
    off = products.epoch_s * products.nvtps / 1e6 / means["products"] - 1
    sizes = ", ".join(f"{mean:.1f}" for mean in means.values())
    return (
        "HitGNN's Table VI: NVTPS times epoch time is the vertices of an epoch, one number for "
        f"each graph ({sizes} million for Reddit, Yelp, Amazon and ogbn-products), equal in rows "
        f"of FPGAs and GPUs to {_percent(spread, 1)}. The skews of Reddit, Yelp and Amazon are "
        "fitted to that number in the GPU rows, so that NVTPS of the three is no second "
        "prediction: its error is the reciprocal of the epoch's. For ogbn-products the number is "
        f"predicted, {_percent(abs(off))} {'below' if off < 0 else 'above'} the published one."
    )


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _of_efficiency() -> str:
    found = [
        1000 * nvtps / efficiency
        for _, rates, efficiencies, _ in hitgnn.TABLE_VI.values()
        for nvtps, efficiency in zip(rates, efficiencies, strict=True)
    ]
    return (
        "HitGNN's Table VI: bandwidth efficiency is NVTPS over the bandwidth of all memories, "
        f"{min(found):.0f} to {max(found):.0f} GB/s by the rounded published cells, and "
        "205 + 4 x 77 = 513 GB/s in the predicted ones."
    )


def _of_energy() -> str:
    published, here = watts(), hitgnn.CARDS * 45
    epochs = hitgnn.table_vi()[0].mean_error
    assert epochs is not None
    return (
        f"HitGNN's Table VI: energy is the epoch time times {published:.1f} W in every published "
        f"cell, and {here} W in the predicted ones: four cards of 45 W, from another paper. Each "
        f"predicted energy is {_percent(1 - here / published)} lower than {published:.1f} W would "
        f"make it, with which the mean error is the epoch's, {_percent(epochs, 1)}. The table's 96 "
        "figures are one predicted quantity, the epoch time, in 24 cells."
    )


def _of_cells() -> str:
    cells = hyscale.TABLE_VI[8:]
    part = "platform.efficiency.accelerator=0.862"
    found = [one(*cell.options, "accelerators=[4]").epoch_s for cell in cells]
    moved = [one(*cell.options, "accelerators=[4]", part).epoch_s for cell in cells]
    exact = " and ".join(
        f"{seconds:.5f} s against {cell.epoch_s} s ({100 * (seconds / cell.epoch_s - 1):+.2f} %)"
        for cell, seconds in zip(cells, found, strict=True)
    )
    other = " and ".join(
        f"{100 * (seconds / cell.epoch_s - 1):+.1f} %"
        for cell, seconds in zip(cells, moved, strict=True)
    )
    return (
        f"HyScale-GNN's Table VI, cells 9 and 10, unrounded: {exact}. The agreement is a "
        "coincidence and no evidence for the model: it is closer than the published cells are "
        "rounded (0.30 and 0.14 %), and than any assumption is known. Cards at 86.2 % of their "
        f"peak in place of the rounded 85 % move the cells to {other}, and several other rows of "
        "the last table move them by 14 to 135 %."
    )


_LEFT_OUT = (
    "HyScale-GNN's figure 9 and HitGNN's figure 8: the bend above 12 cards is an input, since the "
    "host's 205 GB/s over links of 16 GB/s are 12.8 cards.",
    "Not predicted: URAM and BRAM in HitGNN's Table V, of which equations 1 and 2 have no term "
    "(HP-GNN's constants give the other four resource figures); the 96 figures of GPU rows in "
    "HitGNN's Table VI; the geometric means of all tables; the figures of PaGraph, P3 and "
    "DistDGLv2 in HyScale-GNN's Tables VI and VII.",
    "HitGNN's Table VIII: HP-GNN's bandwidth efficiency is over 183 GB/s there, over 282 GB/s of "
    "one card and the host here; its energy is 52 to 55 W times the epoch there, 45 W times the "
    "epoch here.",
)
