"""Headlines of PaGraph, PyTorch-Direct and Legion, as far as there are models of them."""

from benchmarks.paper_tables.rows import Row, Table
from gnnscale.planner.graphs import PUBLISHED, expected_size, share_of_hottest

_NO_PLATFORM = "no platform of this card"
#: A memory's line, which a request of a GPU reads (PyTorch-Direct, section 4.5).
_LINE, _WARP_BYTES = 128, 128


def pagraph() -> Table:
    graph = PUBLISHED["products"]
    _, met = expected_size(graph.degrees, (25, 10), 1024)
    rate = 100 * share_of_hottest(graph.degrees, met, 0.2)
    rows = [
        Row(
            "hit rate of a cache of 20 % of the vertices, at least",
            "%",
            50,
            rate,
            note="ogbn-products, fan-outs 25 and 10; the paper's graphs are others",
        ),
        Row("speed-up over DGL, V100, at most", "x", 4.8, None, note=_NO_PLATFORM),
        Row("epoch of ogbn-products, GCN, 8 V100", "s", 1.18, None, note=_NO_PLATFORM),
    ]
    return Table(name="PaGraph: headlines", rows=rows)


def lines_of_row(row_bytes: int, start: int) -> int:
    """Return the memory lines that a warp asks for to read a row, 128 bytes at a time."""
    return sum(
        (min(at + _WARP_BYTES, start + row_bytes) - 1) // _LINE - at // _LINE + 1
        for at in range(start, start + row_bytes, _WARP_BYTES)
    )


def aligned_lines(row_bytes: int, start: int) -> int:
    """Return the same if the warp begins on a line (section 4.5)."""
    return (start + row_bytes - 1) // _LINE - start // _LINE + 1


def pytorch_direct() -> Table:
    row_bytes, count = 2052, 4096
    starts = [number * row_bytes for number in range(count)]
    naive = sum(lines_of_row(row_bytes, start) for start in starts)
    aligned = sum(aligned_lines(row_bytes, start) for start in starts)
    rows = [
        Row(
            "aligned over naive gathers of rows of 2,052 bytes",
            "x",
            1.95 / 1.17,
            naive / aligned,
            note="requests for lines of 128 bytes, counted",
        ),
        Row("training, at most", "x", 1.45, None, note=_NO_PLATFORM),
    ]
    return Table(name="PyTorch-Direct: headlines", rows=rows)


def legion() -> Table:
    rows = [
        Row("over DGL with UVA, V100, at most", "x", 5.69, None, note=_NO_PLATFORM),
        Row("epoch of ogbn-papers100M, DGX-V100", "s", 1.98, None, note=_NO_PLATFORM),
    ]
    return Table(name="Legion: headlines", rows=rows)


def tables() -> tuple[Table, ...]:
    return (pagraph(), pytorch_direct(), legion())
